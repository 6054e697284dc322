"""The constants of the discretisations (points, sine bases, wavenumbers), one copy per dtype."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.constants import constant
from deceptron.core.errors import ConfigError

# Overflow of the quotient T / dt by round-off must not add a whole step.
_SLACK = 1e-9


@constant
def interior_points(n: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, " n"]:
    """``n`` equispaced points of (0, 1); the two ends, where the field vanishes, are dropped."""
    return torch.linspace(0, 1, n + 2, dtype=dtype, device=device)[1:-1]


@constant
def cell_centres(n: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, " n"]:
    """Midpoints of ``n`` cells of [0, 1]."""
    return (torch.arange(n, dtype=dtype, device=device) + 0.5) / n


@constant
def periodic_points(n: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, " n"]:
    """``0, 1/n, ...``: the period is 1, so the point 1 is the point 0."""
    return torch.arange(n, dtype=dtype, device=device) / n


@constant
def sine_basis(n: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "n n"]:
    """Orthonormal columns sin(pi k x) on the interior points (DST-I), k = 1..n."""
    k = torch.arange(1, n + 1, dtype=torch.float64)
    basis = math.sqrt(2 / (n + 1)) * torch.sin(math.pi * k[:, None] * k[None, :] / (n + 1))
    return basis.to(dtype=dtype, device=device)


@constant
def wavenumbers(
    n: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "n 1"], Float[Tensor, "1 half"]]:
    """Integer wavenumbers of ``rfft2`` on an n x n periodic grid, along rows and columns."""
    first = torch.fft.fftfreq(n, 1 / n, dtype=dtype, device=device)
    second = torch.fft.rfftfreq(n, 1 / n, dtype=dtype, device=device)
    return first[:, None], second[None, :]


def along_axes(
    matrix: Float[Tensor, "m n"], field: Float[Tensor, "... n"], axes: int
) -> Float[Tensor, "... m"]:
    """Apply one matrix along each of the last ``axes`` axes."""
    for _ in range(axes):
        # The axis just transformed goes first, so `axes` turns restore the order.
        field = (field @ matrix.mT).movedim(-1, -axes)
    return field


def neighbour_sum(field: Float[Tensor, "..."], axes: int) -> Float[Tensor, "..."]:
    """Sum of the 2 x ``axes`` nearest neighbours along the last axes, zero outside."""
    total = torch.zeros_like(field)
    for axis in range(-axes, 0):
        n = field.shape[axis]
        edge = torch.zeros_like(field.narrow(axis, 0, 1))
        total = (
            total
            + torch.cat([edge, field.narrow(axis, 0, n - 1)], dim=axis)
            + torch.cat([field.narrow(axis, 1, n - 1), edge], dim=axis)
        )
    return total


def time_steps(duration: float, longest: float, limit: float, why: str) -> tuple[int, float]:
    """How many equal steps no longer than ``longest`` fill ``duration``, and their length.

    ``limit`` is the longest stable step and ``why`` says in words where it comes from.
    """
    if longest > limit:
        raise ConfigError(f"dt must be at most {limit:.4g} ({why}); got {longest:g}")
    count = max(1, math.ceil(duration / longest - _SLACK))
    return count, duration / count
