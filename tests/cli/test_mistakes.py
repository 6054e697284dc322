"""Ordinary mistakes with files and folders: exit code 2 and a sentence, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deceptron as dc
from tests.cli.command import run


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder in which nothing can be made, not even by root."""
    return Path("/proc/self/fdinfo") if os.geteuid() == 0 else _closed(tmp_path)


def _closed(tmp_path: Path) -> Path:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a small model, observations and what is in the way."""
    monkeypatch.chdir(tmp_path)
    dc.save(dc.maps.mlp_pair(6), "small.safetensors")
    np.save("y.npy", np.zeros((4, 6), dtype=np.float32))
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "null.npz").symlink_to("/dev/null")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("solve", "small.safetensors", "y.npy", "-o", "CLOSED/x.npz"), "cannot write"),
        (("solve", "small.safetensors", "y.npy", "-o", "CLOSED/x.zarr"), "cannot write"),
        (("solve", "small.safetensors", "y.npy", "-o", "folder.npz"), "exists already"),
        (("solve", "small.safetensors", "y.npy", "-o", "folder.npz", "--overwrite"), "a folder"),
        (("solve", "small.safetensors", "y.npy", "-o", "null.npz", "--overwrite"), "a device"),
        (("solve", "small.safetensors", "y.npy", "-o", "x.npz", "--engine", "rai"), "'ray'"),
        (("solve", "small.safetensors", "y.npy", "-o", "x.npz", "--workers", "0"), "workers"),
        (("solve", "small.safetensors", "y.npy", "-o", "x.npz", "--address", "a:1"), "'ray'"),
        (("solve", "small.safetensors", "folder.npz", "-o", "x.npz"), "there is no file"),
        (("solve", "folder.png", "y.npy", "-o", "x.npz"), "is a folder"),
        (("demo", "heat-1d", "--count", "1", "--output", "CLOSED/a.png"), "cannot write"),
        (("demo", "heat-1d", "--count", "1", "--output", "folder.png"), "it is a folder"),
        (("problems", "heat-1d", "--show", "CLOSED/a.png"), "cannot write"),
        (("problems", "heat-1d", "--show", "folder.png"), "it is a folder"),
        (("train", "heat-1d", "--preset", "smoke", "--out", "CLOSED/run"), "cannot write"),
        (("train", "heat-1d", "--preset", "smoke", "--out", "file"), "cannot write"),
    ],
)
def test_one_sentence(
    arguments: tuple[str, ...],
    words: str,
    place: Path,
    closed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [word.replace("CLOSED", str(closed)) for word in arguments]
    before = sorted(entry.name for entry in place.iterdir())
    assert run(monkeypatch, *given) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    assert sorted(entry.name for entry in place.iterdir()) == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, a disk without room")
def test_an_output_that_has_no_room_is_a_sentence() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "deceptron.cli", "problems"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: cannot write the output: No space left on device\n"
