"""
Measured pairs without a simulator
==================================

A laboratory has mixed four dyes in known amounts and recorded the light that each mixture lets
through. There is no simulator, only these pairs. ``dc.problems.from_data`` trains on them; new
spectra, with dead pixels, are then solved on the surrogate, and their answers have error bars. (The
laboratory is played by a function here: overlapping bands, and stray light that saturates them.)
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from common import compare, options, scipy_answers, show_bars, with_gaps

import deceptron as dc

DYES = ["fluorescein", "rhodamine", "methylene blue", "crystal violet"]
wavelengths = np.linspace(450, 700, 50)
bands = np.stack([np.exp(-0.5 * ((wavelengths - c) / 28) ** 2) for c in (495, 545, 660, 590)])
NOISE = np.where(wavelengths < 600, 0.004, 0.012)  # the detector is worse in the red


def laboratory(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Amounts, and the transmission that was measured."""
    random = np.random.default_rng(seed)
    x = random.dirichlet(np.ones(5), count)[:, :4]
    through = np.exp(-4 * x @ bands)
    y = 0.03 + 0.97 * through + NOISE * random.normal(size=through.shape)
    return x, y


if __name__ == "__main__":
    asked = options()
    noise = torch.as_tensor(NOISE, dtype=torch.float32)
    problem = dc.problems.from_data(
        *laboratory(asked.train_rows * 5 // 4, seed=0),
        bounds=(0.0, 1.0),
        noise_std=noise,
        name="dyes",
    )
    print(dc.problems.from_data(*laboratory(500, seed=1)).noise_std[[0, -1]], "is the noise that")
    print("500 pairs alone would have told, in the blue and in the red; it is", NOISE[[0, -1]])
    pair = dc.train(problem, preset=asked.preset)

    x, y = (torch.as_tensor(part, dtype=torch.float32) for part in laboratory(asked.rows, seed=2))
    y = with_gaps(y, asked)

    precise = copy.deepcopy(pair).double()  # SciPy takes differences of 1e-8

    def surrogate(row: torch.Tensor) -> torch.Tensor:
        return precise.scaler.denormalise(precise.f(row))

    compare(
        f"amounts of {len(DYES)} dyes, {asked.rows} fresh rows; all on the surrogate",
        x,
        {
            "one-shot network": lambda: dc.solve(pair, y, method="one-shot", noise_std=noise),
            "dc.solve": lambda: dc.solve(pair, y, noise_std=noise),
            "SciPy least_squares": lambda: scipy_answers(
                surrogate, y, noise, problem.prior, (0.0, 1.0)
            ),
        },
    )
    solution = dc.solve(pair, y, noise_std=noise)
    flagged = int(solution.trust.flag.sum())
    print(f"{flagged} of {len(y)} spectra do not look like the training data")
    show_bars(solution, x, DYES, asked.picture)
