"""What a solution can be asked later, error bars and trust: worked out then, not during a solve."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.box import Bounds
from deceptron.core.protocols import GaussianPrior, Pair, RowMap
from deceptron.core.solution import Solution
from deceptron.core.trust import Trust
from deceptron.geometry.noise_aware import Covariance
from deceptron.geometry.posterior import Posterior as ErrorBars
from deceptron.geometry.trust import trust
from deceptron.solve.evaluation import evaluation_mode


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
        solution = replace(solution, error_bars=_Bars(bars))
    if getattr(pair, "calibration", None):

        def judge() -> Trust:
            with evaluation_mode(pair):
                return trust(pair, y)

        solution = replace(solution, judge=judge)
    return solution


@dataclass(frozen=True)
class _Bars:
    """Error bars whose draws are made in evaluation mode, whatever mode the pair is in by then."""

    bars: ErrorBars

    def sample(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "S B *x"]:
        with evaluation_mode(self.bars.pair):
            return self.bars.sample(samples, generator=generator)

    def std(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "B *x"]:
        with evaluation_mode(self.bars.pair):
            return self.bars.std(samples, generator=generator)

    def interval(
        self, level: float, *, samples: int, generator: torch.Generator | None
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        with evaluation_mode(self.bars.pair):
            return self.bars.interval(level, samples=samples, generator=generator)
