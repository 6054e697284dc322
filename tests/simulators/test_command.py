"""Programs that read and write .npy: answers kept, failures in words, nobody waits for ever."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import deceptron as dc
from deceptron.core.differentiate import Linearisation
from deceptron.simulators import from_command
from tests.simulators.physics import MATRIX, in_torch, rows

# What goes wrong is written in the first component of a row.
PROGRAM = """
import sys, os, numpy as np
source, target = sys.argv[1:3]
x = np.load(source)
if x[0] == 2: sys.exit("diverged at step 7")
if x[0] == 4: sys.exit(0)
if x[0] == 5:
    np.save(target, np.zeros(1000)); os.truncate(target, 500); sys.exit(0)
if x[0] == 6:
    np.save(target, np.zeros(2)); sys.exit(0)
if x[0] == 7: os.kill(os.getpid(), 9)
if x[0] == 8:
    np.save(target, np.array([{}], dtype=object)); sys.exit(0)
if x[0] == 9:
    os.mkfifo(target); sys.exit(0)
matrix = np.array(@MATRIX@)
y = np.tanh(matrix @ x)
if len(sys.argv) > 3: y = ((1 - y**2) * np.load(sys.argv[3])) @ matrix
assert os.listdir(".") and os.getcwd() == os.path.dirname(source)
np.save(target, y)
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("@MATRIX@", repr(MATRIX.tolist())))
    return [sys.executable, str(path), "{input}", "{output}"]


def test_rows_run_side_by_side_and_the_adjoint_may_be_a_program_too(program: list[str]) -> None:
    simulator = from_command(program, vjp=[*program, "{vector}"], workers=3)
    assert simulator.differentiable
    x = rows(3, dtype=torch.float32).requires_grad_()
    y = simulator(x)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, in_torch(x))
    w = torch.ones_like(y)
    (pulled,) = torch.autograd.grad(y, x, w)
    torch.testing.assert_close(pulled, Linearisation(in_torch, x).vjp(w))
    simulator.close()
    assert not from_command(program).differentiable


def test_every_bad_end_is_one_row_and_one_sentence(program: list[str]) -> None:
    x = rows(8)
    x[1:, 0] = torch.tensor([2.0, 4, 5, 6, 7, 8, 9])
    simulator = from_command(program, workers=2, timeout=300)
    with pytest.warns(RuntimeWarning, match="7 of 8 rows failed"):
        y = simulator(x)
    torch.testing.assert_close(y[0], in_torch(x[:1])[0])
    assert bool(y[1:].isnan().all())
    for words, sentence in zip(
        (
            "row 1: RuntimeError: ended with exit code 1, saying 'diverged at step 7'",
            "row 2: RuntimeError: ended well but wrote no file output.npy",
            "row 3: RuntimeError: wrote a file that is not a whole .npy array",
            "row 4: returned shape (2,); shape (5,) was expected",
            "row 5: RuntimeError: ended with exit code -9",
            "row 6: RuntimeError: wrote a file that is not a whole .npy array",
            "row 7: RuntimeError: ended well but wrote no file output.npy",
        ),
        simulator.failures,
        strict=True,
    ):
        assert words in sentence


def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = "echo $$ > {output}.pid; mkfifo pipe; cat pipe & wait"
    simulator = from_command(
        ["sh", "-c", script.replace("{output}", str(tmp_path / "sh"))], timeout=1
    )
    with (
        pytest.warns(RuntimeWarning, match="failed"),
        pytest.raises(dc.SimulatorError, match="TimeoutError: ran longer than timeout=1 s"),
    ):
        simulator(rows(1))
    group = int((tmp_path / "sh.pid").read_text())
    for _ in range(200):  # the system may take a moment to bury them
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("processes of a program that was ended are still there")


def test_a_program_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    missing = from_command([tmp_path / "no-such-program", "{input}"])
    with (
        pytest.warns(RuntimeWarning, match="failed"),
        pytest.raises(dc.SimulatorError, match="cannot be run: No such file"),
    ):
        missing(rows())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"command": "./program {input}"}, "must be a list such as"),
        ({"command": []}, "must be a list such as"),
        ({"command": ["a"], "vjp": "b"}, r"from_command\(vjp=\.\.\.\) must be a list"),
        ({"command": None}, "must be a list such as"),
        ({"command": ["a"], "environment": "A=1"}, "environment must be a dictionary"),
        ({"command": [1, 2]}, r"must be words; got \[1, 2\]"),
        ({"command": ["a"], "timeout": 0}, "timeout must lie in"),
        ({"command": ["a"], "timeout": torch.inf}, "timeout must lie in"),
        ({"command": ["a"], "workers": 0}, "workers must be an integer >= 1"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(dc.ConfigError, match=words):
        from_command(**arguments)
