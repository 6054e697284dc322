"""What the commands say: help at every width, and a sentence for an ordinary mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paper.tests.command import run
from paper.tests.synthetic import Sizes, write_study


@pytest.mark.parametrize("command", ["", "study", "report"])
@pytest.mark.parametrize("columns", [30, 50, 120])
def test_help_breaks_no_name(command, columns, monkeypatch, capsys):
    words = [*([command] if command else []), "-h"]
    assert run(monkeypatch, *words, columns=columns) == 0
    text = capsys.readouterr().out
    assert run(monkeypatch, *words, columns=1000) == 0
    assert text.split() == capsys.readouterr().out.split()
    assert max(map(len, text.splitlines())) <= max(columns, 40)  # the command in full, at least


def test_help_imports_nothing_heavy():
    code = (
        "import runpy, sys; sys.argv = ['x', 'study', '-h']\n"
        "try: runpy.run_module('deceptron_paper', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}"
        " & {'pandas', 'scipy', 'matplotlib', 'zarr', 'pyarrow', 'torch', 'PIL', 'jinja2'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")


def test_a_study_without_a_name_says_how(monkeypatch, capsys):
    assert run(monkeypatch, "study") == 2
    assert "`study quick`" in capsys.readouterr().err
    assert run(monkeypatch, "study", "full", "--quick") == 2
    assert "leave out 'full'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("study", "--quick", "--problems", "heat-1d", "--out", "CLOSED/s"), "cannot write"),
        (("study", "--quick", "--engine", "cloud", "--out", "s"), "unknown engine 'cloud'"),
        (("report", "STUDY", "--out", "CLOSED/r"), "cannot write"),
        (("report", "STUDY", "--out", "file/r"), "cannot write"),
        (("report", "STUDY", "--out", "file"), "must be a folder"),
        (("report", "file"), "not a study folder"),
    ],
)
def test_one_sentence(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    if "STUDY" in arguments:
        sizes = Sizes(instances=2, problems=("allen-cahn-2d",), sets=("test",), seeds=(7,))
        write_study(tmp_path / "study", sizes)
    closed = Path("/proc/self/fdinfo")  # nothing can be made there, not even by root
    if os.geteuid() != 0:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
    given = [word.replace("CLOSED", str(closed)).replace("STUDY", "study") for word in arguments]
    before = sorted(tmp_path.iterdir())
    assert run(monkeypatch, *given) == 2
    told = capsys.readouterr()
    assert words in told.err
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_an_interruption_is_a_sentence(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("deceptron_paper.study.run_study", interrupted)
    assert run(monkeypatch, "study", "--quick") == 130
    assert capsys.readouterr().err == "interrupted: run it again to continue\n"
