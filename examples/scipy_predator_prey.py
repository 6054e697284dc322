"""
SciPy's solve_ivp, values only
==============================

Hares and lynxes, a' = (p - q b) a and b' = (r a - s) b, were counted at twenty times, the lynxes
badly. What are the four rates? The simulator is a plain function around ``solve_ivp``, without
derivatives: the solver replaces them by differences of values.
"""

from __future__ import annotations

import numpy as np
import torch
from common import compare, options, scipy_answers, show_bars, with_gaps
from scipy.integrate import solve_ivp

import deceptron as dc

TIMES = np.linspace(0.5, 10, 20)
LOW, HIGH = np.array([0.8, 0.3, 0.1, 0.3]), np.array([1.6, 0.8, 0.4, 0.9])
RATES = ["birth of hares", "death by lynx", "growth by hare", "death of lynxes"]


def counts(x: np.ndarray) -> np.ndarray:
    """One row of x in [0, 1] is the four rates in their ranges; logarithms of both counts."""
    p, q, r, s = LOW + x * (HIGH - LOW)

    def rates(_, state):
        a, b = state
        return [(p - q * b) * a, (r * a - s) * b]

    found = solve_ivp(rates, (0, TIMES[-1]), [2.0, 1.0], "LSODA", TIMES, rtol=1e-7, atol=1e-9)
    if not found.success:
        raise ArithmeticError(found.message)
    return np.log(found.y).ravel()


if __name__ == "__main__":
    asked = options()
    simulator = dc.simulators.wrap(counts, batched=False)
    noise = torch.tensor([0.05, 0.2]).repeat_interleave(len(TIMES))
    problem = dc.problems.define(
        "predator-prey",
        simulate=simulator,
        sample=lambda count, generator: torch.rand(count, 4, generator=generator),
        bounds=(0.0, 1.0),
        noise_std=noise,
        train_count=asked.train_rows,
        val_count=asked.val_rows,
    )
    dc.problems.verify(problem, rows=16)
    pair = dc.train(problem, preset=asked.preset)

    x = problem.sample(asked.rows, generator=torch.Generator().manual_seed(0))
    y = problem.add_noise(problem.simulate(x), generator=torch.Generator().manual_seed(1))
    y = with_gaps(y, asked)
    compare(
        f"four rates, {asked.rows} fresh rows",
        x,
        {
            "one-shot network": lambda: dc.solve(pair, y, method="one-shot", noise_std=noise),
            "dc.solve": lambda: dc.solve(pair, y, forward=problem.simulate, noise_std=noise),
            "SciPy least_squares": lambda: scipy_answers(
                simulator, y, noise, problem.prior, (0.0, 1.0)
            ),
        },
        simulator,
    )
    solution = dc.solve(pair, y, forward=problem.simulate, noise_std=noise)
    show_bars(solution, x, RATES, asked.picture)
