"""Phase separation: recover an initial phase field from the sharper one it relaxed into."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from deceptron.core.box import Bounds
from deceptron.core.checks import check_count, check_range
from deceptron.problems.base import Family, SampledProblem
from deceptron.problems.fields import CPU, discs, normal, present, uniform
from deceptron.problems.grids import periodic_points, time_steps, wavenumbers
from deceptron.problems.linear import linear


@dataclass(frozen=True, kw_only=True)
class DiscFamily(Family):
    """Discs of +1 in a background of -1, plus independent noise per pixel, clipped."""

    discs: tuple[int, int] = (2, 5)
    centre: tuple[float, float] = (0.15, 0.85)
    radius: tuple[float, float] = (0.05, 0.16)
    pixel_noise: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        fewest, most = self.discs
        check_count("discs[0]", fewest, low=0)
        check_count("discs[1]", most, low=max(1, fewest))


@dataclass(frozen=True, kw_only=True)
class AllenCahn2D(SampledProblem[DiscFamily]):
    """u_t = eps^2 Laplacian(u) + u - u^3 on the periodic unit square, observed at T = 0.12.

    One step is u <- F^-1[ F(u + dt (u - u^3)) / (1 + dt eps^2 |k|^2) ]: reaction explicit,
    diffusion implicit, first order in time. The result is clipped to [-1, 1].

    Behaviour: the diffusion length sqrt(2 eps^2 T) = 0.02 is under a pixel, so the fields keep
    their shape while their pixel noise is smoothed; +1 and -1 are stable, 0 is not.

    Arguments: ``grid`` points per axis, ``epsilon`` (width of an interface), ``time``, ``dt``,
    ``noise_std``, split sizes, and three ``DiscFamily``: ``latents`` (2 to 5 discs), ``shifted``
    (6 to 9 smaller discs, centres anywhere) and ``extreme`` (10 to 14 discs, pixel noise 0.15,
    observation noise x3).

    Pitfalls: clipping has derivative zero where it acts; noisy observations are clipped too, so
    their noise is one-sided near +1 and -1. dt above 1/2 lets the explicit reaction overshoot
    [-1, 1] and is refused.

    Good values: epsilon at least 1 / grid to resolve an interface; dt up to 0.02.
    """

    name: str = "allen-cahn-2d"
    equation: str = field(
        default="u_t = ε² Δu + u - u³ on the torus; y = u(T), clipped", repr=False
    )
    paper: str = field(default="Allen-Cahn-2D: all numbers published", repr=False)
    noise_std: float | Tensor = 0.002
    bounds: Bounds = (-1.0, 1.0)
    train_count: int = 2000
    val_count: int = 240
    test_count: int = 80
    grid: int = 32
    epsilon: float = 0.04
    time: float = 0.12
    dt: float = 0.002
    latents: DiscFamily = DiscFamily()
    shifted: DiscFamily = DiscFamily(discs=(6, 9), centre=(0.0, 1.0), radius=(0.03, 0.12))
    extreme: DiscFamily = DiscFamily(
        discs=(10, 14),
        centre=(0.0, 1.0),
        radius=(0.03, 0.10),
        pixel_noise=0.15,
        noise_factor=3.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("grid", self.grid, low=4)
        for name in ("epsilon", "time", "dt"):
            check_range(name, getattr(self, name), low=0.0, open_low=True, high=math.inf)
        self._steps()

    @property
    def x_shape(self) -> tuple[int, ...]:
        """One channel on the grid."""
        return (1, self.grid, self.grid)

    @property
    def y_shape(self) -> tuple[int, ...]:
        """The same grid."""
        return self.x_shape

    def energy(self, u: Float[Tensor, "B *x"]) -> Float[Tensor, " B"]:
        """eps^2/2 |grad u|^2 + (1 - u^2)^2 / 4, integrated; it falls along solutions."""
        k1, k2 = wavenumbers(self.grid, u.dtype, u.device)
        modes = torch.fft.rfft2(u)
        slopes = [
            torch.fft.irfft2(2j * math.pi * k * modes, s=(self.grid, self.grid)) for k in (k1, k2)
        ]
        gradient = sum(slope.square() for slope in slopes)
        density = 0.5 * self.epsilon**2 * gradient + 0.25 * (1 - u**2) ** 2
        return density.flatten(1).mean(1)

    def evolve(self, u: Float[Tensor, "B *x"], steps: int) -> Float[Tensor, "B *x"]:
        """``steps`` time steps, without the final clip."""
        _, dt = self._steps()
        k1, k2 = wavenumbers(self.grid, u.dtype, u.device)
        damping = 1 / (1 + dt * (2 * math.pi * self.epsilon) ** 2 * (k1**2 + k2**2))

        def diffuse(field: Tensor) -> Tensor:
            return torch.fft.irfft2(torch.fft.rfft2(field) * damping, s=(self.grid, self.grid))

        for _ in range(steps):
            u = linear(diffuse, torch.add(u, u - u**3, alpha=dt))
        return u

    def _simulate(self, x: Tensor) -> Tensor:
        return self.evolve(x, self._steps()[0]).clamp(-1, 1)

    def _sensor(self, y: Tensor) -> Tensor:
        return y.clamp(-1, 1)

    def _steps(self) -> tuple[int, float]:
        # u + dt (u - u^3) maps [-1, 1] into itself exactly while 1 - 2 dt >= 0.
        return time_steps(self.time, self.dt, 0.5, "the explicit reaction stays in [-1, 1]")

    def _draw(self, generator: Generator, family: DiscFamily) -> Tensor:
        fewest, most = family.discs
        inside = discs(
            periodic_points(self.grid, torch.float64, CPU),
            centres=uniform(generator, *family.centre, most, 2),
            radii=uniform(generator, *family.radius, most),
            present=present(generator, fewest, most),
        )
        pixels = family.pixel_noise * normal(generator, self.grid, self.grid)
        return (2 * inside - 1 + pixels).clamp(-1, 1).unsqueeze(1)
