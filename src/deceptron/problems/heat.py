"""What the three heat problems share: the sine semigroup, the distorted sensor, the mode prior."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from deceptron.core.checks import check_count, check_range
from deceptron.core.constants import constant
from deceptron.core.errors import ConfigError
from deceptron.problems.base import Family, SampledProblem
from deceptron.problems.fields import CPU, gaussian_bumps, min_max, normal, uniform
from deceptron.problems.grids import (
    along_axes,
    interior_points,
    neighbour_sum,
    sine_basis,
)


@dataclass(frozen=True, kw_only=True)
class ModeFamily(Family):
    """Sine modes with coefficients N(0,1) / (i j k)^decay, plus Gaussian bumps.

    ``extra_first`` adds that much of a second normal number to the first mode's coefficient.
    """

    modes: int
    decay: float = 1.0
    extra_first: float = 0.0
    bumps: int = 0
    bump_centre: tuple[float, float] = (0.3, 0.7)
    bump_width: tuple[float, float] = (0.10, 0.14)
    bump_amplitude: tuple[float, float] = (0.02, 0.10)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("modes", self.modes)
        check_count("bumps", self.bumps, low=0)


@constant
def semigroup(
    n: int, decay_time: float, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "n n"]:
    """exp(decay_time d^2/dx^2) on the interior points: sine mode k decays by its exact factor."""
    basis = sine_basis(n, torch.float64, CPU)
    k = torch.arange(1, n + 1, dtype=torch.float64)
    factors = torch.exp(-decay_time * (math.pi * k) ** 2)
    return ((basis * factors) @ basis).to(dtype=dtype, device=device)


@dataclass(frozen=True, kw_only=True)
class Heat(SampledProblem[ModeFamily]):
    """u_t = diffusivity * Laplacian(u), u = 0 on the boundary, seen by a mixing, bent sensor.

    ``y = z + cubic * z^3 + sine * sin(frequency * z)`` with z a local mean of u(T).
    """

    dimension: int
    diffusivity: float
    time: float
    cubic: float
    sine: float
    frequency: float
    scaling: Literal["component", "channel"] = "component"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid < self.latents.modes:
            raise ConfigError(
                f"grid must be at least {self.latents.modes}, the sine modes per axis of the "
                f"prior; got {self.grid}"
            )
        check_range("diffusivity", self.diffusivity, low=0.0, open_low=True)
        check_range("time", self.time, low=0.0)

    @property
    def x_shape(self) -> tuple[int, ...]:
        """A vector in one dimension, a field with one channel otherwise."""
        cube = (self.grid,) * self.dimension
        return cube if self.dimension == 1 else (1, *cube)

    def evolve(self, x: Float[Tensor, "B *x"]) -> Float[Tensor, "B *x"]:
        """The temperature at the final time, before the sensor."""
        decay_time = self.diffusivity * self.time
        matrix = semigroup(self.grid, decay_time, x.dtype, x.device)
        return along_axes(matrix, x, self.dimension)

    def _simulate(self, x: Tensor) -> Tensor:
        z = self._mix(self.evolve(x))
        return z + self.cubic * z**3 + self.sine * torch.sin(self.frequency * z)

    @abstractmethod
    def _mix(self, u: Tensor) -> Tensor: ...

    def _draw(self, generator: Generator, family: ModeFamily) -> Tensor:
        axes = self.dimension
        # A coarse grid cannot be as rough as the shifted families ask for.
        modes = min(family.modes, self.grid)
        coefficients = normal(generator, *(modes,) * axes)
        coefficients.flatten(1)[:, 0] += family.extra_first * normal(generator)
        weights = torch.arange(1, modes + 1, dtype=torch.float64) ** -family.decay
        for axis in range(1, axes + 1):
            coefficients *= weights.reshape(-1, *(1,) * (axes - axis))
        basis = sine_basis(self.grid, torch.float64, CPU)[:, :modes]
        field = along_axes(basis, coefficients, axes)
        if family.bumps:
            field = field + gaussian_bumps(
                interior_points(self.grid, torch.float64, CPU),
                centres=uniform(generator, *family.bump_centre, family.bumps, axes),
                widths=uniform(generator, *family.bump_width, family.bumps, axes),
                amplitudes=uniform(generator, *family.bump_amplitude, family.bumps),
            )
        return min_max(field).reshape(-1, *self.x_shape)


@dataclass(frozen=True, kw_only=True)
class BlurredHeat(Heat):
    """``z = (1 - blur) u(T) + blur * stencil(u(T))``.

    The stencil holds ``blur_centre`` and 1 at the 2d neighbours, divided by their sum, with zeros
    outside the domain.
    """

    blur: float
    blur_centre: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("blur", self.blur, low=0.0, high=1.0)
        check_range("blur_centre", self.blur_centre, low=0.0, high=math.inf, open_high=True)

    def _mix(self, u: Tensor) -> Tensor:
        total = self.blur_centre + 2 * self.dimension
        stencil = (self.blur_centre * u + neighbour_sum(u, self.dimension)) / total
        return (1 - self.blur) * u + self.blur * stencil
