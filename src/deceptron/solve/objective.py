"""What a row minimises: its squared residual, or the negative log of its posterior.

::

    phi(x) = 0.5 |w (f(x) - y*)|^2 + 0.5 k (x - m)' M (x - m)

Without a prior w = 1 and k = 0. With a prior N(m, C) and noise of standard deviation s_i,
``k = level^2``, ``w_i = level / s_i`` and ``M = C^-1``, where ``level`` is the RMS of the s_i: that
is level^2 times the negative log posterior, so a misfit stays in normalised measurement units and
the discrepancy principle reads RMS(w r) <= tau level. M is also the metric in which a damped step
is short, and its inverse the preconditioner of every inner solver.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from deceptron.core.protocols import GaussianPrior
from deceptron.solve.rows import dot, norm


@dataclass(frozen=True)
class LeastSquares:
    """No prior: half the squared residual, the Euclidean metric.

    ``level`` is the RMS of the noise, normalised units, where it is known.
    """

    level: float | None = None

    @property
    def stiffness(self) -> float:
        """k, the weight of the prior."""
        return 0.0

    def weigh(self, r: Float[Tensor, "B m"]) -> Float[Tensor, "B m"]:
        """``w r``; w is diagonal, so this is also its transpose."""
        return r

    def fit(self, r: Float[Tensor, "B m"]) -> Float[Tensor, " B"]:
        """``0.5 |w r|^2``."""
        return norm(self.weigh(r)).square_().mul_(0.5)

    def only_noise(self, weighted: Float[Tensor, "B m"]) -> Bool[Tensor, " B"]:
        """Whether a weighted residual is down to the noise, where nothing but that regularises."""
        if self.level is None or self.stiffness > 0:
            return torch.zeros_like(weighted[:, 0], dtype=torch.bool)
        return norm(weighted) <= self.level * weighted.shape[1] ** 0.5

    def value(self, x: Float[Tensor, "B n"], fit: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """phi, given its first term."""
        return fit

    def pull(self, x: Float[Tensor, "B n"]) -> Float[Tensor, "B n"] | None:
        """Gradient of the second term."""
        return None

    def metric(self, v: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """``M v``."""
        return v

    def precondition(self, v: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """``M^-1 v``."""
        return v


@dataclass(frozen=True)
class Posterior(LeastSquares):
    """A Gaussian prior on flat rows of x and Gaussian noise on flat components of y."""

    weight: Float[Tensor, " m"] | float = 1.0
    prior: GaussianPrior | None = None
    x_shape: tuple[int, ...] = ()

    @property
    def stiffness(self) -> float:
        """level^2: see above."""
        assert self.level is not None
        return self.level**2

    def weigh(self, r: Float[Tensor, "B m"]) -> Float[Tensor, "B m"]:
        """Components count by the inverse of their noise."""
        return r * self.weight

    def value(self, x: Float[Tensor, "B n"], fit: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Add the distance from the prior's mean."""
        offset = self._offset(x)
        return fit + 0.5 * self.stiffness * dot(offset, self.metric(offset))

    def pull(self, x: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """Towards the prior's mean."""
        return self.stiffness * self.metric(self._offset(x))

    def metric(self, v: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """``C^-1 v``."""
        assert self.prior is not None
        return self.prior.solve(v.reshape(-1, *self.x_shape)).reshape(v.shape)

    def precondition(self, v: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """``C v``."""
        assert self.prior is not None
        return self.prior.apply(v.reshape(-1, *self.x_shape)).reshape(v.shape)

    def _offset(self, x: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        assert self.prior is not None
        return x - self.prior.mean.to(x).reshape(-1)
