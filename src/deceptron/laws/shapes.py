"""Which shapes and sizes the laws have: the only place that says how latents may differ.

About its start a row differs by a *correction*:

- on a grid of covariance ``(1 + k^2 / kappa^2)^-a`` over the wavenumbers k, from very smooth to
  nearly white, each channel in its own spread: a temperature beside a pressure has another unit;
- of a vector, powers p <= 1 of the family's own covariance, which flatten its spectrum: a
  correction may be rougher than the family, in the family's own coordinates.

About the family's mean a row is a member of the family, as it is or *roughened*: powers of its
covariance again, and larger ones.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.bases import FLOOR, Basis, DiagonalGaussian, GridBasis, principal
from deceptron.laws.law import Laws, Shape

# Half wavelengths across the grid at which a smooth shape bends, and how steeply it falls.
BENDS, STEEPNESSES = (4.0, 8.0, 16.0, 32.0), (2.0, 4.0)
POWERS = (1.0, 0.75, 0.5, 0.35, 0.25)
# Sizes of a correction: marks, and between two of them steps of a quarter. Coarser ones cost error
# where the right size lies between two, and make bars up to twice too wide.
SIZE_MARKS, STRIDE = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0), 4
# What directions are sought by before the score has spoken: rough and large.
FIRST_SIZE = 0.3
FIRST_SHAPES = ("smooth 16, 2", "C^0.35")
# Powers and sizes of the family.
FAMILY_POWERS = (1.0, 0.85, 0.7, 0.6, 0.5, 0.35, 0.25)
FAMILY_SIZES = (1.0, 1.25, 1.6, 2.0, 3.0, 5.0)
# Powers of a covariance: vectors of up to so many components, this many directions.
LARGEST_VECTOR, KEPT = 1024, 128


def corrections_of(rows: Float[Tensor, "N *x"]) -> Laws | None:
    """About each row's own start, by samples of the family; None where there are no coordinates for
    them, for vectors of too many components.
    """
    rows = rows.cpu()  # shapes of both kinds stand side by side, and waves are made there
    flat = rows.double().flatten(1)
    scale = float(flat.var(0).mean()) ** 0.5
    grid, shapes = GridBasis.fit(rows), []
    if (rows.ndim == 2 or grid is None) and flat.shape[1] <= LARGEST_VECTOR:
        eigen, variances = principal(flat, KEPT)
        shapes += powers(eigen, variances, POWERS)
    channels = torch.ones(flat.shape[1], dtype=torch.float64)
    if grid is not None:
        channels = _channels(rows, grid)
        shapes += smooth(grid, channels)
    if not shapes:
        return None
    sizes = [a * (b / a) ** (k / STRIDE) for a, b in pairwise(SIZE_MARKS) for k in range(STRIDE)]
    units = scale * channels.sqrt()
    names = [shape.name for shape in shapes]
    first = next(names.index(name) for name in FIRST_SHAPES if name in names), FIRST_SIZE
    return Laws(tuple(shapes), (*sizes, SIZE_MARKS[-1]), STRIDE, scale, units, first=first)


def roughened(family: DiagonalGaussian) -> Laws:
    """About the family's mean, as it is and rougher and larger."""
    basis, spectrum = family.basis, family.spectrum.double()
    scale = float(spectrum.mean()) ** 0.5
    return Laws(
        tuple(powers(basis, spectrum, FAMILY_POWERS)),
        FAMILY_SIZES,
        1,
        scale,
        torch.full_like(spectrum, scale),
        family.mean.double().flatten(),
    )


def powers(
    basis: Basis, variances: Float[Tensor, " n"], exponents: tuple[float, ...]
) -> list[Shape]:
    """Of a covariance, each brought to a mean variance of one."""
    return [Shape.of(f"C^{p:g}", basis, variances.double() ** p) for p in exponents]


def smooth(grid: GridBasis, channels: Float[Tensor, " n"]) -> list[Shape]:
    """Over the wavenumbers of a grid; ``channels`` are the variances that components go by."""
    return [
        Shape.of(
            f"smooth {bend:g}, {steepness:g}",
            grid,
            channels * (1 + (grid.wavenumbers / bend).square()) ** -steepness,
        )
        for bend in BENDS
        for steepness in STEEPNESSES
    ]


def _channels(rows: Float[Tensor, "N *x"], grid: GridBasis) -> Float[Tensor, " n"]:
    """Variances of the components along axes that are no grid, of mean one."""
    waves = [axis for axis, kind in enumerate(grid.kinds) if kind != "none"]
    variance = rows.double().var(0).mean(waves, keepdim=True)
    largest = float(variance.max())
    variance = variance.clamp_min(FLOOR * largest) if largest else torch.ones_like(variance)
    return (variance / variance.mean()).expand(grid.shape).flatten()
