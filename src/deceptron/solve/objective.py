"""What a row minimises: its squared residual, or the negative log of its posterior.

::

    phi(x) = 0.5 |w (f(x) - y*)|^2 + 0.5 k (x - m)' M (x - m)

Where the noise s_i of a row's components is known, ``w_i = level / s_i`` with ``level`` the RMS of
the s_i: residuals count by their noise, a misfit stays in normalised measurement units, and the
discrepancy principle reads RMS(w r) <= tau level. A missing component has w_i = 0. Where no noise
is known w = 1. With a prior N(m, C), ``k = level^2`` and ``M = C^-1``: level^2 times the negative
log posterior. M is also the metric in which a damped step is short, and its inverse the
preconditioner of every inner solver.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.protocols import GaussianPrior
from deceptron.solve.rows import dot, norm

T = TypeVar("T", bound="LeastSquares")


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """No prior: half the squared residual, the Euclidean metric.

    Tensors have one row for all observations, or one for each: ``at`` chooses rows of the latter.

    Attributes:
        count: components that were observed.
        observed: 1 where there is an observation, 0 where it is missing; None: there are all.
        weight: w; None where it is 1.
        level: RMS of the noise (with what a surrogate errs by), where it is known.
        tau: how many times the level pure noise may be.
        precision: 1 / s of the measurement noise alone, 0 where nothing was observed.
        certainty: the same with what a surrogate errs by, once, as error bars are calibrated.
    """

    count: Float[Tensor, "#B"]
    observed: Float[Tensor, "#B m"] | None = None
    weight: Float[Tensor, "#B m"] | None = None
    level: Float[Tensor, "#B"] | None = None
    tau: Float[Tensor, "#B"] | None = None
    precision: Float[Tensor, "#B m"] | None = None
    certainty: Float[Tensor, "#B m"] | None = None

    @property
    def has_prior(self) -> bool:
        """Whether there is a second term."""
        return False

    @property
    def stiffness(self) -> Float[Tensor, "#B"] | float:
        """k, the weight of the prior."""
        return 0.0

    def at(self: T, rows: Int[Tensor, " k"]) -> T:
        """For a sub-batch that consists of these rows."""
        own = {
            name: value[rows]
            for name, value in vars(self).items()
            if isinstance(value, Tensor) and len(value) > 1
        }
        return replace(self, **own) if own else self

    def difference(
        self, y: Float[Tensor, "B m"], target: Float[Tensor, "B m"]
    ) -> Float[Tensor, "B m"]:
        """``f(x) - y*``, zero where nothing was observed."""
        return self.seen(y - target)

    def seen(self, r: Float[Tensor, "B m"]) -> Float[Tensor, "B m"]:
        """Zero where nothing was observed, whatever a simulator says there, NaN included."""
        return r if self.observed is None else torch.where(self.observed > 0, r, 0.0)

    def weigh(self, r: Float[Tensor, "B m"]) -> Float[Tensor, "B m"]:
        """``w r``; w is diagonal, so this is also its transpose."""
        return r if self.weight is None else self.seen(r) * self.weight

    def weigh_columns(self, jacobian: Float[Tensor, "B m n"]) -> Float[Tensor, "B m n"]:
        """``w J``."""
        return jacobian if self.weight is None else jacobian * self.weight[:, :, None]

    def whiten(self, r: Float[Tensor, "B m"]) -> Float[Tensor, "B m"]:
        """``w r / level``: in units of the noise, where it is known."""
        assert self.level is not None
        return self.weigh(r) / self.level[:, None]

    def fit(self, r: Float[Tensor, "B m"]) -> Float[Tensor, " B"]:
        """``0.5 |w r|^2``."""
        return norm(self.weigh(r)).square_().mul_(0.5)

    def residual(self, fit: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """RMS of w r over what was observed."""
        return (2 * fit / self.count).sqrt()

    def over_noise(self, r: Float[Tensor, "B m"]) -> Float[Tensor, " B"]:
        """RMS of r / s over what was observed; NaN where no noise is known."""
        return self._over(self.precision, r)

    def over_error(self, r: Float[Tensor, "B m"]) -> Float[Tensor, " B"]:
        """The same with what a surrogate errs by counted as noise."""
        return self._over(self.certainty, r)

    def _over(
        self, precision: Float[Tensor, "#B m"] | None, r: Float[Tensor, "B m"]
    ) -> Float[Tensor, " B"]:
        if precision is None:
            return torch.full_like(r[:, 0], torch.nan)
        return norm(r * precision) / self.count.sqrt()

    @property
    def limit(self) -> Float[Tensor, "#B"]:
        """The RMS residual that noise may be; zero where nothing is known of it."""
        if self.level is None or self.tau is None:
            return torch.zeros_like(self.count)
        return self.tau * self.level

    def over_level(self, residual: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """An RMS residual over the noise level, where that is known."""
        assert self.level is not None
        return residual / self.level

    def explained(self, residual: Float[Tensor, " B"]) -> Bool[Tensor, " B"]:
        """Whether an RMS residual is down to what noise may be."""
        if self.level is None or self.tau is None:
            return torch.zeros_like(residual, dtype=torch.bool)
        return residual <= self.limit

    def only_noise(self, weighted: Float[Tensor, "B m"]) -> Bool[Tensor, " B"]:
        """Whether a weighted residual is down to the noise, where nothing but that regularises."""
        if self.level is None or self.has_prior:
            return torch.zeros_like(weighted[:, 0], dtype=torch.bool)
        return norm(weighted) <= self.level * self.count.sqrt()

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


@dataclass(frozen=True, eq=False)
class Regularised(LeastSquares):
    """A Gaussian prior on flat rows of x."""

    prior: GaussianPrior | None = None
    x_shape: tuple[int, ...] = ()

    @property
    def has_prior(self) -> bool:
        """Whether there is a second term."""
        return True

    @property
    def stiffness(self) -> Float[Tensor, "#B"]:
        """level^2: see above."""
        assert self.level is not None
        return self.level.square()

    def value(self, x: Float[Tensor, "B n"], fit: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Add the distance from the prior's mean."""
        offset = self._offset(x)
        return fit + 0.5 * self.stiffness * dot(offset, self.metric(offset))

    def pull(self, x: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """Towards the prior's mean."""
        return self.stiffness[:, None] * self.metric(self._offset(x))

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
