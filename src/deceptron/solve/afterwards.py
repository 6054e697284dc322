"""What a solution can be asked later, error bars and trust: worked out then, not during a solve."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from deceptron.core.box import Bounds
from deceptron.core.protocols import GaussianPrior, Pair, RowMap
from deceptron.core.solution import Solution
from deceptron.geometry.noise_aware import Covariance
from deceptron.geometry.posterior import Posterior as ErrorBars
from deceptron.geometry.trust import trust


def informed(
    solution: Solution,
    pair: Pair | RowMap,
    y: Tensor,
    *,
    prior: GaussianPrior | None,
    noise_std: float | Tensor | None,
    level: float | None,
    bounds: Bounds | None,
) -> Solution:
    """The solution with what pair, prior and noise allow; ``level`` is what a residual should be.

    J is that of ``pair.f`` whatever the objective was: the bars were calibrated with it.
    """
    if not isinstance(pair, Pair):
        return solution
    if isinstance(prior, Covariance) and noise_std is not None and level:
        bars = ErrorBars(
            pair=pair,
            x=solution.x,
            prior=prior,
            noise_std=noise_std,
            misfit=solution.residual / level,
            bounds=bounds,
        )
        solution = replace(solution, error_bars=bars)
    if getattr(pair, "calibration", None):
        solution = replace(solution, judge=lambda: trust(pair, y))
    return solution
