"""The library's main job in a minute: shipped models on fresh instances, beside the classics."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from deceptron import maps, problems
from deceptron.core.checks import check_count
from deceptron.solve import methods, solve
from deceptron.solve.methods import Method

DEMO_PROBLEMS = ("heat-1d", "darcy-2d", "navier-stokes-2d")


@dataclass(frozen=True)
class Demo:
    """``rows`` has a line per method; the tensors show the first instance."""

    problem: str
    rows: list[dict[str, str | float]]
    truth: Float[Tensor, "*x"]
    observation: Float[Tensor, "*y"]
    reconstructions: dict[str, tuple[Float[Tensor, "*x"], float]]


def run_demo(name: str, *, count: int = 16, seed: int = 2026) -> Demo:
    """Solve ``count`` fresh noisy instances of a problem with one-shot, D-IPG and LM.

    All three start and stop alike: from x = 0 (one-shot has no start) until the residual of the
    surrogate is at the noise level, or for 30 iterations.
    """
    check_count("count", count)
    problem, pair = problems.get(name), maps.load(name)
    latents, noise = (Generator().manual_seed(2 * seed + part) for part in range(2))
    x = problem.sample(count, generator=latents)
    with torch.no_grad():
        y = problem.add_noise(problem.simulate(x), generator=noise)

    rows: list[dict[str, str | float]] = []
    reconstructions = {}
    for label, method in _methods().items():
        solution = solve(
            pair, y, method=method, noise_std=problem.noise_std, max_iterations=30, history=False
        )
        errors = (solution.x - x).flatten(1).square().mean(1).sqrt()
        with torch.no_grad():
            misfit = (problem.simulate(solution.x) - y) / problem.noise_std
        rows.append(
            {
                "method": label,
                "RMSE": float(errors.mean()),
                "true residual / noise": float(misfit.square().mean().sqrt()),
                "iterations": float(solution.iterations.double().median()),
                "evaluations": float(solution.cost.evaluations.double().mean()),
                "ms per instance": 1e3 * solution.seconds / count,
            }
        )
        reconstructions[label] = (solution.x[0], float(errors[0]))
    return Demo(name, rows, x[0], y[0], reconstructions)


def _methods() -> dict[str, Method]:
    return {
        "one-shot": methods.one_shot(),
        "D-IPG": methods.d_ipg(),
        "LM": methods.levenberg_marquardt(cg_steps=30, cg_tolerance=1e-3),
    }
