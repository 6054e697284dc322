"""What the command line says: help, versions, tables and advice, wherever it is read."""

import importlib
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import deceptron as dc
from deceptron.cli import printing
from tests.cli.command import run

COMMANDS = ("problems", "demo", "train", "solve", "view")
HEADS = ("method", "true residual / noise", "words")
ROWS = [("guarded-true", "1.02", "an answer that the data ask for")]


def test_the_version(monkeypatch, capsys):
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"deceptron {dc.__version__}\n"


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.parametrize("columns", [30, 50, 120])
def test_help_is_short_to_ask_for_and_breaks_no_name(command, columns, monkeypatch, capsys):
    words = [*([command] if command else []), "-h"]
    assert run(monkeypatch, *words, columns=columns) == 0
    text = capsys.readouterr().out
    assert run(monkeypatch, *words, columns=1000) == 0
    wide = capsys.readouterr().out
    assert text.split() == wide.split()
    assert max(map(len, text.splitlines())) <= max(columns, 36)  # an option in full, at least
    assert "\N{NON-BREAKING HYPHEN}" not in text
    assert "..." not in re.sub(r"(?i)(ARGS\]|names\]?)\.\.\.", "", text)


def test_exit_codes_are_in_the_help(monkeypatch, capsys):
    assert run(monkeypatch, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{code}, " in text.partition("Exit codes:")[2] for code in (0, 1, 2, 130))


def test_help_imports_nothing_heavy():
    code = (
        "import sys; before = set(sys.modules); import deceptron; loaded = set(sys.modules)\n"
        "from deceptron.cli.app import app\n"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - loaded}"
        " & {'pandas', 'scipy', 'matplotlib', 'zarr', 'pyarrow', 'torch', 'PIL', 'jinja2'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["study", "report"])
def test_what_moved_out_says_where_it_went(name, monkeypatch, capsys):
    assert run(monkeypatch, name, "--quick") == 2
    error = capsys.readouterr().err
    assert f"`python -m deceptron_paper {name}`" in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    with pytest.raises(AttributeError, match=f"deceptron_paper.{name}"):
        getattr(dc, name)
    for module in (name, f"{name}.records"):
        with pytest.raises(ImportError, match=f"deceptron_paper.{name}"):
            importlib.import_module(f"deceptron.{module}")


def test_a_pipe_gets_columns_and_no_control_codes(monkeypatch, capsys):
    assert run(monkeypatch, "problems", columns=20) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(dc.problems.names())
    assert "\x1b" not in "".join(lines)
    assert not set("".join(lines)) & set("│┃─━┏")
    place = lines[0].index("latent")
    assert all(line[place - 2 : place] == "  " for line in lines)


@pytest.mark.parametrize("width", [24, 40, 60, 120])
def test_a_terminal_gets_whole_names_at_every_width(width, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    printing.table("methods", HEADS, ROWS, prose=("words",))
    text = capsys.readouterr().out
    assert "guarded-true" in text
    assert "true residual / noise" in text
    assert ("┃" in text) == (width >= 60)


def test_sentences_are_wrapped_between_words(monkeypatch, capsys):
    sentence = "solved with advection-diffusion-2d and written to a/rather/long/path-of-names.zarr"
    printing.say(sentence)
    assert capsys.readouterr().out == f"{sentence}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "24")
    printing.say(sentence)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert " ".join(lines) == sentence


def test_after_a_solve_there_is_advice(tmp_path, monkeypatch, capsys):
    pair = dc.maps.mlp_pair(6, generator=torch.Generator().manual_seed(0))
    dc.save(pair, tmp_path / "small.safetensors")
    y = np.random.default_rng(0).random((4, 6), dtype=np.float32)
    y[2] = np.nan
    np.save(tmp_path / "y.npy", y)
    monkeypatch.chdir(tmp_path)
    solve = ("solve", "small.safetensors", "y.npy", "-o", "x.npz", "--method", "gd")
    assert run(monkeypatch, *solve, "--max-iterations", 1, "--tolerance", 1e-9) == 0
    text = capsys.readouterr().out
    assert f"STEP_LIMIT: {dc.Status.STEP_LIMIT.advice}" in text
    assert f"NONFINITE: {dc.Status.NONFINITE.advice}" in text
    assert "deceptron view x.npz" in text
    assert run(monkeypatch, "view", "x.npz") == 0
    assert "4 rows" in capsys.readouterr().out
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")


def test_view_refuses_in_one_sentence(tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "y.npy", np.zeros((2, 3)))
    for name, words in (("y.npy", "must end in .zarr"), ("x.npz", "there is no file")):
        assert run(monkeypatch, "view", tmp_path / name) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.startswith("error: result")
        assert error.count("\n") == 1
