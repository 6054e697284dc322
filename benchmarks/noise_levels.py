"""One g for all noise levels against one trained for a single level: heat-1d, three seeds.

One-shot RMSE of 300 instances a set, the noise of the set told to the pair, and of the test latents
at other noises. The pair for one level is the same recipe with ``noise_range=None``.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

import deceptron as dc
from benchmarks.common import publish
from benchmarks.standard import INSTANCES, RUNS, SEEDS, trained
from deceptron.geometry.trust import into_box
from deceptron.train import recipe

NAME = "heat-1d"
LEVELS = (0.25, 0.5, 1, 2, 3, 4)


def rows_of(seed: int) -> list[dict[str, object]]:
    problem = dc.problems.get(NAME, test_count=INSTANCES)
    data = problem.dataset(seed)
    single = replace(recipe(problem, "standard"), noise_range=None)
    folder = RUNS.parent / "unconditioned" / f"{NAME}-{seed}"
    pairs = {
        "one level": dc.train(problem, single, out=folder, seed=seed),
        "all levels": trained(problem, seed)[0],
    }
    found = []
    for label, pair in pairs.items():
        errors = {
            name: rmse(pair, getattr(data, name).x, getattr(data, name).y, noise)
            for name, noise in (
                ("test", problem.noise_std),
                ("shifted", problem.noise_std),
                ("extreme", problem.noise_std * problem.noise_factor("extreme")),
            )
        }
        x = data.test.x
        clean = problem.simulate(x)
        for level in LEVELS:
            ratio = torch.full((len(x),), float(level))
            y = problem.add_noise(clean, generator=Generator().manual_seed(1), ratio=ratio)
            errors[f"{level:g}x"] = rmse(pair, x, y, level * problem.noise_std)
        found.append({"seed": seed, "g": label, **errors})
    return found


def rmse(pair: dc.Deceptron, x: Tensor, y: Tensor, noise_std: float | Tensor) -> float:
    with torch.no_grad():
        answer = pair.at_noise(noise_std).g(pair.scaler.normalise(y))
    error = into_box(answer, pair.bounds) - x
    return float(error.flatten(1).square().mean(1).sqrt().mean())


def main() -> None:
    rows = [row for seed in SEEDS for row in rows_of(seed)]
    publish("noise_levels", f"{NAME}, one-shot RMSE over {INSTANCES} instances", rows)


if __name__ == "__main__":
    main()
