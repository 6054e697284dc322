"""Directions of each row with their measured images: what a correction is chosen from.

Up to a few unknowns the span is everything. Beyond, it is grown two directions at a time: the
preconditioned gradient ``t K J' left - e``, and what the learned inverse makes of the residual that
is left, ``g(y_t + left) - g(y_t)``. Each has its image measured by one product, so neither has to
be exact. Without derivatives an image is a difference of values and the gradient is the
surrogate's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.bases import Basis, DiagonalGaussian
from deceptron.core.box import Box
from deceptron.core.corrections import Corrections
from deceptron.core.differentiate import Linearisation
from deceptron.solve.evidence import Quadratics, posterior_spread
from deceptron.solve.model import Model, Point
from deceptron.solve.noise import noise_limit
from deceptron.solve.rows import RowData, dot, norm, products

# What the first span is grown with, before the evidence has spoken: rough and large.
FIRST_SIZE = 0.3
FIRST_MEMBERS = ("smooth 16, 2", "C^0.35")
# A pair of directions that lowers the regularised misfit by less than this share of it, or of what
# pure noise would leave, is the last: below the noise there is nothing to explain.
PAYS = 0.001
# Length of a difference that stands for a derivative, in units of the family's spread.
DIFFERENCE = 0.03
# Share of that length below which a difference within the box is round-off.
LEAST_ROOM = 1e-3
# Places of rows; of all of them a slice, which copies nothing.
Rows: TypeAlias = Tensor | slice
# Member and size of the correction that each row has so far.
SoFar: TypeAlias = tuple[Int[Tensor, " B"], Float[Tensor, " B"]]


@dataclass(frozen=True)
class Guess(RowData):
    """What is tried before the goal, whether it is plausible at all, and its standard deviation
    where that is known.
    """

    x: Float[Tensor, "B n"]
    plausible: Bool[Tensor, " B"]
    spread: Float[Tensor, "B ?n"]


class Spanned:
    """Orthonormal directions of each row with their images, in units of the noise, and the
    residual that the linearised problem has at the start of the row.
    """

    def __init__(
        self,
        model: Model,
        point: Point,
        start: Float[Tensor, "B n"],
        box: Box | None,
        corrections: Corrections,
    ) -> None:
        self._model, self._point, self._box, self._corrections = model, point, box, corrections
        self._e = (point.x - start).double()
        self._spectra = torch.stack([m.spectrum for m in corrections.members]).to(self._e)
        # Which members are diagonal in which basis. Directions are kept as their coefficients:
        # bases are orthonormal, so what is orthonormal in one is so everywhere.
        self._sharing: dict[Basis, list[int]] = {}
        for number, member in enumerate(corrections.members):
            self._sharing.setdefault(member.basis, []).append(number)
        self._home = next(iter(self._sharing))
        self._reversed: Tensor | None = None
        self._r = -model.objective.whiten(point.r).double()
        # Standard deviation of each component; infinite where nothing was observed.
        self._noise = 1 / model.objective.whiten(torch.ones_like(point.r)).double()
        self._reserve(0)

    def _reserve(self, most: int) -> None:
        """Room for so many directions: growing an array in place costs no copy of it."""
        rows, n = self._e.shape
        self._count = 0
        self._room_a = self._e.new_empty(rows, most, self._r.shape[1])
        self._room_c = {basis: self._e.new_empty(rows, most, n) for basis in self._sharing}
        self._room_hessian = self._e.new_zeros(rows, most, most)
        self._room_stiffness = self._e.new_zeros(len(self._spectra), rows, most, most)
        self._room_slope = self._e.new_zeros(rows, most)

    @property
    def _c(self) -> Float[Tensor, "B k n"]:
        return self._room_c[self._home][:, : self._count]

    @property
    def _a(self) -> Float[Tensor, "B k m"]:
        return self._room_a[:, : self._count]

    def quadratics(self) -> Quadratics:
        """What is minimised over the span."""
        k = self._count
        return Quadratics(
            self._room_hessian[:, :k, :k],
            self._room_slope[:, :k],
            self._r.square().sum(1),
            self._room_stiffness[:, :, :k, :k],
        )

    def posterior_mean(
        self, family: DiagonalGaussian, start: Float[Tensor, "B n"], count: Float[Tensor, "#B"]
    ) -> Guess:
        """Of the family given the data, for a span that is everything.

        ``min |r - A e|^2 + |x0 + e - mean|^2_C``, which is chi-squared in as many degrees of
        freedom as there are data if the row is of the family; plausible is what 99% stay below.
        """
        eye = torch.eye(start.shape[1]).to(self._e)
        precision = family.solve(eye)
        system = self._a @ self._a.mT + precision
        off = family.mean.to(eye).flatten() - start.double()
        slope = products(self._a, self._r) + off @ precision
        factor, failed = torch.linalg.cholesky_ex(system)
        e = torch.cholesky_solve(slope[:, :, None], factor)[:, :, 0]
        left = self._r - self._image(e)
        value = left.square().sum(1) + ((e - off) @ precision * (e - off)).sum(1)
        spread, sound = posterior_spread(factor)
        plausible = sound & (failed == 0) & (value <= count * noise_limit(count).square())
        return Guess(start + e, plausible, spread)

    def combined(self, z: Float[Tensor, "B k"]) -> Float[Tensor, "B n"]:
        """The direction of these coordinates."""
        return self._home.back(self._coefficients(z))

    def promised(self, e: Float[Tensor, "B n"]) -> Float[Tensor, "B m"]:
        """``A e - r``, the residual of the linearised problem, for a span that is everything."""
        return (self._image(e.double()) - self._r).to(e)

    def _coefficients(self, z: Float[Tensor, "B k"]) -> Float[Tensor, "B n"]:
        return (z[:, None] @ self._c)[:, 0]

    def _image(self, z: Float[Tensor, "B k"]) -> Float[Tensor, "B m"]:
        return (z[:, None] @ self._a)[:, 0]

    def fill(self) -> None:
        """All directions: one product for each unknown."""
        model, point = self._model, self._point
        n = point.x.shape[1]
        if model.has_derivatives:
            columns = model.f_jacobian(point.x).mT
        else:
            size = DIFFERENCE * self._corrections.units.to(point.x)
            # To the side with more room; a component that the box fixes has no image.
            up, down = (self._taken(point.x, way) for way in (size, -size))
            step = torch.where(up >= -0.999 * down, up, down)
            step = torch.where(step.abs() > LEAST_ROOM * size, step, 0.0)
            images = [model.image(point, along) for along in step.diag_embed().unbind(1)]
            columns = torch.stack(images, 1) / torch.where(step == 0, 1.0, step)[:, :, None]
        columns = torch.where(columns.isfinite().all(2)[:, :, None], columns, 0.0)
        self._reserve(n)
        self._count = n
        self._room_a.copy_(columns / self._noise[:, None])
        for basis, members in self._sharing.items():
            c = basis.forward(torch.eye(n).to(self._e))
            self._room_c[basis].copy_(c)
            for member in members:
                self._room_stiffness[member] = c @ (c / self._spectra[member]).mT
        torch.matmul(self._a, self._a.mT, out=self._room_hessian)
        self._move_residual(self._image(self._e))

    def grow(self, so_far: SoFar | None, pairs: int) -> None:
        """Pairs of directions while they pay; the first one is the correction so far.

        The first linearisation pays no heed to bounds: its goal is cut off there. A row that this
        leaves unexplained keeps to the components that no bound holds from then on: what is sought
        beyond the bounds and cut off again need not explain anything.
        """
        point = self._point
        self._reserve(2 * pairs + (so_far is not None))
        going = torch.ones_like(point.misfit, dtype=torch.bool)
        here = _Here(self._model, point, slice(None))
        prior = self._prior(so_far)
        if so_far is not None:
            # Back towards the start: a step further on may leave the box.
            length = norm(self._e)
            a = self._add(here, self._home.forward(-self._e))
            self._move_residual(-length[:, None] * a)
        e, left, value = self._fit(prior)
        noise = self._model.objective.count.to(value)
        free = None
        for number in range(pairs):
            rows = going.nonzero().flatten()
            if len(rows) == 0:
                break
            if 2 * len(rows) <= len(here.point.x):
                here = _Here(self._model, point, rows, charged=False)
            before = value
            for learned in (False, True):
                if learned:
                    d = self._learned(here, left, going)
                else:
                    uphill = self._uphill(here, left, going)
                    d = self._preconditioned(prior, uphill) - e
                    if number == 0 and so_far is not None:
                        free = self._free(d)
                    if free is not None:
                        # t K P (J' left - K^-1 e / t), P leaving the free components; the same
                        # as d but for round-off where all are.
                        uphill = uphill - self._stiff(prior, e)
                        among = self._preconditioned(prior, free * uphill)
                        d = torch.where((free < 1).any(1)[:, None], among, d)
                if free is not None:
                    d = self._home.forward(free * self._home.back(d))
                d = torch.where(d.isfinite().all(1)[:, None], d, 0.0)
                if len(rows) < len(going):
                    # Rows that are done have neighbours that are not: a zero costs nothing.
                    d = d * going[:, None]
                self._add(here, d, charged=going)
                e, left, value = self._fit(prior)
            going = going & (before - value > PAYS * torch.maximum(before, noise))

    def _learned(
        self, here: _Here, left: Float[Tensor, "B m"], going: Bool[Tensor, " B"]
    ) -> Float[Tensor, "B n"]:
        """Coefficients of what g makes of the residual that is left."""
        rows, point = here.rows, here.point
        noise = self._noise[rows]
        coloured = torch.where(noise.isfinite(), left[rows] * noise, 0.0)
        ahead = here.model.g(point.y + coloured.to(point.y), going[rows].to(torch.int64))
        return _placed(rows, self._home.forward(ahead - self._answer()[rows]), len(left))

    def _uphill(
        self, here: _Here, left: Float[Tensor, "B m"], going: Bool[Tensor, " B"]
    ) -> Float[Tensor, "B n"]:
        """``J' left``."""
        whitened = here.model.objective.whiten(left[here.rows].to(here.point.x))
        here.model.charge("vjp", going[here.rows].to(torch.int64))
        return _placed(here.rows, here.jacobian.vjp(whitened).double(), len(left))

    def _free(self, d: Float[Tensor, "B n"]) -> Float[Tensor, "B n"] | None:
        """1 where a component may move, 0 at a bound that ``d`` would have it cross; None if all
        may.
        """
        if self._box is None:
            return None
        free = self._box.free(self._point.x, -self._home.back(d))
        return None if bool(free.all()) else free.double()

    def _preconditioned(self, prior: _Prior, v: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """Coefficients of ``t K v``."""
        result = torch.empty_like(v)
        variances = prior.t[:, None] * self._spectra[prior.member]
        for basis, members in self._sharing.items():
            rows: Rows = slice(None)
            if len(self._sharing) > 1:
                mine = torch.isin(prior.member, torch.tensor(members, device=v.device))
                rows = mine.nonzero().flatten()
            c = basis.forward(v[rows]) * variances[rows]
            if basis is not self._home:
                c = self._home.forward(basis.back(c))
            result[rows] = c
        return result

    def _stiff(self, prior: _Prior, e: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """``K^-1 e / t`` of coefficients e."""
        result = torch.empty_like(e)
        variances = prior.t[:, None] * self._spectra[prior.member]
        for basis, members in self._sharing.items():
            mine = torch.isin(prior.member, torch.tensor(members, device=e.device))
            rows = mine.nonzero().flatten()
            c = e[rows] if basis is self._home else basis.forward(self._home.back(e[rows]))
            result[rows] = basis.back(c / variances[rows])
        return result

    def _answer(self) -> Float[Tensor, "B n"]:
        """``g(y_t)``."""
        if self._reversed is None:
            self._reversed = self._model.g(self._point.y)
        return self._reversed

    def _add(
        self,
        here: _Here,
        d: Float[Tensor, "B n"],
        charged: Bool[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B m"]:
        """One more direction, made orthonormal to the others; its image comes back."""
        model, point, rows = here.model, here.point, here.rows
        size = norm(d)
        d = self._apart(d, size)
        length = norm(d)
        # What is left of a direction that others span already is round-off.
        usable = length > 1e-6 * size
        d = torch.where(usable[:, None], d / length.clamp_min(1e-300)[:, None], 0.0)
        if not model.has_derivatives and charged is not None:
            # A value costs a simulation: only rows that ask for it have one.
            rows = charged.nonzero().flatten()
            model, point = self._model.at(rows), self._point.take(rows)
        unit = self._home.back(d[rows]).to(point.x)
        if model.has_derivatives:
            amount = 1 if charged is None else charged[rows].to(torch.int64)
            model.charge("jvp", amount)
            image = here.jacobian.jvp(unit)
        else:
            length = norm(unit / self._corrections.units.to(unit)).clamp_min(1e-30)
            step = DIFFERENCE * point.x.shape[1] ** 0.5 * unit / length[:, None]
            step = self._taken(point.x, step)
            image = model.image(point, step)
        a = torch.where(image.isfinite().all(1)[:, None], image, 0.0) / self._noise[rows]
        a = _placed(rows, a, len(d))
        if not model.has_derivatives:
            # What the box left of the direction is what the image belongs to.
            d = _placed(rows, self._home.forward(step), len(d))
            inside, taken = products(self._c, d), norm(d)
            d, a = d - self._coefficients(inside), a - self._image(inside)
            length = norm(d)
            usable = usable & (length > 1e-6 * taken)
            length = torch.where(usable, length, torch.inf)[:, None]
            d, a = d / length, a / length
        self._append(d, a)
        return a

    def _taken(self, x: Float[Tensor, "B n"], step: Tensor) -> Float[Tensor, "B n"]:
        """What the box and round-off leave of a step."""
        there = x + step
        return (there if self._box is None else self._box.project(there)) - x

    def _apart(self, d: Float[Tensor, "B n"], size: Float[Tensor, " B"]) -> Float[Tensor, "B n"]:
        """Without its part in the span. What is left of a direction that nearly lies there has
        round-off of the whole, which a second time takes away; else it grows with each direction.
        """
        d = d - self._coefficients(products(self._c, d))
        if bool((norm(d) < 0.1 * size).any()):
            d = d - self._coefficients(products(self._c, d))
        return d

    def _append(self, d: Float[Tensor, "B n"], a: Float[Tensor, "B m"]) -> None:
        """A direction with its image, and its products with those before it."""
        k = self._count
        self._count = k + 1
        self._room_a[:, k] = a
        self._room_slope[:, k] = dot(a, self._r)
        column = products(self._a, a)
        self._room_hessian[:, k, : k + 1] = self._room_hessian[:, : k + 1, k] = column
        for basis, members in self._sharing.items():
            c = d if basis is self._home else basis.forward(self._home.back(d))
            room = self._room_c[basis]
            room[:, k] = c
            columns = (c[:, None] / self._spectra[members]) @ room[:, : k + 1].mT
            self._room_stiffness[members, :, k, : k + 1] = columns.mT.movedim(2, 0)
            self._room_stiffness[members, :, : k + 1, k] = columns.mT.movedim(2, 0)

    def _move_residual(self, by: Float[Tensor, "B m"]) -> None:
        self._r = self._r + by
        self._room_slope[:, : self._count] = products(self._a, self._r)

    def _fit(self, prior: _Prior) -> tuple[Tensor, Tensor, Tensor]:
        """The correction under the prior that the span is grown with, as coefficients, and what it
        leaves.
        """
        if self._count == 0:
            return torch.zeros_like(self._e), self._r, self._r.square().sum(1)
        quadratics = self.quadratics()
        rows = torch.arange(len(prior.member), device=prior.member.device)
        stiffness = quadratics.stiffness[prior.member, rows]
        z, value, _ = quadratics.minimise(stiffness, prior.t[None])
        return self._coefficients(z[0]), self._r - self._image(z[0]), value[0]

    def _prior(self, so_far: SoFar | None) -> _Prior:
        """What each row's span is preconditioned by: its member so far."""
        members, scale = self._corrections.members, self._corrections.scale
        if so_far is not None:
            return _Prior(so_far[0], (scale * so_far[1].double()).square())
        names = [member.name for member in members]
        first = next(names.index(name) for name in FIRST_MEMBERS if name in names)
        t = torch.full_like(self._e[:, 0], (FIRST_SIZE * scale) ** 2)
        return _Prior(torch.full_like(t, first, dtype=torch.int64), t)


@dataclass(frozen=True)
class _Prior:
    """``N(0, t K)``: the member that K is, and t, of each row."""

    member: Int[Tensor, " B"]
    t: Float[Tensor, " B"]


class _Here:
    """The rows of a span that still grow, linearised."""

    def __init__(self, model: Model, point: Point, rows: Rows, *, charged: bool = True) -> None:
        self.rows = rows
        self.model = model if isinstance(rows, slice) else model.at(rows)
        self.point = point if isinstance(rows, slice) else point.take(rows)
        self.jacobian: Linearisation = self.model.linearise(self.point.x, charged=charged)


def _placed(rows: Rows, values: Float[Tensor, "k c"], count: int) -> Float[Tensor, "B c"]:
    """Values of some rows among zeros for the others."""
    if isinstance(rows, slice):
        return values
    return values.new_zeros(count, values.shape[1]).index_copy(0, rows, values)
