"""Problems and recipes so small that a whole training takes a fraction of a second."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import deceptron as dc
from deceptron.train import Recipe, recipe


def tiny(**changes: Any) -> dc.problems.Problem:
    counts = {"train_count": 96, "val_count": 24, "test_count": 8}
    return dc.problems.get("heat-1d", **{"grid": 12, **counts, **changes})


def quick(problem: dc.problems.Problem | None = None, **changes: Any) -> Recipe:
    """Without corrections, unless told: fitting them takes ten times as long as all else."""
    return replace(recipe(problem or tiny(), "smoke"), **{"correction_limit": 0, **changes})


def weights_of(pair: dc.Deceptron) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in pair.state_dict().items()}


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for key, value in a.items():
        assert torch.equal(value, b[key]), key


class Constant(nn.Module):
    """Ignores its input; one trainable row."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.row = nn.Parameter(torch.zeros(shape))

    def forward(self, rows: Tensor) -> Tensor:
        return self.row.expand(len(rows), *self.row.shape)
