"""Two things are told apart by what decides their answers, and by nothing that a process adds."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

import deceptron as dc
from deceptron.core.identity import describe, digest, fingerprint


def scaled(factor: float):
    return lambda x: factor * x


@dataclass(frozen=True)
class Settings:
    limit: int
    where: Path


def test_what_differs_is_told_apart() -> None:
    layer, other = nn.Linear(2, 2), nn.Linear(2, 2)
    things = [
        1,
        1.0,
        "1",
        None,
        True,
        torch.zeros(3),
        torch.zeros(3, dtype=torch.bfloat16),
        torch.zeros(3, 1),
        np.zeros(3),
        [1, 2],
        {1: 2},
        {"1": 2},
        scaled(2.0),
        scaled(3.0),
        partial(scaled, 2.0),
        partial(scaled, 3.0),
        Settings(1, Path("a")),
        Settings(1, Path("b")),
        torch.float32,
        torch.float64,
        layer,
        other,
        nn.Sequential(layer, nn.ReLU()),
        nn.Sequential(layer, nn.Tanh()),
        dc.problems.get("heat-1d").simulate,
        dc.problems.get("heat-1d", diffusivity=0.2).simulate,
    ]
    assert len({digest(thing) for thing in things}) == len(things)


def test_what_does_not_matter_is_not_seen() -> None:
    assert describe({"a": 1, "b": 2}) == describe({"b": 2, "a": 1})
    assert describe(scaled(2.0)) == describe(scaled(2.0))
    layer = nn.Linear(2, 2)
    before = describe(layer)
    assert describe(layer.eval()) == before
    loop: list[object] = []
    loop.append(loop)
    assert describe(loop) == "[itself]"


def test_the_next_process_says_the_same() -> None:
    script = (
        "import deceptron as dc; from deceptron.core.identity import digest; "
        "print(digest([dc.problems.get('heat-1d').simulate, dc.load('heat-1d'), "
        "dc.methods.guarded().descent(64)]))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True
        ).stdout
        for _ in range(2)
    }
    assert len(found) == 1


def test_a_fingerprint_is_of_content_not_of_dates(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "chunk").write_bytes(b"numbers")
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")
    (tmp_path / "b" / "chunk").rename(tmp_path / "b" / "other")
    assert fingerprint(tmp_path / "a") != fingerprint(tmp_path / "b")
