"""
A wave equation in JAX
======================

A pulse runs along a rod, u_tt = (c(x)^2 u_x)_x, and four geophones record it. What is the speed
c(x)? The scheme is a ``lax.scan`` of 160 leapfrog steps on 96 cells; ``dc.simulators.from_jax``
compiles it for all rows at once and takes both derivatives from JAX.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
from common import compare, options, scipy_answers, show_bars, with_gaps

import deceptron as dc

CELLS, STEPS, PIECES = 96, 160, 12
centres = (np.arange(CELLS) + 0.5) / CELLS
knots = np.linspace(0, 1, PIECES)
START = np.exp(-0.5 * ((centres - 0.15) / 0.04) ** 2)
GEOPHONES = np.array([10, 38, 62, 90])
RATIO = 0.45  # of the time step to the cell, over the largest speed, which is 1.4


def waves(x: jax.Array) -> jax.Array:
    """One row of x in [0, 1] is the speed at the knots, 0.6 to 1.4; records of 20 times each."""
    speed = 0.6 + 0.8 * jnp.interp(centres, knots, x)
    between = 0.5 * (speed[1:] ** 2 + speed[:-1] ** 2)

    def step(state, _):
        before, now = state
        flux = jnp.pad(between * jnp.diff(now), 1)
        after = 2 * now - before + RATIO**2 * jnp.diff(flux)
        return (now, after), after[GEOPHONES]

    _, records = jax.lax.scan(step, (START, START), length=STEPS)
    return records[7::8].T.ravel()


def sample(count: int, generator: torch.Generator) -> torch.Tensor:
    """Smooth speeds."""
    at = torch.as_tensor(knots)[:, None]
    covariance = torch.exp(-0.5 * (torch.cdist(at, at) / 0.15) ** 2) + 1e-6 * torch.eye(PIECES)
    white = torch.randn(count, PIECES, generator=generator, dtype=torch.float64)
    return torch.sigmoid(1.2 * white @ torch.linalg.cholesky(covariance).T)


if __name__ == "__main__":
    asked = options()
    simulator = dc.simulators.from_jax(waves)
    # The two geophones in the middle are four times as noisy.
    noise = torch.tensor([0.01, 0.04, 0.04, 0.01]).repeat_interleave(STEPS // 8)
    problem = dc.problems.define(
        "wave-speed",
        simulate=simulator,
        sample=sample,
        bounds=(0.0, 1.0),
        noise_std=noise,
        train_count=asked.train_rows,
        val_count=asked.val_rows,
    )
    dc.problems.verify(problem)
    pair = dc.train(problem, preset=asked.preset)

    x = problem.sample(asked.rows, generator=torch.Generator().manual_seed(0))
    y = problem.add_noise(problem.simulate(x), generator=torch.Generator().manual_seed(1))
    y = with_gaps(y, asked)
    compare(
        f"wave speed at {PIECES} points, {asked.rows} fresh rows",
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
    show_bars(solution, x, [f"speed at {s:.2f}" for s in knots], asked.picture)
