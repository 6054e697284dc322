"""A problem without the units of its latents; numbers that a precision cannot tell apart."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from deceptron.core.units import Units
from deceptron.problems.base import Problem
from deceptron.problems.dataset import Dataset, Split

# Steps of a precision, in units of the noise, that go unnoticed.
COARSEST = 0.5


def unresolved(
    y: Float[Tensor, "N *y"], noise_std: float | Tensor, dtype: torch.dtype
) -> str | None:
    """A sentence if numbers of this precision are coarser than the noise, if there is any, as those
    of a pressure near 101325 with noise of 0.002 are.
    """
    coarse = torch.finfo(dtype).eps * y.double().abs().amax(0)
    noise = torch.as_tensor(noise_std).to(coarse).broadcast_to(coarse.shape)
    bad = (coarse > COARSEST * noise) & (noise > 0)
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
    """The same problem with x counted in ``units``: what networks are trained on."""

    differentiable: bool = True
    original: Problem
    units: Units

    @staticmethod
    def of(problem: Problem, units: Units) -> UnitlessProblem:
        """This problem, its x in these units."""
        kept = {f.name: getattr(problem, f.name) for f in fields(Problem) if f.name != "bounds"}
        bounds = units.reduced_bounds(problem.bounds)
        return UnitlessProblem(**kept, bounds=bounds, original=problem.unchecked(), units=units)

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

    def _add_noise(
        self, y: Tensor, generator: Generator | None, family: str, ratio: Tensor | None
    ) -> Tensor:
        return self.original._add_noise(y, generator, family, ratio)

    def _split(self, data: Dataset, name: str, family: str, count: int, noisy: bool) -> Split:
        if self.has_simulator:
            return super()._split(data, name, family, count, noisy)
        rows = replace(self.original.dataset(data.seed, dtype=torch.float64), told=data.told)
        own = self.original._split(rows, name, family, count, noisy)
        return Split(self.units.reduced(own.x).to(data.dtype), own.y.to(data.dtype))

    def _simulate(self, x: Tensor) -> Tensor:
        return self.original.simulate(self.units.physical(x, self.original.bounds))

    def _sample(self, count: int, generator: Generator, family: str) -> Tensor:
        # In double precision: beside a large mean the spread would be lost.
        own = self.original.sample(count, generator=generator, family=family, dtype=torch.float64)
        return self.units.reduced(own)

    def _prior_samples(self) -> Tensor:
        return self.units.reduced(self.original._prior_samples())
