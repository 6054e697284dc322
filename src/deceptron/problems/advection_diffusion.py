"""A tracer carried and spread by a steady wind, seen by a blurred sensor that saturates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from deceptron.core.checks import check_count, check_range
from deceptron.core.errors import ConfigError
from deceptron.problems.base import Family, SampledProblem
from deceptron.problems.fields import (
    CPU,
    band_amplitude,
    gaussian_bumps,
    min_max,
    normal,
    periodic_field,
    present,
    uniform,
)
from deceptron.problems.grids import periodic_points, wavenumbers
from deceptron.problems.prior import Prior, SpectralPrior


@dataclass(frozen=True, kw_only=True)
class BlobFamily(Family):
    """Gaussian blobs anywhere on the torus over a random field of wavenumbers up to ``modes``."""

    blobs: tuple[int, int] = (3, 6)
    width: tuple[float, float] = (0.04, 0.10)
    amplitude: tuple[float, float] = (0.5, 1.0)
    modes: float = 3.0
    field_std: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        fewest, most = self.blobs
        check_count("blobs[0]", fewest, low=0)
        check_count("blobs[1]", most, low=max(1, fewest))
        check_range("modes", self.modes, low=0.0, open_low=True)


@dataclass(frozen=True, kw_only=True)
class AdvectionDiffusion2D(SampledProblem[BlobFamily]):
    """c_t + v . grad c = kappa Laplacian(c), periodic; y = tanh(1.5 z) / 1.5, z = blurred c(0.3).

    Exact in Fourier space: mode k (2 pi times integers) is multiplied by
    exp(-i k.v T - (kappa T + width^2 / 2) |k|^2), which moves, spreads and blurs in one factor.

    Behaviour: a blob moves by v T = (0.3, 0.15); wavenumber 5 keeps a fifth of its amplitude,
    wavenumber 10 a thousandth. The sensor's slope falls from 1 at z = 0 to 0.6 at
    z = 0.5 and 0.2 at z = 1.

    Arguments: ``grid`` points per axis, ``velocity``, ``diffusivity``, ``time``, ``blur_width``,
    ``saturation``, ``noise_std``, split sizes, and three ``BlobFamily``: ``latents`` (3 to 6 blobs
    of width 0.04 to 0.10 over a field of wavenumbers up to 3, min-max to [0, 1]), ``shifted`` (7
    to 10 narrower blobs, wavenumbers up to 5) and ``extreme`` (12 to 16 blobs of width 0.02 to
    0.05, wavenumbers up to 8, noise x3).

    Pitfalls: the Nyquist mode of an even grid has no real translate; it is only spread.

    Good values: diffusivity * time up to 0.005; blur_width below 0.05.
    """

    name: str = "advection-diffusion-2d"
    equation: str = field(
        default="c_t + v·∇c = κ Δc on the torus; y = tanh(1.5 z)/1.5, z = blurred c(T)", repr=False
    )
    paper: str = field(
        default="Advection-Diffusion-2D: described in words, numbers ours", repr=False
    )
    noise_std: float | Tensor = 0.01
    grid: int = 32
    velocity: tuple[float, float] = (1.0, 0.5)
    diffusivity: float = 5e-3
    time: float = 0.3
    blur_width: float = 0.02
    saturation: float = 1.5
    latents: BlobFamily = BlobFamily()
    shifted: BlobFamily = BlobFamily(blobs=(7, 10), width=(0.03, 0.07), modes=5.0)
    extreme: BlobFamily = BlobFamily(
        blobs=(12, 16), width=(0.02, 0.05), modes=8.0, noise_factor=3.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("grid", self.grid, low=4)
        if self.grid < 2 * self.latents.modes:
            raise ConfigError(
                f"grid must be at least {math.ceil(2 * self.latents.modes)}, two points per wave "
                f"of the prior's random field; got {self.grid}"
            )
        for name in ("diffusivity", "time", "blur_width"):
            check_range(name, getattr(self, name), low=0.0)
        check_range("saturation", self.saturation, low=0.0, open_low=True)
        if len(self.velocity) != 2 or not all(math.isfinite(v) for v in self.velocity):
            raise ConfigError(f"velocity must be two finite numbers; got {self.velocity!r}")

    def propagate(self, c: Tensor) -> Tensor:
        """The linear part: transport, diffusion and the sensor's blur."""
        n = self.grid
        k1, k2 = wavenumbers(n, c.dtype, c.device)
        v1, v2 = self.velocity
        spread = self.diffusivity * self.time + 0.5 * self.blur_width**2
        damping = torch.exp(-spread * (2 * math.pi) ** 2 * (k1**2 + k2**2))
        # Half of the Nyquist mode would move one way and half the other: it keeps its phase.
        phase1 = torch.where(2 * k1.abs() == n, 0.0, k1 * v1)
        phase2 = torch.where(2 * k2.abs() == n, 0.0, k2 * v2)
        angle = -2 * math.pi * self.time * (phase1 + phase2)
        return torch.fft.irfft2(torch.fft.rfft2(c) * torch.polar(damping, angle), s=(n, n))

    def _simulate(self, x: Tensor) -> Tensor:
        return torch.tanh(self.saturation * self.propagate(x)) / self.saturation

    def _draw(self, generator: Generator, family: BlobFamily) -> Tensor:
        fewest, most = family.blobs
        amplitudes = uniform(generator, *family.amplitude, most)
        blobs = gaussian_bumps(
            periodic_points(self.grid, torch.float64, CPU),
            centres=uniform(generator, 0.0, 1.0, most, 2),
            widths=uniform(generator, *family.width, most, 1).expand(-1, -1, 2),
            amplitudes=amplitudes * present(generator, fewest, most),
            periodic=True,
        )
        white = normal(generator, self.grid, self.grid)
        waves = periodic_field(white, band_amplitude(self.grid, family.modes))
        return min_max(blobs + family.field_std * waves).unsqueeze(1)

    def _prior(self) -> Prior:
        # Centres are uniform on the torus and min-max commutes with translation: stationary.
        return SpectralPrior.estimate(self._prior_samples())
