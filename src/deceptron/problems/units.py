"""Parameters of different units side by side, and the same problem without units."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import cast

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from deceptron.core.bases import SHORTEST_AXIS
from deceptron.core.checks import check_seed
from deceptron.core.errors import ConfigError
from deceptron.problems.base import Problem
from deceptron.problems.dataset import Dataset, Split

# Errors and corrections are measured in x as it is: with six parameters a ratio of 100 cost 15% of
# accuracy, one of 100,000 all of what is known about the small ones.
LARGEST_RATIO = 1e2
# Steps of a precision, in units of the noise, that go unnoticed.
COARSEST = 0.5


def uneven_units(x: Float[Tensor, "N *x"]) -> str | None:
    """A sentence if components of a vector x, or channels of a field, vary by very different
    amounts.
    """
    if len(x) < 2:
        return None
    spread = _spread(x.double())
    spread = spread[spread > 0]
    if not len(spread) or float(spread.max()) <= LARGEST_RATIO * float(spread.min()):
        return None
    parts = "components" if x.ndim == 2 else "channels"
    return (
        f"{parts} of x must vary by about as much; they vary by {float(spread.min()):.2g} to "
        f"{float(spread.max()):.2g}, and little is learned about the small ones: train and solve "
        "with dc.problems.unitless(problem), whose physical(x) leads back"
    )


def _spread(x: Float[Tensor, "N *x"]) -> Float[Tensor, " *u"]:
    """Standard deviation of each component of a vector, of each channel of a field: points of a
    grid have one unit, whatever they do at a boundary.
    """
    if x.ndim == 2:
        return x.std(0)
    first = 2 if x.shape[1] < SHORTEST_AXIS else 1
    return x.var(0).mean(tuple(range(first - 1, x.ndim - 1)), keepdim=True).sqrt()


def unresolved(
    y: Float[Tensor, "N *y"], noise_std: float | Tensor, dtype: torch.dtype
) -> str | None:
    """A sentence if numbers of this precision are coarser than the noise, as those of a pressure
    near 101325 with noise of 0.002 are.
    """
    coarse = torch.finfo(dtype).eps * y.double().abs().amax(0)
    noise = torch.as_tensor(noise_std).to(coarse).broadcast_to(coarse.shape)
    bad = coarse > COARSEST * noise
    if not bool(bad.any()):
        return None
    place = tuple(bad.nonzero()[0].tolist())
    size, step, noisy = (float(part[place]) for part in (y.abs().amax(0), coarse, noise))
    return (
        f"{str(dtype).removeprefix('torch.')} tells y near {size:.6g} apart by {step:.2g} only, "
        f"and its noise is {noisy:.2g}: let simulate subtract a constant, or train with "
        "dtype=torch.float64"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitlessProblem(Problem):
    """Made by ``unitless``: x is counted from its mean, in units of its spread.

    Attributes:
        original: the same problem in its own units.
        shift: mean of each component of x there.
        scale: standard deviation of each component, of a field of each channel, by which error bars
            are multiplied.
    """

    differentiable: bool = True
    original: Problem
    shift: Tensor
    scale: Tensor

    def physical(self, x: Float[Tensor, "*B *x"]) -> Float[Tensor, "*B *x"]:
        """Latents in the units of the original."""
        return self.shift.to(x) + self.scale.to(x) * x

    def reduced(self, x: Float[Tensor, "*B *x"]) -> Float[Tensor, "*B *x"]:
        """Latents of the original without their units."""
        return ((x.double() - self.shift.to(x.device)) / self.scale.to(x.device)).to(x)

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of one latent."""
        return self.original.x_shape

    @property
    def y_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return self.original.y_shape

    @property
    def carries_noise(self) -> bool:
        """As the original."""
        return self.original.carries_noise

    @property
    def has_simulator(self) -> bool:
        """As the original."""
        return self.original.has_simulator

    def noise_factor(self, family: str) -> float:
        """As the original."""
        return self.original.noise_factor(family)

    def add_noise(
        self,
        y: Float[Tensor, "B *y"],
        *,
        generator: Generator | None = None,
        family: str = "prior",
        ratio: Float[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B *y"]:
        """As the original."""
        return self.original.add_noise(y, generator=generator, family=family, ratio=ratio)

    def dataset(self, seed: int, *, dtype: torch.dtype = torch.float32) -> Dataset:
        """The rows of the original, x without units."""
        if self.has_simulator:
            return super().dataset(seed, dtype=dtype)
        return _UnitlessRows(self, check_seed(seed), dtype)

    def _simulate(self, x: Tensor) -> Tensor:
        return self.original.simulate(self.physical(x))

    def _sample(self, count: int, generator: Generator, family: str) -> Tensor:
        # In double precision: beside a large mean the spread would be lost.
        own = self.original.sample(count, generator=generator, family=family, dtype=torch.float64)
        return self.reduced(own)

    def _prior_samples(self) -> Tensor:
        return self.reduced(self.original._prior_samples())


@dataclass(frozen=True, eq=False, repr=False)
class _UnitlessRows(Dataset):
    """Of data without a simulator."""

    def _make(self, split: str, family: str, count: int, *, noisy: bool) -> Split:
        problem = cast(UnitlessProblem, self.problem)
        rows = problem.original.dataset(self.seed, dtype=torch.float64)
        made = rows._make(split, family, count, noisy=noisy)
        return Split(problem.reduced(made.x).to(self.dtype), made.y.to(self.dtype))


def unitless(problem: Problem) -> UnitlessProblem:
    """The same problem with x counted from its mean in units of its spread, component by component
    or, of a field, channel by channel.

    For parameters of different units in one vector, or fields of different units side by side::

        problem = dc.problems.unitless(problem)
        pair = dc.train(problem)
        solution = dc.solve(pair, y, forward=problem)
        x, std = problem.physical(solution.x), problem.scale * solution.std

    Args:
        problem: whose own draws, or rows if it was made from data, tell mean and spread.
    """
    if not isinstance(problem, Problem):
        raise ConfigError(f"unitless takes a problem; got {type(problem).__name__}")
    x = problem._prior_samples()
    scale, shift = _spread(x), x.mean(0)
    scale = torch.where(scale > 0, scale, 1.0)
    low, high = (torch.as_tensor(side).to(x).broadcast_to(shift.shape) for side in problem.bounds)
    kept = {f.name: getattr(problem, f.name) for f in fields(Problem) if f.name != "bounds"}
    return UnitlessProblem(
        **kept,
        bounds=((low - shift) / scale, (high - shift) / scale),
        original=problem.unchecked(),
        shift=shift,
        scale=scale,
    )
