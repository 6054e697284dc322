"""Latents in the units of their owner, where the maps of a pair take them without.

``x = shift + scale z``: a rate of 0.001 may stand beside a temperature of 400 in x, while all
components of z vary by about one. The maps, bounds and calibration that a solve works with are
those of z (``pair.unitless``); what people hand in and get back is x. The two meet here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.bases import SHORTEST_AXIS
from deceptron.core.box import Bounds, sides
from deceptron.core.differentiate import is_differentiable
from deceptron.core.error_bars import ErrorBars
from deceptron.core.protocols import GaussianPrior
from deceptron.core.scaler import Scaler

# Errors and corrections are measured in x as the maps take it. With six parameters a ratio of 100
# between their spreads cost 15% of accuracy, one of 100,000 all that is known about the small ones.
LARGEST_RATIO = 10.0
# Spreads that maps and steps of solvers can be relied on with.
SPREADS = (1e-3, 1e3)
# A mean, in units of the spread, beside which single precision still resolves the spread.
LARGEST_MEAN = 1e3
# Correlation of points that are neighbours in a field, and ratio of neighbours among coefficients.
NEIGHBOURS, DECAY = 0.5, 5.0
# By how much the rounding of z may move x across a bound, in units of its spread.
ROUND_OFF = 1e-6


class Units(Scaler):
    """Where each component of x lies and how much it varies; of a field, each channel."""

    def reduced(self, x: Float[Tensor, "*B *x"]) -> Float[Tensor, "*B *x"]:
        """x without its units."""
        shift, scale = self.shift.to(x.device), self.scale.to(x.device)
        # In double precision: beside a large mean the spread would be lost.
        return ((x.double() - shift) / scale).to(x)

    def physical(
        self, z: Float[Tensor, "*B *x"], bounds: Bounds | None = None
    ) -> Float[Tensor, "*B *x"]:
        """Back to x; what round-off has put beyond a bound is at the bound."""
        shift, scale = self.shift.to(z.device), self.scale.to(z.device)
        x = (shift + scale * z.double()).to(z)
        if bounds is None:
            return x
        low, high = (torch.as_tensor(side).to(x) for side in bounds)
        beyond = (x.clamp(low, high) - x).detach()
        slight = ROUND_OFF * scale + 4 * torch.finfo(x.dtype).eps * x.detach().abs()
        # A constant is added, so that derivatives stay.
        return x + torch.where(beyond.abs() <= slight, beyond, 0.0)

    def reduced_bounds(self, bounds: Bounds) -> Bounds:
        """The same box for z."""
        low, high = (torch.as_tensor(side, dtype=torch.float64) for side in sides(bounds))
        return self.reduced(low), self.reduced(high)


def units_of(x: Float[Tensor, "N *x"]) -> Units | None:
    """What these latents are counted in, component by component or, of a field, channel by
    channel; None where maps can take them as they are.
    """
    if len(x) < 2 or not bool(x.isfinite().all()):
        return None
    mean, variance = x.double().mean(0), x.double().var(0)
    if x.ndim == 2:
        shared = _fields(x.double())
    else:
        axes = list(range(1 if x.shape[1] < SHORTEST_AXIS else 0, mean.ndim))

        def shared(values: Tensor) -> Tensor:
            return values.mean(axes, keepdim=True)

    # Of a field, the spread at a point: what its mean does over the grid is no spread.
    shift, spread = shared(mean), shared(variance).sqrt()
    varying = spread > 0
    if not bool(varying.any()):
        return None
    low, high = float(spread[varying].min()), float(spread[varying].max())
    even = high <= LARGEST_RATIO * low and SPREADS[0] <= low <= high <= SPREADS[1]
    if even and bool((shift.abs() <= LARGEST_MEAN * spread)[varying].all()):
        return None
    return Units(shift, torch.where(varying, spread, 1.0))


def _fields(x: Float[Tensor, "N n"]) -> Callable[[Tensor], Tensor]:
    """The mean over each field in a vector; other components keep what they have.

    Points of a field have one unit, whatever they do at a boundary: they go along with their
    neighbours. So have the coefficients of its waves, which vary less and less from one to the
    next: how much is what a prior knows about them. Either is told by many such in a row.
    """
    off = x - x.mean(0)
    spread = off.square().mean(0).sqrt().clamp_min(torch.finfo(x.dtype).tiny)
    off = off / spread
    apart = (off[:, 1:] * off[:, :-1]).mean(0) < NEIGHBOURS
    apart = apart & ((spread[1:] / spread[:-1]).log().abs() > math.log(DECAY))
    group = torch.cat([apart.new_zeros(1), apart]).cumsum(0)
    count = torch.bincount(group)
    in_field = count[group] >= SHORTEST_AXIS

    def shared(values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        total = torch.zeros_like(count, dtype=values.dtype).index_add(0, group, values)
        return torch.where(in_field, (total / count)[group], values)

    return shared


@dataclass(frozen=True, eq=False)
class UnitlessForward:
    """A simulator of x, asked with z."""

    forward: Callable[[Tensor], Any]
    units: Units
    bounds: Bounds | None

    @property
    def differentiable(self) -> bool:
        """As the simulator says of itself."""
        return is_differentiable(self.forward)

    def __call__(self, z: Tensor) -> Any:
        """What the simulator makes of these rows."""
        return self.forward(self.units.physical(z, self.bounds))


@dataclass(frozen=True, eq=False)
class UnitlessPrior:
    """The law of z where x has this one: N(S^-1 (m - shift), S^-1 C S^-1), S the scale."""

    prior: GaussianPrior
    units: Units

    @property
    def mean(self) -> Tensor:
        """One row of z."""
        return self.units.reduced(self.prior.mean)

    def apply(self, v: Tensor) -> Tensor:
        """``S^-1 C S^-1 v``."""
        return self.prior.apply(v / self._scale(v)) / self._scale(v)

    def solve(self, v: Tensor) -> Tensor:
        """``S C^-1 S v``."""
        return self.prior.solve(v * self._scale(v)) * self._scale(v)

    def _scale(self, v: Tensor) -> Tensor:
        return self.units.scale.to(v)


class UnitlessCovariance(UnitlessPrior):
    """Of a prior that can be drawn from, which error bars need."""

    @property
    def variance(self) -> Tensor:
        """Diagonal of ``S^-1 C S^-1``."""
        variance: Tensor = self.prior.variance  # type: ignore[attr-defined]
        return variance / self._scale(variance).square()

    def sqrt(self, v: Tensor) -> Tensor:
        """``S^-1 C^(1/2) v``, a root, though not the symmetric one."""
        root: Tensor = self.prior.sqrt(v)  # type: ignore[attr-defined]
        return root / self._scale(v)


def unitless_prior(prior: GaussianPrior, units: Units) -> UnitlessPrior:
    """With what the prior can do."""
    drawn = hasattr(prior, "variance") and hasattr(prior, "sqrt")
    return (UnitlessCovariance if drawn else UnitlessPrior)(prior, units)


@dataclass(frozen=True, eq=False)
class BarsInUnits:
    """Error bars of x, from those of z."""

    bars: ErrorBars
    units: Units
    bounds: Bounds | None

    def __len__(self) -> int:
        return len(self.bars)

    def at(self, rows: Int[Tensor, " k"]) -> BarsInUnits:
        """Of these rows, one or more."""
        return BarsInUnits(self.bars.at(rows), self.units, self.bounds)

    def sample(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "S B *x"]:
        """Draws about each answer."""
        drawn = self.bars.sample(samples, generator=generator)
        return self.units.physical(drawn, self.bounds)

    def std(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "B *x"]:
        """Standard deviation of each component."""
        std = self.bars.std(samples, generator=generator)
        return std * self.units.scale.to(std)

    def ends(
        self, std: Float[Tensor, "B *x"], level: float, *, samples: int
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        """Lower and upper ends of intervals, given what ``std`` found by so many draws."""
        low, high = self.bars.ends(std / self.units.scale.to(std), level, samples=samples)
        return self.units.physical(low, self.bounds), self.units.physical(high, self.bounds)
