"""Two-dimensional flow: recover a vorticity field from two later snapshots of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Generator, Tensor

from deceptron.core.box import Bounds
from deceptron.core.checks import check_count, check_range
from deceptron.core.errors import ConfigError
from deceptron.problems.base import Family, SampledProblem
from deceptron.problems.fields import CPU, band_amplitude, normal, periodic_field
from deceptron.problems.grids import time_steps
from deceptron.problems.prior import Prior, SpectralPrior
from deceptron.problems.time_loops import run
from deceptron.problems.vorticity import Vorticity, operators

# The classical Runge-Kutta method is stable on the imaginary axis up to 2.828.
_IMAGINARY_LIMIT = 2.8


@dataclass(frozen=True, kw_only=True)
class BandFamily(Family):
    """Gaussian field with spectrum exp(-(|k| / cutoff)^4), of this standard deviation, clipped."""

    cutoff: float = 4.0
    std: float = 0.35

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("cutoff", self.cutoff, low=0.0, open_low=True)
        check_range("std", self.std, low=0.0, open_low=True)


@lru_cache(maxsize=32)
def speed_bound(n: int) -> float:
    """Largest |u1| + |u2| that any vorticity with |omega| <= 1 can cause on this grid.

    A velocity is a convolution of omega with a fixed kernel, so the sum of the kernel's absolute
    values bounds it; |u1| + |u2| is the larger of |u1 + u2| and |u1 - u2|.
    """
    (u1, u2), _, _ = operators(n, torch.float64, CPU)
    kernels = torch.fft.irfft2(torch.stack([u1 + u2, u1 - u2]), s=(n, n))
    return float(kernels.abs().sum((-2, -1)).max())


@dataclass(frozen=True, kw_only=True)
class NavierStokes2D(SampledProblem[BandFamily]):
    """w_t + u . grad w = nu Laplacian(w), div u = 0, periodic; y = (w(0.5), w(1.0)) / 4, w(0) = 4x.

    Pseudo-spectral with the 2/3 rule; the viscous factor is exact (integrating factor) and the
    transport takes classical fourth-order Runge-Kutta steps. Modes above 2/3 of the grid's band
    are kept but only diffuse.

    Behaviour: an eddy of vorticity 4 x 0.35 turns by about a third of a radian per snapshot, and
    filaments finer than the grid are wiped out by viscosity. The mean vorticity does not change.

    Arguments: ``grid`` points per axis, ``viscosity``, ``amplitude`` (vorticity per unit of x),
    ``times`` of the snapshots, ``dt`` (None takes the longest step that is stable for every
    latent in the box, at most 0.05), ``noise_std``, split sizes, and three ``BandFamily``:
    ``latents`` (energy at wavenumbers up to 4, standard deviation 0.35, clipped to [-1, 1]),
    ``shifted`` (wavenumbers up to 7) and ``extreme`` (standard deviation 0.6, wavenumbers up to 5,
    noise x3).

    Pitfalls: the cost of a derivative grows with the number of steps, and a graph keeps fields of
    every stage in memory (1 MB a row at grid 32 in float32): split large batches.

    Good values: viscosity at least 0.064 / grid to resolve the filaments; amplitude up to 8.
    """

    name: str = "navier-stokes-2d"
    equation: str = field(
        default="ω_t + u·∇ω = ν Δω on the torus; y = (ω(0.5), ω(1))/4, ω(0) = 4x", repr=False
    )
    paper: str = field(default="Navier-Stokes-2D: described in words, numbers ours", repr=False)
    noise_std: float | Tensor = 0.01
    bounds: Bounds = (-1.0, 1.0)
    grid: int = 32
    viscosity: float = 2e-3
    amplitude: float = 4.0
    times: tuple[float, ...] = (0.5, 1.0)
    dt: float | None = None
    latents: BandFamily = BandFamily()
    shifted: BandFamily = BandFamily(cutoff=7.0)
    extreme: BandFamily = BandFamily(cutoff=5.0, std=0.6, noise_factor=3.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("grid", self.grid, low=8)
        # The 2/3 rule leaves wavenumbers below grid / 3 to the transport.
        if self.grid < 3 * self.latents.cutoff:
            raise ConfigError(
                f"grid must be at least {math.ceil(3 * self.latents.cutoff)}, three points per "
                f"wave of the prior (cutoff {self.latents.cutoff:g}); got {self.grid}"
            )
        check_range("viscosity", self.viscosity, low=0.0)
        check_range("amplitude", self.amplitude, low=0.0, open_low=True)
        if self.dt is not None:
            check_range("dt", self.dt, low=0.0, open_low=True)
        if not self.times or any(b <= a for a, b in pairwise((0.0, *self.times))):
            raise ConfigError(f"times must be positive and increasing; got {self.times!r}")
        self._schedule()

    @property
    def y_shape(self) -> tuple[int, ...]:
        """One channel per snapshot."""
        return (len(self.times), self.grid, self.grid)

    @property
    def longest_step(self) -> float:
        """The CFL limit for the whole box: dt * k_max * (|u1| + |u2|) <= 2.8."""
        largest = max(abs(float(torch.as_tensor(side).abs().max())) for side in self.bounds)
        speed = self.amplitude * largest * speed_bound(self.grid)
        k_max = 2 * math.pi * ((self.grid - 1) // 3)
        return _IMAGINARY_LIMIT / (k_max * speed)

    def _schedule(self) -> list[tuple[int, float]]:
        limit = self.longest_step
        dt = min(limit, 0.05) if self.dt is None else self.dt
        durations = (b - a for a, b in pairwise((0.0, *self.times)))
        why = f"the transport of the fastest flow in the box at grid {self.grid}"
        return [time_steps(duration, dt, limit, why) for duration in durations]

    def _simulate(self, x: Tensor) -> Tensor:
        flow = Vorticity(self.grid, self.viscosity, self.amplitude, tuple(self._schedule()))
        return run(flow, x)

    def _draw(self, generator: Generator, family: BandFamily) -> Tensor:
        white = normal(generator, self.grid, self.grid)
        waves = periodic_field(white, band_amplitude(self.grid, family.cutoff))
        return (family.std * waves).clamp(-1, 1).unsqueeze(1)

    def _prior(self) -> Prior:
        # The unclipped spectrum is known, but clipping gives the rough modes the little power
        # that decides how far a solver near the bounds may use them.
        return SpectralPrior.estimate(self._prior_samples())
