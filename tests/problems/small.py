"""Each problem on a grid small enough for finite differences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from deceptron import problems
from deceptron.problems import Problem
from deceptron.problems.advection_diffusion import BlobFamily
from deceptron.problems.navier_stokes import BandFamily

OVERRIDES: dict[str, dict[str, Any]] = {
    "heat-1d": {"grid": 12},
    "heat-2d": {"grid": 6},
    "heat-3d": {"grid": 4},
    "darcy-2d": {"grid": 6},
    "advection-diffusion-2d": {"grid": 8, "latents": BlobFamily(modes=2.0)},
    "allen-cahn-2d": {"grid": 6, "time": 0.02},
    "navier-stokes-2d": {"grid": 9, "times": (0.1, 0.2), "latents": BandFamily(cutoff=2.0)},
}
NAMES = list(OVERRIDES)
COUNTS = {"train_count": 70, "val_count": 5, "test_count": 6, "shifted_count": 4}


def small(name: str, **more: Any) -> Problem:
    return problems.get(name, **{**OVERRIDES[name], **more})


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def draw(problem: Problem, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return problem.sample(count, generator=generator(3), dtype=dtype)


def interior(problem: Problem, count: int) -> Tensor:
    """Latents away from the bounds, where every simulator is smooth."""
    low, high = problem.bounds
    middle = 0.5 * (float(low) + float(high))
    return middle + 0.8 * (draw(problem, count) - middle)
