"""A subspace for each row, spanned by directions whose images under the Jacobian were measured.

What a correction is chosen from. Directions d are orthonormal, images ``a = J d / s`` in units of
the noise s. Each image is one product with J, or a difference of values where there are no
derivatives; so a direction may come from anywhere. What is minimised over the subspace
(``solve/evidence.py``) needs only products of what is held here.

The subspace is all of space (``fill``), or is grown from nothing (``solve/span_growth.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from deceptron.core.bases import Basis, DiagonalGaussian
from deceptron.core.box import Box
from deceptron.core.corrections import Corrections
from deceptron.solve.evidence import Quadratics, posterior_spread
from deceptron.solve.model import Model, Point
from deceptron.solve.noise import noise_limit
from deceptron.solve.rows import RowData, dot, norm, products

# Length of a difference that stands for a derivative, in units of the family's spread.
DIFFERENCE = 0.03
# Share of that length below which a difference within the box is round-off.
LEAST_ROOM = 1e-3


@dataclass(frozen=True)
class Guess(RowData):
    """What is tried before the goal, whether it is plausible at all, and its standard deviation
    where that is known.
    """

    x: Float[Tensor, "B n"]
    plausible: Bool[Tensor, " B"]
    spread: Float[Tensor, "B ?n"]


class MeasuredSpan:
    """Directions and images at the points of a batch.

    ``correction`` is the row's distance from its start so far, ``residual`` what the linearised
    problem has to explain at the start, in units of ``noise`` (infinite where nothing was
    observed). Directions are kept as coefficients in every basis that a member is diagonal in;
    ``home`` is the first of these.
    """

    def __init__(
        self,
        model: Model,
        point: Point,
        start: Float[Tensor, "B n"],
        box: Box | None,
        corrections: Corrections,
    ) -> None:
        self.model, self.point, self.box, self.corrections = model, point, box, corrections
        self.correction = (point.x - start).double()
        self.spectra = torch.stack([m.spectrum for m in corrections.members]).to(self.correction)
        self.members_of: dict[Basis, list[int]] = {}
        for number, member in enumerate(corrections.members):
            self.members_of.setdefault(member.basis, []).append(number)
        self.home = next(iter(self.members_of))
        self._stiffness = {b: 1 / self.spectra[members] for b, members in self.members_of.items()}
        self.residual = -model.objective.whiten(point.r).double()
        self.noise = 1 / model.objective.whiten(torch.ones_like(point.r)).double()
        self.reserve(0)

    def reserve(self, most: int) -> None:
        """Room for so many directions, and none yet: growing an array in place copies nothing."""
        rows, n = self.correction.shape
        empty, zeros = self.correction.new_empty, self.correction.new_zeros
        self._count = 0
        self._room_a = empty(rows, most, self.residual.shape[1])
        self._room_c = {basis: empty(rows, most, n) for basis in self.members_of}
        self._room_hessian = zeros(rows, most, most)
        self._room_stiffness = zeros(len(self.spectra), rows, most, most)
        self._room_slope = zeros(rows, most)

    @property
    def directions(self) -> Float[Tensor, "B k n"]:
        """Coefficients in the basis ``home``."""
        return self._room_c[self.home][:, : self._count]

    @property
    def images(self) -> Float[Tensor, "B k m"]:
        """Of the directions, in units of the noise."""
        return self._room_a[:, : self._count]

    def quadratics(self) -> Quadratics:
        """What is minimised over the subspace."""
        k = self._count
        return Quadratics(
            self._room_hessian[:, :k, :k],
            self._room_slope[:, :k],
            self.residual.square().sum(1),
            self._room_stiffness[:, :, :k, :k],
        )

    def coefficients(self, z: Float[Tensor, "B k"]) -> Float[Tensor, "B n"]:
        """Of the combination z of directions, in the basis ``home``."""
        return (z[:, None] @ self.directions)[:, 0]

    def combined(self, z: Float[Tensor, "B k"]) -> Float[Tensor, "B n"]:
        """The combination z of directions."""
        return self.home.back(self.coefficients(z))

    def image(self, z: Float[Tensor, "B k"]) -> Float[Tensor, "B m"]:
        """Of the combination z of directions."""
        return (z[:, None] @ self.images)[:, 0]

    def orthogonal(
        self, d: Float[Tensor, "B n"], size: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B k"]]:
        """Coefficients d, of this norm, without their part in the subspace, and that part. What is
        left of a direction that nearly lies there has round-off of the whole, which a second pass
        removes; else it grows with each direction.
        """
        inside = products(self.directions, d)
        d = d - self.coefficients(inside)
        if bool((norm(d) < 0.1 * size).any()):
            more = products(self.directions, d)
            d, inside = d - self.coefficients(more), inside + more
        return d, inside

    def append(self, d: Float[Tensor, "B n"], a: Float[Tensor, "B m"]) -> None:
        """A direction with its image, and its products with those before it."""
        k = self._count
        self._count = k + 1
        self._room_a[:, k] = a
        self._room_slope[:, k] = dot(a, self.residual)
        column = products(self.images, a)
        self._room_hessian[:, k, : k + 1] = self._room_hessian[:, : k + 1, k] = column
        for basis, members in self.members_of.items():
            c = turned(d, self.home, basis)
            room = self._room_c[basis]
            room[:, k] = c
            columns = (c[:, None] * self._stiffness[basis]) @ room[:, : k + 1].mT
            self._room_stiffness[members, :, k, : k + 1] = columns.movedim(1, 0)
            self._room_stiffness[members, :, : k + 1, k] = columns.movedim(1, 0)

    def move_residual(self, by: Float[Tensor, "B m"]) -> None:
        """What there is to explain changes by this much."""
        self.residual = self.residual + by
        self._room_slope[:, : self._count] = products(self.images, self.residual)

    def fill(self) -> None:
        """All of space, the directions being the unknowns: one product for each."""
        model, point = self.model, self.point
        n = point.x.shape[1]
        if model.has_derivatives:
            columns = model.f_jacobian(point.x).mT
        else:
            size = DIFFERENCE * self.corrections.units.to(point.x)
            # To the side with more room; a component that the box fixes has no image.
            up, down = (taken(point.x, way, self.box) for way in (size, -size))
            step = torch.where(up >= -0.999 * down, up, down)
            step = torch.where(step.abs() > LEAST_ROOM * size, step, 0.0)
            images = [model.image(point, along) for along in step.diag_embed().unbind(1)]
            columns = torch.stack(images, 1) / torch.where(step == 0, 1.0, step)[:, :, None]
        columns = torch.where(columns.isfinite().all(2)[:, :, None], columns, 0.0)
        self.reserve(n)
        self._count = n
        self._room_a.copy_(columns / self.noise[:, None])
        for basis, members in self.members_of.items():
            c = basis.forward(torch.eye(n).to(self.correction))
            self._room_c[basis].copy_(c)
            for member in members:
                self._room_stiffness[member] = c @ (c / self.spectra[member]).mT
        torch.matmul(self.images, self.images.mT, out=self._room_hessian)
        self.move_residual(self.image(self.correction))

    def posterior_mean(
        self, family: DiagonalGaussian, start: Float[Tensor, "B n"], count: Float[Tensor, "#B"]
    ) -> Guess:
        """Of the family given the data; the subspace must be all of space.

        ``min |r - A e|^2 + |x0 + e - mean|^2_C``, which is chi-squared in as many degrees of
        freedom as there are data if the row is of the family; plausible is what 99% stay below.
        """
        eye = torch.eye(start.shape[1]).to(self.correction)
        precision = family.solve(eye)
        system = self.images @ self.images.mT + precision
        off = family.mean.to(eye).flatten() - start.double()
        slope = products(self.images, self.residual) + off @ precision
        factor, failed = torch.linalg.cholesky_ex(system)
        e = torch.cholesky_solve(slope[:, :, None], factor)[:, :, 0]
        left = self.residual - self.image(e)
        value = left.square().sum(1) + ((e - off) @ precision * (e - off)).sum(1)
        spread, sound = posterior_spread(factor)
        plausible = sound & (failed == 0) & (value <= count * noise_limit(count).square())
        return Guess(start + e, plausible, spread)

    def promised(self, e: Float[Tensor, "B n"]) -> Float[Tensor, "B m"]:
        """``A e - r``, the residual of the linearised problem after the correction e; the subspace
        must be all of space.
        """
        return (self.image(e.double()) - self.residual).to(e)


def turned(c: Float[Tensor, "B n"], basis: Basis, other: Basis) -> Float[Tensor, "B n"]:
    """Coefficients in one basis as those in another."""
    return c if basis is other else other.forward(basis.back(c))


def taken(
    x: Float[Tensor, "B n"], step: Float[Tensor, "B n"], box: Box | None
) -> Float[Tensor, "B n"]:
    """What the box and round-off leave of a step."""
    there = x + step
    return (there if box is None else box.project(there)) - x
