"""Fields on one grid and on another: interpolation along each axis that knows where the points lie
and what the field does at the walls.

A coarse field becomes a fine one by evaluating the waves (or polynomials) through its points; a
fine one becomes the coarse field that fits it best in that way. So a field that the coarse grid can
carry survives both, and noise is averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import ConfigError
from deceptron.core.bases import on_axis
from deceptron.core.checks import check_choice
from deceptron.core.constants import constant

# Where n points of [0, 1] lie, and what a field on them is taken to be.
LAYOUTS = {
    "periodic": "i / n, periodic: trigonometric",
    "cells": "midpoints of cells, flat at the walls: cosines",
    "zero-cells": "midpoints of cells, zero at the walls: sines",
    "points": "between the ends, which are left out: polynomials through six points",
    "zero-points": "between the ends, where the field is zero: sines",
    "nodes": "both ends included: polynomials through six points",
}
# Latents and observations of the library's problems.
KNOWN: dict[str, tuple[str, str]] = {
    "heat-1d": ("points", "zero-points"),
    "heat-2d": ("points", "zero-points"),
    "heat-3d": ("points", "zero-points"),
    "darcy-2d": ("cells", "zero-cells"),
    "advection-diffusion-2d": ("periodic", "periodic"),
    "allen-cahn-2d": ("periodic", "periodic"),
    "navier-stokes-2d": ("periodic", "periodic"),
}
# The layout that waves of a fitted basis suggest.
OF_WAVES = {"fourier": "periodic", "cosine": "cells", "sine": "zero-points"}
_ORDER = 6


def resample(
    field: Float[Tensor, "B ..."], layout: str, grid: Sequence[int]
) -> Float[Tensor, "B ..."]:
    """The last axes of rows brought to other numbers of points."""
    for axis, length in enumerate(grid, start=field.ndim - len(grid)):
        if field.shape[axis] != length:
            matrix = between(layout, field.shape[axis], length).to(field)
            field = (field.movedim(axis, -1) @ matrix.T).movedim(-1, axis)
    return field


@constant
def between(layout: str, start: int, end: int) -> Float[Tensor, "end start"]:
    """The matrix along one axis."""
    check_choice("layout", layout, tuple(LAYOUTS))
    if start > end:
        return torch.linalg.pinv(between(layout, end, start))
    if layout in ("points", "nodes"):
        return _polynomials(_places(layout, start), _places(layout, end))
    here, there = (_waves(layout, start, _places(layout, n)) for n in (start, end))
    return torch.linalg.solve(here, there, left=False)


def noise_gain(layout: str, start: Sequence[int], end: Sequence[int]) -> float:
    """RMS of resampled white noise of unit size."""
    pairs = zip(start, end, strict=True)
    return math.prod(
        1.0 if a == b else float(between(layout, a, b).norm()) / math.sqrt(b) for a, b in pairs
    )


def stretch(values: Tensor, shape: Sequence[int]) -> Tensor:
    """Numbers that stand beside a field, such as its scale or its bounds, on another grid.

    Piecewise linear: what is positive stays so. Axes of length one stay as they are.
    """
    lead = len(shape) - values.ndim
    for axis in range(values.ndim):
        start, end = values.shape[axis], shape[axis + lead]
        if start not in (1, end):
            places = torch.linspace(0, start - 1, end, dtype=torch.float64, device=values.device)
            left = places.floor().long().clamp_max(start - 2)
            share = on_axis((places - left).to(values), axis, values.ndim)
            low, high = (values.index_select(axis, left + k) for k in (0, 1))
            values = low * (1 - share) + high * share
    return values


def grid_axes(shape: tuple[int, ...]) -> int:
    """A vector has one; of a field the first axis holds channels."""
    return max(1, len(shape) - 1)


def regridded(shape: tuple[int, ...], grid: int | Sequence[int]) -> tuple[int, ...]:
    """The shape on another grid, stated as one number for all axes or one for each."""
    axes = grid_axes(shape)
    sizes = tuple(grid) if isinstance(grid, (Sequence, np.ndarray)) else (grid,) * axes
    whole = all(isinstance(s, Integral) and not isinstance(s, bool) and s >= 2 for s in sizes)
    if len(sizes) != axes or not whole:
        raise ConfigError(
            f"at_grid(grid=...) must be a number of points >= 2, or one for each of the {axes} "
            f"axes of x, shape {shape}; got {grid!r}"
        )
    return (*shape[: len(shape) - axes], *map(int, sizes))


def _places(layout: str, n: int) -> Float[Tensor, " n"]:
    i = torch.arange(n, dtype=torch.float64)
    if layout == "periodic":
        return i / n
    if layout.endswith("cells"):
        return (i + 0.5) / n
    return i / (n - 1) if layout == "nodes" else (i + 1) / (n + 1)


def _waves(layout: str, n: int, places: Float[Tensor, " p"]) -> Float[Tensor, "p n"]:
    """The n waves that n points carry, at any places."""
    k = torch.arange(n, dtype=torch.float64)
    if layout == "cells":
        return torch.cos(math.pi * places[:, None] * k)
    if layout != "periodic":
        return torch.sin(math.pi * places[:, None] * (k + 1))
    # 1, cos, sin, cos, sin, ...; the Nyquist wave of an even grid has a cosine only.
    angle = 2 * math.pi * places[:, None] * ((k + 1) // 2)
    return torch.where(k % 2 == 1, angle.cos(), torch.where(k == 0, 1.0, angle.sin()))


def _polynomials(start: Float[Tensor, " n"], end: Float[Tensor, " p"]) -> Float[Tensor, "p n"]:
    """Lagrange interpolation through the nearest points."""
    order = min(_ORDER, len(start))
    matrix = torch.zeros(len(end), len(start), dtype=torch.float64)
    first = torch.searchsorted(start, end) - order // 2
    for row, place in enumerate(first.clamp(0, len(start) - order).tolist()):
        near = start[place : place + order]
        for j in range(order):
            others = torch.cat([near[:j], near[j + 1 :]])
            matrix[row, place + j] = ((end[row] - others) / (near[j] - others)).prod()
    return matrix
