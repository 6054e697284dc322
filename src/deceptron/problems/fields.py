"""The pieces random latents are made of, drawn so that a row never depends on later rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from deceptron.core.constants import constant
from deceptron.problems.grids import cell_centres, wavenumbers

# Rows are drawn and computed in blocks of this fixed size: a matrix product may round one row
# differently when it has other company, and torch.randn fills its tail differently.
BLOCK = 64
CPU = torch.device("cpu")


def draw_in_blocks(
    count: int, generator: Generator, draw: Callable[[Generator], Tensor]
) -> Float[Tensor, "count ..."]:
    """``count`` rows of ``draw``, which makes ``BLOCK`` rows from a generator of its own."""
    blocks = -(-count // BLOCK)
    seeds = torch.randint(2**62, (blocks,), generator=generator).tolist()
    drawn = [draw(Generator().manual_seed(seed)) for seed in seeds]
    return torch.cat(drawn)[:count].contiguous()


def normal(generator: Generator, *shape: int) -> Float[Tensor, "BLOCK ..."]:
    """A block of standard normal numbers."""
    return torch.randn(BLOCK, *shape, dtype=torch.float64, generator=generator)


def uniform(
    generator: Generator, low: float, high: float, *shape: int
) -> Float[Tensor, "BLOCK ..."]:
    """A block of numbers from U(low, high)."""
    unit = torch.rand(BLOCK, *shape, dtype=torch.float64, generator=generator)
    return low + (high - low) * unit


def present(generator: Generator, fewest: int, most: int) -> Float[Tensor, "BLOCK most"]:
    """Indicators of ``most`` objects; between ``fewest`` and ``most`` of them are one."""
    count = torch.randint(fewest, most + 1, (BLOCK, 1), generator=generator)
    return (torch.arange(most) < count).to(torch.float64)


def min_max(field: Float[Tensor, "R ..."]) -> Float[Tensor, "R ..."]:
    """Each row stretched to fill [0, 1]."""
    axes = tuple(range(1, field.ndim))
    low, high = field.amin(axes, keepdim=True), field.amax(axes, keepdim=True)
    return (field - low) / (high - low)


def gaussian_bumps(
    points: Float[Tensor, " n"],
    *,
    centres: Float[Tensor, "R K d"],
    widths: Float[Tensor, "R K d"],
    amplitudes: Float[Tensor, "R K"],
    periodic: bool = False,
) -> Float[Tensor, "R ..."]:
    """Sum over K of amplitude * exp(-sum_axis (x - centre)^2 / (2 width^2)), on a d-fold grid."""
    offset = points - centres[..., None]
    if periodic:
        offset = offset - offset.round()
    factors = torch.exp(-0.5 * (offset / widths[..., None]) ** 2).unbind(2)
    axes = "ijl"[: len(factors)]
    terms = ",".join(f"rk{axis}" for axis in axes)
    return torch.einsum(f"rk,{terms}->r{axes}", amplitudes, *factors)


def discs(
    points: Float[Tensor, " n"],
    *,
    centres: Float[Tensor, "R K 2"],
    radii: Float[Tensor, "R K"],
    present: Float[Tensor, "R K"],
) -> Float[Tensor, "R n n"]:
    """One inside the union of the discs that are present, zero outside."""
    squares = (points - centres[..., None]) ** 2
    distance = squares[:, :, 0, :, None] + squares[:, :, 1, None, :]
    inside = distance <= (radii**2)[..., None, None]
    return (inside & (present > 0)[..., None, None]).any(1).to(points.dtype)


def periodic_field(
    white: Float[Tensor, "R n n"], amplitude: Float[Tensor, "n half"]
) -> Float[Tensor, "R n n"]:
    """Stationary Gaussian field on the torus: white noise filtered by ``amplitude``."""
    return torch.fft.irfft2(torch.fft.rfft2(white) * amplitude, s=white.shape[-2:])


@constant
def band_amplitude(n: int, cutoff: float) -> Float[Tensor, "n half"]:
    """Filter exp(-(|k| / cutoff)^4 / 2) without k = 0, scaled to unit variance."""
    first, second = wavenumbers(n, torch.float64, CPU)
    radius = torch.hypot(first.expand(n, second.shape[1]), second.expand(n, second.shape[1]))
    amplitude = torch.exp(-0.5 * (radius / cutoff) ** 4.0)
    amplitude[0, 0] = 0
    return amplitude / torch.sqrt(spectrum_variance(amplitude**2))


def spectrum_variance(spectrum: Float[Tensor, "n half"]) -> Tensor:
    """Variance per point of a field whose rfft2 modes have this power (white noise has 1)."""
    n, half = spectrum.shape
    # Columns strictly between 0 and the Nyquist frequency stand for two modes each.
    twice = torch.ones(half, dtype=spectrum.dtype, device=spectrum.device)
    twice[1 : (n + 1) // 2] = 2
    return (spectrum * twice).sum() / n**2


@constant
def _correlation_root(n: int, length: float) -> Float[Tensor, "n n"]:
    x = cell_centres(n, torch.float64, CPU)
    correlation = torch.exp(-(((x[:, None] - x[None, :]) / length) ** 2))
    values, vectors = torch.linalg.eigh(correlation)
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.T


def smooth_field(white: Float[Tensor, "R n n"], length: float) -> Float[Tensor, "R n n"]:
    """Gaussian field on the unit square, correlation exp(-(r / length)^2), variance one."""
    root = _correlation_root(white.shape[-1], length)
    return root @ white @ root
