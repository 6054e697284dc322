"""Parameters whose units differ: does the error?

The six parameters of ``predators`` (tests/foreign), each multiplied by a unit of its own; RMSE of
200 test rows, every component over its own range, so that all of them count alike.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

import deceptron as dc
from benchmarks.common import publish
from tests.foreign.problems import SIZES, predators

RATIOS = (1.0, 1e2, 1e5, 1e9)
SEED = 3


def in_units(units: Tensor) -> dc.problems.Problem:
    base = predators()

    def simulate(x: Tensor) -> Tensor:
        return base.simulate(x / units.to(x))

    def sample(count: int, generator: Generator) -> Tensor:
        return units * torch.rand(count, 6, generator=generator)

    bounds = (torch.zeros(6), units)
    name = f"units-{float(units.max()):g}"
    return dc.problems.define(
        name, simulate=simulate, sample=sample, bounds=bounds, noise_std=0.02, **SIZES
    )


def measure(ratio: float) -> dict[str, float]:
    units = ratio ** torch.tensor([0.0, 1.0, 0.5, 1.0, 0.0, 0.5])
    problem = in_units(units)
    test = problem.dataset(SEED).test
    pair = dc.train(problem, progress=False, seed=SEED)

    def error(x: Tensor) -> float:
        return float(((x - test.x) / units).square().mean().sqrt())

    return {
        "ratio": ratio,
        "one-shot": error(dc.solve(pair, test.y, method="one-shot").x),
        "default": error(dc.solve(pair, test.y, forward=problem).x),
    }


def main() -> None:
    publish("units", "Units of x that differ by a ratio", [measure(ratio) for ratio in RATIOS])


if __name__ == "__main__":
    main()
