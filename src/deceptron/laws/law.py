"""Gaussians about one mean, in a few shapes and sizes, and what data leave open of them.

A row is believed to be drawn from ``N(mean, (size scale)^2 K)``, K one of a few *shapes*, each
diagonal in a basis and of mean variance one. Two such ``Laws`` compete for a row: those about its
own start, whose mean is no number of theirs, and those about the mean of the family.

Which shape and size a row takes is decided by its score (``laws/score.py``). Its quadratic form is
the row's own; its log-determinant, and the variances that are left, hardly change from row to row.
They are tabled once a pair, over ``t = (size scale)^2 q`` with q the precision of the row's data
relative to those that the tables were made for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.bases import Basis

# Where tables are made: powers of ten.
DETERMINANT_NODES = tuple(-14.0 + 0.25 * k for k in range(69))
VARIANCE_NODES = tuple(-14.0 + 1.0 * k for k in range(18))


@dataclass(frozen=True, eq=False)
class Shape:
    """K: what it is called, where it is diagonal, and its variances there."""

    name: str
    basis: Basis
    spectrum: Float[Tensor, " n"]

    @staticmethod
    def of(name: str, basis: Basis, spectrum: Float[Tensor, " n"]) -> Shape:
        """Brought to a mean variance of one."""
        return Shape(name, basis, spectrum / spectrum.mean())

    def root(self, v: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
        """``K^(1/2) v`` up to a rotation: a square root of K applied to coefficients."""
        return self.basis.back(v * self.spectrum.to(v.device).sqrt())


@dataclass(frozen=True, eq=False)
class Tables:
    """Over t: ``log det (1 + t K^(1/2) J'J K^(1/2))`` of every shape, J in units of the noise, and
    the logarithm of the variances that data leave of each component.

    They are for x in units of ``unit``: in those latents are of size one, whatever the units of x,
    and every strength that is asked for lies between the nodes.
    """

    log_determinants: Float[Tensor, "K T"]
    log_variances: Float[Tensor, "K V n"]
    unit: float = 1.0


@dataclass(frozen=True, eq=False)
class Laws:
    """See the module's text.

    Attributes:
        shapes: every K.
        sizes: from small to large. Scores are smooth in the size: every ``stride``-th is tried
            first, then those around the best.
        scale: what a size counts in: the spread of the family.
        units: the same for each component: its channel's own spread.
        mean: of all rows; None where each row has its own.
        first: shape and size that directions are sought by before the score has spoken.
        tables: missing until they are made.
        factor: what makes 90% intervals of answers by these laws hold 90% of the truth.
    """

    shapes: tuple[Shape, ...]
    sizes: tuple[float, ...]
    stride: int
    scale: float
    units: Float[Tensor, " n"]
    mean: Float[Tensor, " n"] | None = None
    first: tuple[int, float] = (0, 1.0)
    tables: Tables | None = None
    factor: float = 1.0

    def with_tables(self, tables: Tables) -> Laws:
        """These laws, tabled."""
        return replace(self, tables=tables)

    @cached_property
    def spread(self) -> Float[Tensor, "K n"]:
        """Standard deviation of each component under every shape, of size one."""
        rows = [shape.basis.diagonal(shape.spectrum[None])[0].sqrt() for shape in self.shapes]
        return self.scale * torch.stack(rows)

    def strengths(self, like: Tensor) -> Float[Tensor, " S"]:
        """``t`` of every size, for data as precise as those of the tables."""
        sizes = torch.tensor(self.sizes, dtype=torch.float64, device=like.device)
        return (self.scale * sizes).square()

    def log_determinant(self, t: Float[Tensor, "S B"]) -> Float[Tensor, "K S B"]:
        """Of every shape, from the table."""
        assert self.tables is not None
        table = self.tables.log_determinants
        return between(DETERMINANT_NODES, table, t * self.tables.unit**-2)

    def distance(
        self, off: Float[Tensor, "B n"], shape: Int[Tensor, " B"], size: Int[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """``|off|^2 / (size scale)^2`` in the metric K^-1 of each row."""
        t = self.strengths(off)[size]
        found = torch.empty_like(t)
        for number in shape.unique().tolist():
            rows = (shape == number).nonzero().flatten()
            chosen = self.shapes[number]
            c = chosen.basis.forward(off[rows].double())
            found[rows] = (c.square() / chosen.spectrum.to(c)).sum(1) / t[rows]
        return found

    def log_mass(
        self, low: Float[Tensor, "B n"], high: Float[Tensor, "B n"]
    ) -> Float[Tensor, "K S B"]:
        """Logarithm of the share of each law within bounds, given as distances from its mean.

        Exact for independent components. Where a shape ties them together, so that squares of all
        its entries sum to more than those of its diagonal, they count as fewer by that ratio.
        """
        sizes = torch.tensor(self.sizes, dtype=torch.float64, device=low.device)
        found = []
        for shape, spread in zip(self.shapes, self.spread.to(low), strict=True):
            diagonal = shape.basis.diagonal(shape.spectrum[None])[0]
            share = float(diagonal.square().sum() / shape.spectrum.square().sum())
            std = sizes[:, None, None] * spread
            inside = torch.special.ndtr(high / std) - torch.special.ndtr(low / std)
            found.append(share * inside.clamp_min(1e-300).log().sum(2))
        return torch.stack(found)

    def std(
        self, shape: Int[Tensor, " B"], size: Int[Tensor, " B"], precision: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B n"]]:
        """Of each component, before the data were seen and as they leave it, from the table."""
        assert self.tables is not None
        length = self.strengths(precision)[size].sqrt()
        t = (length / self.tables.unit).square() * precision.double()
        table = self.tables.log_variances.to(t)
        found = t.new_empty(len(t), table.shape[2])
        for number in shape.unique().tolist():
            rows = (shape == number).nonzero().flatten()
            # The table's columns stand where between has its shapes: one curve a component.
            found[rows] = between(VARIANCE_NODES, table[number].T, t[rows][None])[:, 0].T
        scale = length[:, None]
        return scale * (0.5 * table[shape, 0]).exp(), scale * (0.5 * found).exp()


def between(
    nodes: tuple[float, ...], table: Float[Tensor, "K T"], t: Float[Tensor, "S B"]
) -> Float[Tensor, "K S B"]:
    """Linear in log t; beyond the ends, the value there."""
    step = nodes[1] - nodes[0]
    tiny = torch.finfo(torch.float64).tiny
    place = ((t.clamp_min(tiny).log10() - nodes[0]) / step).clamp(0, len(nodes) - 1)
    left = place.floor().long().clamp_max(len(nodes) - 2)
    share = place - left
    table = table.to(t)
    return table[:, left] * (1 - share) + table[:, left + 1] * share
