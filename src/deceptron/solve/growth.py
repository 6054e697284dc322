"""How a subspace too small for all unknowns is chosen: two directions at a time, while they pay.

With e the correction that suits the subspace so far and ``left`` the residual that it leaves, the
pair is the preconditioned gradient ``t K J' left - e``, and what the learned inverse makes of that
residual, ``g(y_t + left) - g(y_t)``. Without derivatives the gradient is the surrogate's.

A gradient costs a product with J' and one with J, a learned direction a pass through g and one with
J. Where a pass is dear beside a product, and a learned direction has lowered the misfit by less for
its price than the gradient before it, by a factor, the row takes two gradients in that many of the
next pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.bases import Basis
from deceptron.core.differentiate import Linearisation
from deceptron.laws.score import Quadratics
from deceptron.solve.model import Model, Point
from deceptron.solve.rows import dot, norm, products
from deceptron.solve.subspace import DIFFERENCE, Subspace, taken, turned

# A pair of directions that lowers the regularised misfit by less than this share of it, or of what
# pure noise would leave, is the last: below the noise there is nothing to explain.
PAYS = 0.001
# Pairs for which a learned direction is not tried, at most; more than there are.
LONGEST_WAIT = 1000.0
# What others leave of a direction is round-off below the first share of its length, and surely new
# beyond the second. Between the two, less than so many roots of the precision is round-off, by the
# norm that is minimised: taken for new, it makes a row end elsewhere alone than among others.
LEAST_NEW, SURELY_NEW = 1e-6, 0.1
LEAST_ROOTS = 10.0
# Nearer to a bound than this, in units of the family's spread, is at it.
AT_BOUND = 1e-6
# Places of rows; of all of them a slice, which copies nothing.
Rows: TypeAlias = Tensor | slice
# Shape and size, as places, of the law that each row has so far.
SoFar: TypeAlias = tuple[Int[Tensor, " B"], Int[Tensor, " B"]]


def grow(span: Subspace, so_far: SoFar | None, pairs: int, *, reverse_price: float = 0.0) -> None:
    """At most so many pairs of a gradient and a learned direction, or as many simulator runs; the
    first direction is the correction so far. A pass through g is taken to cost ``reverse_price``
    products with the Jacobian.

    The first linearisation pays no heed to bounds: its goal is cut off there. A row that this
    leaves unexplained keeps to the components that no bound holds from then on: what is sought
    beyond the bounds and cut off again need not explain anything.
    """
    growth = _Growth(span, so_far, pairs, reverse_price)
    for _ in range(pairs):
        if not growth.add_pair():
            break


class _Growth:
    """The rows that still grow, and the best correction in their subspace so far: coefficients
    ``e``, the residual ``left``, and the regularised misfit ``value``.

    It is that under the prior ``N(0, t K)``, K the row's ``shape``.
    """

    def __init__(
        self, span: Subspace, so_far: SoFar | None, pairs: int, reverse_price: float
    ) -> None:
        self._span = span
        span.reserve(2 * pairs + (so_far is not None))
        self._going = torch.ones_like(span.point.misfit, dtype=torch.bool)
        self._here = _Here(span.model, span.point, slice(None))
        self._reversed: Tensor | None = None
        # Simulator runs of a gradient and of a learned direction.
        self._runs = (2, 1) if span.model.has_derivatives else (1, 1)
        self._budget = torch.full_like(self._going, pairs * sum(self._runs), dtype=torch.int64)
        # Without derivatives both are suggestions of a network, and one is as dear as the other.
        self._reverse_price = reverse_price if span.model.has_derivatives else 0.0
        # Pairs for which the learned direction is not tried.
        self._waits = torch.zeros_like(self._budget)
        self._shape, self._t = _prior(span, so_far)
        # 1 where a component may move, 0 where a bound holds it; None: all may.
        self._free: Tensor | None = None
        self._heeds_bounds = so_far is not None and span.box is not None
        if so_far is not None:
            # Back towards the start: a step further on may leave the box.
            length = norm(span.offset)
            a = self._add(span.home.forward(-span.offset), None)
            span.move_residual(-length[:, None] * a)
        self._e = torch.zeros_like(span.offset)
        self._left, self._value = span.residual, span.residual.square().sum(1)
        if so_far is not None:
            self._fit()

    def add_pair(self) -> bool:
        """One more pair for the rows that it may help; False if there is none."""
        span, rows = self._span, self._going.nonzero().flatten()
        if len(rows) == 0:
            return False
        if 2 * len(rows) <= len(self._here.point.x):
            self._here = _Here(span.model, span.point, rows, charged=False)
        before, learned = self._value, self._going & (self._waits == 0)
        by_gradient = self._take(self._gradient(self._going))
        by_second = self._take(self._second(learned, self._going & ~learned))
        # Both need an image; what differs is g beside a product with J'.
        dearer = self._reverse_price * by_gradient / by_second
        dearer = dearer.nan_to_num(0.0, posinf=LONGEST_WAIT).clamp(0.0, LONGEST_WAIT)
        self._waits = torch.where(learned, dearer.to(torch.int64), self._waits - 1).clamp_min(0)
        gradient, suggestion = self._runs
        self._budget = self._budget - gradient - torch.where(learned, suggestion, gradient)
        noise = span.model.objective.count.to(before)
        pays = before - self._value > PAYS * torch.maximum(before, noise)
        self._going = self._going & pays & (self._budget >= sum(self._runs))
        return True

    def _second(
        self, learned: Bool[Tensor, " B"], other: Bool[Tensor, " B"]
    ) -> Float[Tensor, "B n"]:
        """What the learned inverse suggests where that is worth its price, else another gradient
        (that of what the first one has left).
        """
        if not bool(learned.any()):
            return self._gradient(other)
        d = self._learned(learned)
        if not bool(other.any()):
            return d
        return torch.where(other[:, None], self._gradient(other), d)

    def _take(self, d: Float[Tensor, "B n"]) -> Float[Tensor, " B"]:
        """Add the direction for the rows that still grow, and by how much it lowers the misfit."""
        span, before = self._span, self._value
        if self._free is not None:
            d = span.home.forward(self._free * span.home.back(d))
        d = torch.where(d.isfinite().all(1)[:, None], d, 0.0)
        if not bool(self._going.all()):
            # Rows that are done have neighbours that are not: a zero costs nothing.
            d = d * self._going[:, None]
        self._add(d, self._going)
        self._fit()
        return before - self._value

    def _fit(self) -> None:
        span = self._span
        quadratics = span.quadratics()
        z, value, _ = quadratics.minimise(self._own_stiffness(quadratics), self._t[None])
        self._e, self._value = span.coefficients(z[0]), value[0]
        self._left = span.residual - span.image(z[0])

    def _gradient(self, asked: Bool[Tensor, " B"]) -> Float[Tensor, "B n"]:
        """Coefficients of ``t K J' left - e``, among the free components where some are held."""
        here = self._here
        whitened = here.model.objective.whiten(self._left[here.rows].to(here.point.x))
        here.model.charge("vjp", asked[here.rows].to(torch.int64))
        uphill = self._placed(here.rows, here.jacobian.vjp(whitened).double())
        d = self._preconditioned(uphill) - self._e
        if self._heeds_bounds:
            self._heeds_bounds, self._free = False, self._free_components(d)
        if self._free is None:
            return d
        # t K P (J' left - K^-1 e / t), P leaving the free components; the same as d but for
        # round-off where all are.
        stiff = self._span.home.back(self._stiff(self._e))
        among = self._preconditioned(self._free * (uphill - stiff))
        return torch.where((self._free < 1).any(1)[:, None], among, d)

    def _learned(self, asked: Bool[Tensor, " B"]) -> Float[Tensor, "B n"]:
        """Coefficients of what g makes of the residual that is left."""
        span = self._span
        rows: Rows = slice(None) if bool(asked.all()) else asked.nonzero().flatten()
        model, point = span.model, span.point
        if not isinstance(rows, slice):
            model, point = model.at(rows), point.take(rows)
        noise = span.noise[rows]
        coloured = torch.where(noise.isfinite(), self._left[rows] * noise, 0.0)
        ahead = model.g(point.y + coloured.to(point.y))
        if self._reversed is None:
            self._reversed = span.model.g(span.point.y)
        return self._placed(rows, span.home.forward(ahead - self._reversed[rows]))

    def _free_components(self, d: Float[Tensor, "B n"]) -> Float[Tensor, "B n"] | None:
        """All but those at a bound that ``d`` would have them cross."""
        span = self._span
        assert span.box is not None
        x = span.point.x
        # A goal goes through a basis and back, so what was held is at its bound but for round-off.
        slack = AT_BOUND * span.laws.units.to(x) + 4 * torch.finfo(x.dtype).eps * x.abs()
        free = span.box.free(x, -span.home.back(d), slack)
        return None if bool(free.all()) else free.double()

    def _preconditioned(self, v: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """Coefficients of ``t K v``."""
        result = torch.empty_like(v)
        for basis, rows, variances in self._by_basis():
            c = basis.forward(v[rows]) * variances
            result[rows] = turned(c, basis, self._span.home)
        return result

    def _stiff(self, e: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """Coefficients of ``K^-1 e / t``."""
        home, result = self._span.home, torch.empty_like(e)
        for basis, rows, variances in self._by_basis():
            result[rows] = turned(turned(e[rows], home, basis) / variances, basis, home)
        return result

    def _by_basis(self) -> Iterator[tuple[Basis, Rows, Float[Tensor, "k n"]]]:
        """Rows whose K is diagonal in a basis, and the variances ``t K`` there."""
        for basis, shapes in self._span.shapes_of.items():
            rows: Rows = slice(None)
            if len(self._span.shapes_of) > 1:
                mine = torch.isin(self._shape, torch.tensor(shapes, device=self._t.device))
                rows = mine.nonzero().flatten()
            yield basis, rows, self._t[rows, None] * self._span.spectra[self._shape[rows]]

    def _add(
        self, d: Float[Tensor, "B n"], charged: Bool[Tensor, " B"] | None
    ) -> Float[Tensor, "B m"]:
        """One more direction, made orthonormal to the others, for the rows that are ``charged``
        (None: all); its image comes back.
        """
        span = self._span
        size = norm(d)
        d, inside = span.orthogonal(d, size)
        length = norm(d)
        usable = length > LEAST_NEW * size
        d = torch.where(usable[:, None], d / length.clamp_min(1e-300)[:, None], 0.0)
        if span.model.has_derivatives:
            a = self._product(d, charged)
            new = length >= SURELY_NEW * size
            if not bool(new.all()):
                whole = length[:, None] * d + span.coefficients(inside)
                new = new | self._is_new(whole, length[:, None] * a + span.image(inside))
                d, a = (torch.where(new[:, None], part, 0.0) for part in (d, a))
        else:
            d, a = self._difference(d, usable, charged)
        span.append(d, a)
        return a

    def _is_new(self, d: Float[Tensor, "B n"], a: Float[Tensor, "B m"]) -> Bool[Tensor, " B"]:
        """Whether the subspace leaves more than round-off of a direction and its image, by the norm
        that is minimised, ``|a|^2 + |d|^2_K / t``: it does not depend on the units of x.
        """
        span = self._span
        stiff = self._stiff(d)
        asked = replace(
            span.quadratics(),
            slope=products(span.images, a) + products(span.directions, stiff),
            square=a.square().sum(1) + dot(d, stiff),
        )
        _, left, _ = asked.minimise(self._own_stiffness(asked), self._t[None])
        least = max(LEAST_ROOTS**2 * torch.finfo(span.point.x.dtype).eps, LEAST_NEW**2)
        return left[0] > least * asked.square

    def _own_stiffness(self, quadratics: Quadratics) -> Float[Tensor, "B k k"]:
        rows = torch.arange(len(self._shape), device=self._shape.device)
        return quadratics.stiffness[self._shape, rows]

    def _product(
        self, d: Float[Tensor, "B n"], charged: Bool[Tensor, " B"] | None
    ) -> Float[Tensor, "B m"]:
        here = self._here
        unit = self._span.home.back(d[here.rows]).to(here.point.x)
        here.model.charge("jvp", 1 if charged is None else charged[here.rows].to(torch.int64))
        return self._measured(here.rows, here.jacobian.jvp(unit))

    def _difference(
        self,
        d: Float[Tensor, "B n"],
        usable: Bool[Tensor, " B"],
        charged: Bool[Tensor, " B"] | None,
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B m"]]:
        """The image is that of what the box leaves of the direction, so that is what counts."""
        span, here = self._span, self._here
        model, point, rows = here.model, here.point, here.rows
        if charged is not None:
            # A value costs a simulation: only rows that ask for it have one.
            rows = charged.nonzero().flatten()
            model, point = span.model.at(rows), span.point.take(rows)
        unit = span.home.back(d[rows]).to(point.x)
        length = norm(unit / span.laws.units.to(unit)).clamp_min(1e-30)
        step = DIFFERENCE * point.x.shape[1] ** 0.5 * unit / length[:, None]
        step = taken(point.x, step, span.box)
        a = self._measured(rows, model.image(point, step))
        d = self._placed(rows, span.home.forward(step))
        inside, size = products(span.directions, d), norm(d)
        d, a = d - span.coefficients(inside), a - span.image(inside)
        length = norm(d)
        usable = usable & (length > LEAST_NEW * size)
        length = torch.where(usable, length, torch.inf)[:, None]
        return d / length, a / length

    def _measured(self, rows: Rows, image: Float[Tensor, "k m"]) -> Float[Tensor, "B m"]:
        """Images in units of the noise; one that is not finite counts as zero."""
        noise = self._span.noise[rows]
        seen = torch.where(noise < torch.inf, image, 0.0)
        finite = torch.where(seen.isfinite().all(1)[:, None], seen, 0.0)
        return self._placed(rows, finite / noise)

    def _placed(self, rows: Rows, values: Float[Tensor, "k c"]) -> Float[Tensor, "B c"]:
        """Values of some rows among zeros for the others."""
        if isinstance(rows, slice):
            return values
        return values.new_zeros(len(self._going), values.shape[1]).index_copy(0, rows, values)


class _Here:
    """The rows of a span that still grow, linearised."""

    def __init__(self, model: Model, point: Point, rows: Rows, *, charged: bool = True) -> None:
        self.rows = rows
        self.model = model if isinstance(rows, slice) else model.at(rows)
        self.point = point if isinstance(rows, slice) else point.take(rows)
        self.jacobian: Linearisation = self.model.linearise(self.point.x, charged=charged)


def _prior(span: Subspace, so_far: SoFar | None) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """Shape and strength t of each row: those of its law so far."""
    laws = span.laws
    if so_far is not None:
        return so_far[0], laws.strengths(span.offset)[so_far[1]]
    shape, size = laws.first
    first = torch.full_like(span.offset[:, 0], shape, dtype=torch.int64)
    return first, torch.full_like(span.offset[:, 0], (size * laws.scale) ** 2)
