"""How far, and in which shapes, an answer may plausibly lie from its start.

A start x0, most often g(y), is corrected by e ~ N(0, (delta scale)^2 K). ``scale`` is the spread of
the family, and K is one of a few ``members``, each diagonal in a basis and of mean variance one:

- on a grid, ``(1 + k^2 / kappa^2)^-a`` over the wavenumbers k, from very smooth to nearly white,
  each channel in its own spread: a temperature beside a pressure has another unit;
- of a vector, powers p < 1 of the family's own covariance, which flatten its spectrum: a correction
  may be rougher than the family, in the family's own coordinates.

Which member and which delta a row takes is decided by its evidence: the likelihood of its residual
r under N(0, (delta scale)^2 J K J' + S). Its quadratic form is the row's own; its log-determinant,
and the variances that are left, hardly change from row to row. They are tabled here, once a pair,
over ``t = (delta scale)^2 q`` with q the precision of the row's data relative to those the table
was made for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.bases import FLOOR, Basis, EigenBasis, GridBasis, principal

# Half wavelengths across the grid at which a smooth member bends, and how steeply it falls.
BENDS, STEEPNESSES = (4.0, 8.0, 16.0, 32.0), (2.0, 4.0)
POWERS = (1.0, 0.75, 0.5, 0.35, 0.25)
# Sizes that the evidence weighs: its marks, and between two of them steps of a third. Coarser ones
# cost error where the right size lies between two, and make bars up to twice too wide.
SIZE_MARKS, FINENESS = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0), 4
SIZES = (
    *(
        low * (high / low) ** (k / FINENESS)
        for low, high in pairwise(SIZE_MARKS)
        for k in range(FINENESS)
    ),
    SIZE_MARKS[-1],
)
# Where tables are made: powers of ten.
DETERMINANT_NODES = tuple(-14.0 + 0.25 * k for k in range(69))
VARIANCE_NODES = tuple(-14.0 + 1.0 * k for k in range(18))

# Hears which share of some work is done.
Told: TypeAlias = Callable[[float], None]
P = TypeVar("P")


@dataclass(frozen=True, eq=False)
class Member:
    """One shape K: what it is called, where it is diagonal, and its variances there."""

    name: str
    basis: Basis
    spectrum: Float[Tensor, " n"]

    def root(self, v: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
        """``K^(1/2) v`` up to a rotation: a square root of K applied to coefficients."""
        return self.basis.back(v * self.spectrum.to(v.device).sqrt())


@dataclass(frozen=True, eq=False)
class Regression:
    """The best linear guess of a truth like the training data, from a start and its correction.

    The correction is the fit with one ``member`` and one ``size`` for all rows; in the coordinates
    of that member, coefficient by coefficient about the family's ``mean``,
    ``x = own * corrected + start * x0``. ``std`` is what such answers erred by on rows that were
    not fitted, ``factor`` what makes 90% intervals of it hold 90% of those.
    """

    member: int
    size: float
    mean: Float[Tensor, " n"]
    own: Float[Tensor, " n"]
    start: Float[Tensor, " n"]
    std: Float[Tensor, " n"]
    factor: float


@dataclass(frozen=True, eq=False)
class Corrections:
    """See the module's text. Tables are missing where a row is solved densely and needs none.

    A start that explains its data may still be far from what they can tell: a few unknowns seen by
    many sensors. ``eager`` says whether such rows are corrected, too: on the surrogate, and on a
    simulator. ``by_family`` says of the same two whether the mean of the family's own posterior is
    tried before any correction, and taken if it explains the data; ``family_factor`` is what makes
    90% intervals of such answers hold 90%. Both are for rows that are solved densely.

    Tables are for x in units of ``table_unit``: in those its latents are of size one, whatever the
    units of x, and every strength that is asked for lies between the nodes. ``channels`` are the
    variances of the components along axes that are no grid, of mean one; None where there is one.

    Where several latents explain the same data, as those of y = x^2 do, a correction finds one of
    them, and a start that is their mean is nearer to the truth. ``keep`` says of the same two
    whether starts are left as they are.

    ``chance`` are log odds, of the same two: that a row of the family whose start misses the limit
    has missed it by chance, and its start is right.
    """

    scale: float
    grid: GridBasis | None
    eigen: EigenBasis | None
    eigenvalues: Float[Tensor, " n"] | None
    log_determinants: Float[Tensor, "M T"] | None = None
    log_variances: Float[Tensor, "M V n"] | None = None
    factor: float = 1.0
    regression: Regression | None = None
    eager: tuple[bool, bool] = (False, False)
    by_family: tuple[bool, bool] = (False, False)
    family_factor: float = 1.0
    keep: tuple[bool, bool] = (False, False)
    chance: tuple[float, float] = (-math.inf, -math.inf)
    table_unit: float = 1.0
    channels: Float[Tensor, " *c"] | None = None

    @staticmethod
    def of(family: Float[Tensor, "N *x"], *, largest: int, kept: int) -> Corrections:
        """Members for the family of these samples; no tables yet.

        A vector of up to ``largest`` components has powers of its covariance, of which the
        ``kept`` leading directions are told apart; so has a field with no axis long enough for
        waves.
        """
        family = family.cpu()  # members of both kinds stand side by side, and waves are made there
        rows = family.double().flatten(1)
        variance = float(rows.var(0).mean())
        eigen = eigenvalues = None
        n, grid = rows.shape[1], GridBasis.fit(family)
        if (family.ndim == 2 or grid is None) and n <= largest:
            eigen, eigenvalues = principal(rows, kept)
        channels = None if grid is None else _channels(family, grid)
        return Corrections(variance**0.5, grid, eigen, eigenvalues, channels=channels)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """All shapes, in the order of the tables."""
        found: list[Member] = []
        if self.eigen is not None and self.eigenvalues is not None:
            for power in POWERS:
                spectrum = self.eigenvalues.double() ** power
                found.append(Member(f"C^{power:g}", self.eigen, spectrum / spectrum.mean()))
        if self.grid is not None:
            for bend in BENDS:
                for steepness in STEEPNESSES:
                    spectrum = (1 + (self.grid.wavenumbers / bend).square()) ** -steepness
                    if self.channels is not None:
                        spectrum = spectrum * self.channels.expand(self.grid.shape).flatten()
                    name = f"smooth {bend:g}, {steepness:g}"
                    found.append(Member(name, self.grid, spectrum / spectrum.mean()))
        return tuple(found)

    @cached_property
    def spread(self) -> Float[Tensor, "M n"]:
        """Standard deviation of each component under every member, of size one."""
        rows = [m.basis.diagonal(m.spectrum[None])[0].sqrt() for m in self.members]
        return self.scale * torch.stack(rows)

    @cached_property
    def units(self) -> Float[Tensor, " n"]:
        """What a component counts in: its channel's own spread, or that of all."""
        if self.grid is None or self.channels is None:
            return torch.full_like(self.members[0].spectrum, self.scale)
        return self.scale * self.channels.sqrt().expand(self.grid.shape).flatten()

    def strengths(self, precision: Float[Tensor, " B"]) -> Float[Tensor, "S B"]:
        """``t`` of every size, for rows whose data have this relative precision."""
        sizes = torch.tensor(SIZES, dtype=torch.float64, device=precision.device)
        return (self.scale * sizes[:, None]).square() * precision.double()

    def log_determinant(self, t: Float[Tensor, "S B"]) -> Float[Tensor, "M S B"]:
        """``log det (1 + t K^(1/2) J' S^-1 J K^(1/2))`` of every member, from the table."""
        assert self.log_determinants is not None
        return _between(DETERMINANT_NODES, self.log_determinants, t * self.table_unit**-2)

    def std(
        self, member: Int[Tensor, " B"], size: Float[Tensor, " B"], precision: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B n"]]:
        """Of each component, before the data were seen and as they leave it, from the table."""
        assert self.log_variances is not None
        t = (self.scale / self.table_unit * size.double()).square() * precision.double()
        table = self.log_variances.to(t)
        found = t.new_empty(len(t), table.shape[2])
        for number in member.unique().tolist():
            rows = (member == number).nonzero().flatten()
            # The table's columns stand where _between has its members: one curve a component.
            found[rows] = _between(VARIANCE_NODES, table[number].T, t[rows][None])[:, 0].T
        scale = self.scale * size.double()[:, None]
        return scale * (0.5 * table[member, 0]).exp(), scale * (0.5 * found).exp()


def _channels(family: Float[Tensor, "N *x"], grid: GridBasis) -> Float[Tensor, " *c"] | None:
    waves = [axis for axis, kind in enumerate(grid.kinds) if kind != "none"]
    variance = family.double().var(0).mean(waves, keepdim=True)
    largest = float(variance.max())
    if variance.numel() == 1 or largest == 0:
        return None
    variance = variance.clamp_min(FLOOR * largest)
    return variance / variance.mean()


def averaged(
    corrections: Corrections,
    points: Sequence[P],
    tables: Callable[[Member, P], tuple[Float[Tensor, " T"], Float[Tensor, "V n"]]],
    told: Told,
) -> tuple[Float[Tensor, "M T"], Float[Tensor, "M V n"]]:
    """Log-determinants and log-variances of every member, ``tables`` averaged over points.

    ``told`` hears the share that is done.
    """
    determinants, variances = [], []
    for number, member in enumerate(corrections.members):
        found = []
        for place, point in enumerate(points, start=1):
            found.append(tables(member, point))
            told((number + place / len(points)) / len(corrections.members))
        determinant, variance = (torch.stack(part).mean(0) for part in zip(*found, strict=True))
        determinants.append(determinant)
        variances.append(variance.clamp_min(1e-30).log())
    return torch.stack(determinants), torch.stack(variances)


def tabulated(
    corrections: Corrections, points: list[Float[Tensor, "m n"]], *, told: Told = lambda share: None
) -> tuple[Float[Tensor, "M T"], Float[Tensor, "M V n"]]:
    """The two tables by Jacobians in units of the noise, dense and in float64."""
    t, v = (10 ** torch.tensor(n, dtype=torch.float64) for n in (DETERMINANT_NODES, VARIANCE_NODES))
    eye = torch.eye(points[0].shape[1], dtype=torch.float64)

    def tables(member: Member, jacobian: Tensor) -> tuple[Tensor, Tensor]:
        root = member.root(eye).T  # K = root root'
        image = jacobian @ root
        values, vectors = torch.linalg.eigh(image.T @ image)
        values = values.clamp_min(0.0)
        spread = (root @ vectors).square()
        determinant = torch.log1p(t[:, None] * values).sum(1)
        return determinant, (1 / (1 + v[:, None] * values)) @ spread.T

    return averaged(corrections, points, tables, told)


def _between(
    nodes: tuple[float, ...], table: Float[Tensor, "M T"], t: Float[Tensor, "S B"]
) -> Float[Tensor, "M S B"]:
    """Linear in log t; beyond the ends, the value there."""
    step = nodes[1] - nodes[0]
    tiny = torch.finfo(torch.float64).tiny
    place = ((t.clamp_min(tiny).log10() - nodes[0]) / step).clamp(0, len(nodes) - 1)
    left = place.floor().long().clamp_max(len(nodes) - 2)
    share = place - left
    table = table.to(t)
    return table[:, left] * (1 - share) + table[:, left + 1] * share
