"""Log-determinants and variances of laws at validation points, tabled once a pair.

Where a Jacobian can be formed, its singular values under each shape give both for every t. Where it
cannot, most of what data say about a field they say about few directions, and a randomised range
finder takes those: Q spans the images of ``RANK`` fields of a rough shape, ``B = Q'J`` is what the
data see of them. What is left, ``J'J - B'B``, is small and about diagonal in waves; D, its diagonal
there, is estimated from random signs and averaged over waves of like length. With K diagonal in the
same waves and ``E = K / (1 + t K D)``::

    log det (1 + t K^(1/2) (B'B + D) K^(1/2)) = sum log(1 + t K D) + log det (1 + t B E B')
    (K^-1 + t (B'B + D))^-1                   = E - t E B' (1 + t B E B')^-1 B E

which takes ``RANK + PROBES`` products with J and as many with its transpose for all shapes and t.
For all t at once, ``B E B'`` is a sum over the values of K D, put into bins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from deceptron.core.bases import Basis, GridBasis, on_axis
from deceptron.laws.law import DETERMINANT_NODES, VARIANCE_NODES, Laws, Shape, Tables

# Log-determinants at 32 x 32 against dense ones, at size 0.3: heat-2d is off by 0.25%, darcy-2d by
# 5 to 11%, less than its points differ from each other (python -m benchmarks.grids accuracy).
RANK, PROBES = 256, 16
# Of wavenumbers that share a variance, and of the products K D: steps as factors.
WAVE_STEP, BIN_STEP = 2**0.25, 10**0.25
# No variance is less than this share of the one before the data were seen.
LEAST_LEFT = 1e-10

# Hears which share of some work is done.
Listener: TypeAlias = Callable[[float], None]


class Products(Protocol):
    """A Jacobian in units of the noise, known by its products with flat rows."""

    def forward(self, v: Float[Tensor, "k n"]) -> Float[Tensor, "k m"]:
        """``J v`` of each."""
        ...

    def back(self, w: Float[Tensor, "k m"]) -> Float[Tensor, "k n"]:
        """``J' w`` of each."""
        ...


@dataclass(frozen=True, eq=False)
class Sketch:
    """``J'J`` is about ``rows' rows + diag(rest)``, in the waves of a grid."""

    grid: GridBasis
    rows: Float[Tensor, "r n"]
    rest: Float[Tensor, " n"]


def tabled(
    laws: Laws, points: Sequence[Sketch | Formed], *, listener: Listener = lambda share: None
) -> Laws:
    """The laws with their tables, averaged over Jacobians in units of the noise, formed
    or sketched, for x in units of the laws' ``scale``.
    """
    determinants, variances = [], []
    for number, shape in enumerate(laws.shapes):
        found = []
        for place, point in enumerate(points, start=1):
            if isinstance(point, Sketch):
                found.append(_by_sketch(shape, point))
            else:
                found.append(_formed(shape, point))
            listener((number + place / len(points)) / len(laws.shapes))
        determinant, variance = (torch.stack(part).mean(0) for part in zip(*found, strict=True))
        determinants.append(determinant)
        variances.append(variance.clamp_min(1e-30).log())
    return laws.with_tables(Tables(torch.stack(determinants), torch.stack(variances), laws.scale))


class Formed:
    """``J'J`` of a Jacobian in units of the noise, in every basis that shapes are diagonal in."""

    def __init__(self, jacobian: Float[Tensor, "m n"]) -> None:
        self._jacobian = jacobian.double()
        self._grams: dict[Basis, Tensor] = {}

    def gram(self, basis: Basis) -> Float[Tensor, "n n"]:
        """``W J'J W'``, W the coefficients of the basis."""
        if basis not in self._grams:
            c = basis.forward(self._jacobian)
            self._grams[basis] = c.T @ c
        return self._grams[basis]


def _formed(shape: Shape, point: Formed) -> tuple[Tensor, Tensor]:
    t, v = (10 ** torch.tensor(n, dtype=torch.float64) for n in (DETERMINANT_NODES, VARIANCE_NODES))
    root = shape.spectrum.sqrt()
    values, vectors = torch.linalg.eigh(root[:, None] * point.gram(shape.basis) * root)
    values = values.clamp_min(0.0)
    determinant = torch.log1p(t[:, None] * values).sum(1)
    fields = shape.basis.back(root * vectors.T)
    return determinant, (1 / (1 + v[:, None] * values)) @ fields.square()


def _by_sketch(shape: Shape, sketch: Sketch) -> tuple[Tensor, Tensor]:
    seen = _Seen(shape, sketch)
    determinants = [seen.log_determinant(10**node) for node in DETERMINANT_NODES]
    return torch.stack(determinants), torch.stack([seen.variance(10**n) for n in VARIANCE_NODES])


def sketched(
    laws: Laws, grid: GridBasis, jacobian: Products, *, generator: Generator, rank: int = RANK
) -> Sketch:
    """What data see of fields on a grid; images are drawn from the ``first`` shape of the laws."""
    rough = laws.shapes[laws.first[0]]
    n = len(rough.spectrum)
    drawn = torch.randn(min(rank, n), n, dtype=torch.float64, generator=generator)
    span = torch.linalg.qr(jacobian.forward(rough.root(drawn)).T).Q
    rows = grid.forward(jacobian.back(span.T))
    signs = torch.randn(PROBES, n, dtype=torch.float64, generator=generator).sign()
    image = jacobian.forward(grid.back(signs))
    left = image - (image @ span) @ span.T
    rest = (signs * grid.forward(jacobian.back(left))).mean(0)
    return Sketch(grid, rows, _averaged(rest, _alike(grid)).clamp_min(0.0))


class _Seen:
    """One shape seen through one sketch."""

    def __init__(self, shape: Shape, sketch: Sketch) -> None:
        self._grid, self._rows = sketch.grid, sketch.rows
        self._spectrum = shape.spectrum
        self._product, self._bins = _binned(shape.spectrum * sketch.rest)
        weighted = sketch.rows * shape.spectrum.sqrt()
        self._grams = torch.stack(
            [weighted[:, mine] @ weighted[:, mine].T for mine in self._waves_of_bins()]
        )
        self._before = self._grid.diagonal(shape.spectrum[None])[0]

    def log_determinant(self, t: float) -> Tensor:
        factor = torch.linalg.cholesky(self._system(t))
        of_rows = 2 * factor.diagonal().log().sum()
        return of_rows + torch.log1p(t * self._product[self._bins]).sum()

    def variance(self, t: float) -> Float[Tensor, " n"]:
        """Of each point, as data of this strength leave it."""
        e = self._spectrum / (1 + t * self._product[self._bins])
        fields = self._grid.back(self._rows * e)
        factor = torch.linalg.cholesky(self._system(t))
        taken = torch.linalg.solve_triangular(factor, fields, upper=False).square().sum(0)
        left = self._grid.diagonal(e[None])[0] - t * taken
        return torch.maximum(left, LEAST_LEFT * self._before)

    def _system(self, t: float) -> Float[Tensor, "r r"]:
        """``1 + t B E B'``."""
        system = torch.tensordot(t / (1 + t * self._product), self._grams, dims=1)
        system.diagonal().add_(1.0)
        return system

    def _waves_of_bins(self) -> list[Int[Tensor, " k"]]:
        order = self._bins.argsort(stable=True)
        counts = torch.bincount(self._bins, minlength=len(self._product))
        return list(order.split(counts.tolist()))


def _binned(values: Float[Tensor, " n"]) -> tuple[Float[Tensor, " b"], Int[Tensor, " n"]]:
    """Values of like size replaced by their mean, and which each belongs to."""
    largest = float(values.max())
    if largest == 0:
        return values.new_zeros(1), torch.zeros(len(values), dtype=torch.int64)
    steps = (values / largest).clamp_min(1e-18).log() / torch.tensor(BIN_STEP).log()
    bins = torch.unique(steps.round(), return_inverse=True)[1]
    return _means(values, bins), bins


def _alike(grid: GridBasis) -> Int[Tensor, " n"]:
    """Waves of like length on the same component of axes that are no grid."""
    steps = grid.wavenumbers.clamp_min(0.5).log() / torch.tensor(WAVE_STEP).log()
    place = torch.zeros(grid.shape, dtype=torch.int64)
    for axis, (kind, length) in enumerate(zip(grid.kinds, grid.shape, strict=True)):
        if kind == "none":
            place = place * length + on_axis(torch.arange(length), axis, len(grid.shape))
    both = torch.stack([steps.round().long(), place.flatten()])
    return torch.unique(both, dim=1, return_inverse=True)[1]


def _averaged(values: Float[Tensor, " n"], groups: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    return _means(values, groups)[groups]


def _means(values: Float[Tensor, " n"], groups: Int[Tensor, " n"]) -> Float[Tensor, " g"]:
    count = torch.bincount(groups)
    return torch.zeros(len(count), dtype=values.dtype).index_add(0, groups, values) / count
