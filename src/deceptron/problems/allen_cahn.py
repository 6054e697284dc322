"""Phase separation: recover an initial phase field from the sharper one it relaxed into."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from deceptron.core.box import Bounds
from deceptron.core.checks import check_count, check_range
from deceptron.core.constants import constant
from deceptron.problems.base import Family, SampledProblem
from deceptron.problems.fields import CPU, discs, normal, present, uniform
from deceptron.problems.grids import periodic_points, time_steps, wavenumbers
from deceptron.problems.linear import linear
from deceptron.problems.time_loops import run


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


@constant
def _damping(
    n: int, epsilon: float, dt: float, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "n half"]:
    """What an implicit step of diffusion leaves of each mode."""
    k1, k2 = wavenumbers(n, dtype, device)
    return 1 / (1 + dt * (2 * math.pi * epsilon) ** 2 * (k1**2 + k2**2))


@dataclass(frozen=True)
class _PhaseSteps:
    """u <- D (u + dt (u - u^3)) so many times, D = 1 / (1 - dt eps^2 Laplacian)."""

    grid: int
    epsilon: float
    dt: float
    steps: int

    def plain(self, x: Tensor) -> Tensor:
        """The field after all steps."""
        return self._run(x, None)

    def linearised(self, x: Tensor) -> tuple[Tensor, _PhaseProducts]:
        """The same, and products at the path of x."""
        path: list[Tensor] = []
        return self._run(x, path), _PhaseProducts(self, path)

    def diffuse(self, u: Tensor) -> Tensor:
        """D u; D is its own transpose."""
        damping = _damping(self.grid, self.epsilon, self.dt, u.dtype, u.device)
        return torch.fft.irfft2(torch.fft.rfft2(u) * damping, s=(self.grid, self.grid))

    def _run(self, u: Tensor, path: list[Tensor] | None) -> Tensor:
        for _ in range(self.steps):
            if path is not None:
                path.append(u)
            u = linear(self.diffuse, torch.add(u, u - u**3, alpha=self.dt))
        return u


@dataclass(frozen=True)
class _PhaseProducts:
    """Products with the Jacobian at a path: each step is D S with S = 1 + dt (1 - 3 u^2)."""

    loop: _PhaseSteps
    path: list[Tensor]

    def push(self, v: Tensor) -> Tensor:
        """J v."""
        for u in self.path:
            v = self.loop.diffuse(self._slope(u).mul_(v))
        return v

    def pull(self, w: Tensor) -> Tensor:
        """J' w."""
        for u in reversed(self.path):
            w = self._slope(u).mul_(self.loop.diffuse(w))
        return w

    def _slope(self, u: Tensor) -> Tensor:
        return u.square().mul_(-3 * self.loop.dt).add_(1 + self.loop.dt)


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
            check_range(name, getattr(self, name), low=0.0, open_low=True)
        self._steps()

    def evolve(self, u: Float[Tensor, "B *x"], steps: int) -> Float[Tensor, "B *x"]:
        """``steps`` time steps, without the final clip."""
        return run(_PhaseSteps(self.grid, self.epsilon, self._steps()[1], steps), u)

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
