"""Latents that their bounds hold: blurred spikes of no less than zero, most of them zero.

The default with a pair of preset ``smoke`` beside where it started and beside what one would do
without a pair, least squares within the bounds (SciPy's ``lsq_linear``), which knows neither the
family nor when to stop. RMSE of rows like the training data and of rows with many and larger
spikes.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import lsq_linear
from torch import Generator, Tensor

import deceptron as dc
from benchmarks.common import publish

SEED, ROWS = 7, 60
# Unknowns, noise, width of the blur in points.
CASES = [(24, 0.01, 1.0), (40, 0.03, 1.5), (40, 0.003, 1.5), (64, 0.01, 1.0), (128, 0.01, 1.0)]


def spiky(
    n: int, noise: float, width: float
) -> tuple[dc.problems.Problem, list[tuple[str, Tensor, Tensor]]]:
    """The problem, and rows (words, x, y) like the training data and with more."""
    places = torch.linspace(0, n - 1, 3 * n // 2).double()
    blur = torch.exp(-0.5 * ((places[:, None] - torch.arange(n)) / width) ** 2)

    def spikes(count: int, generator: Generator, share: float = 0.15, most: float = 0.8) -> Tensor:
        there = torch.rand(count, n, generator=generator) < share
        return (there * most * torch.rand(count, n, generator=generator)).clamp(0, 1)

    problem = dc.problems.define(
        f"spikes-{n}-{noise:g}",
        simulate=lambda x: x @ blur.T.to(x),
        sample=spikes,
        bounds=(0.0, 1.0),
        noise_std=noise,
        train_count=800,
        val_count=200,
        test_count=ROWS,
    )
    draw = Generator().manual_seed(SEED)
    drawn = [("like training", spikes(ROWS, draw)), ("more", spikes(ROWS, draw, 0.5, 1.3))]
    return problem, [
        (which, x, problem.add_noise(problem.simulate(x), generator=draw)) for which, x in drawn
    ]


def matrix(problem: dc.problems.Problem) -> np.ndarray:
    """The linear map that it is."""
    return problem.simulate(torch.eye(problem.x_shape[0]).double()).T.numpy()


def measure(n: int, noise: float, width: float) -> list[dict[str, object]]:
    problem, sets = spiky(n, noise, width)
    blur = matrix(problem)
    pair = dc.train(problem, "smoke", seed=SEED, progress=False)
    start = "wiener" if pair.calibration.start == "wiener" else "one-shot"
    rows: list[dict[str, object]] = []
    for which, x, y in sets:
        solution = dc.solve(pair, y, forward=problem, history=False)
        low, high = solution.interval(0.9)
        plain = [lsq_linear(blur, row, bounds=(0, 1)).x for row in y.double().numpy()]
        rows.append(
            {
                "unknowns": n,
                "noise": noise,
                "width": width,
                "rows": which,
                "start": rms(dc.solve(pair, y, method=start).x, x),
                "default": rms(solution.x, x),
                "least_squares": rms(torch.as_tensor(np.stack(plain)), x),
                "explained": float(solution.explained.double().mean()),
                "evaluations": float(solution.cost.forward.double().median()),
                "coverage": float(((x >= low) & (x <= high)).double().mean()),
            }
        )
    return rows


def rms(x: Tensor, truth: Tensor) -> float:
    return float((x - truth).square().mean().sqrt())


def main() -> None:
    rows = [row for case in CASES for row in measure(*case)]
    publish("bounds", "Blurred spikes within bounds", rows)


if __name__ == "__main__":
    main()
