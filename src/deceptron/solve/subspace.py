"""A subspace for each row, spanned by directions whose images under the Jacobian were measured.

What an answer is chosen from. Directions d are orthonormal, images ``a = J d / s`` in units of
the noise s. Each image is one product with J, or a difference of values where there are no
derivatives; so a direction may come from anywhere. What is minimised over the subspace
(``laws/score.py``) needs only products of what is held here.

The subspace is all of space (``fill``), or is grown from nothing (``solve/growth.py``).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.bases import Basis
from deceptron.core.box import Box
from deceptron.laws.law import Laws
from deceptron.laws.score import Quadratics
from deceptron.solve.model import Model, Point
from deceptron.solve.rows import dot, norm, products

# Length of a difference that stands for a derivative, in units of the family's spread.
DIFFERENCE = 0.03
# Share of that length below which a difference within the box is round-off.
LEAST_ROOM = 1e-3


class Subspace:
    """Directions and images at the points of a batch.

    ``offset`` is how far the row is from its ``origin``, the mean of its laws; ``residual`` what
    the linearised problem has to explain there, in units of ``noise`` (infinite where nothing was
    observed). Directions are kept as coefficients in every basis that a shape is diagonal in;
    ``home`` is the first of these.
    """

    def __init__(
        self,
        model: Model,
        point: Point,
        origin: Float[Tensor, "B n"],
        box: Box | None,
        laws: Laws,
    ) -> None:
        self.model, self.point, self.box, self.laws = model, point, box, laws
        self.offset = (point.x - origin).double()
        self.spectra = torch.stack([shape.spectrum for shape in laws.shapes]).to(self.offset)
        self.shapes_of: dict[Basis, list[int]] = {}
        for number, shape in enumerate(laws.shapes):
            self.shapes_of.setdefault(shape.basis, []).append(number)
        self.home = next(iter(self.shapes_of))
        self._stiffness = {b: 1 / self.spectra[shapes] for b, shapes in self.shapes_of.items()}
        self.residual = -model.objective.whiten(point.r).double()
        self.noise = 1 / model.objective.whiten(torch.ones_like(point.r)).double()
        self.reserve(0)

    def reserve(self, most: int) -> None:
        """Room for so many directions, and none yet: growing an array in place copies nothing."""
        rows, n = self.offset.shape
        empty, zeros = self.offset.new_empty, self.offset.new_zeros
        self._count = 0
        self._room_a = empty(rows, most, self.residual.shape[1])
        self._room_c = {basis: empty(rows, most, n) for basis in self.shapes_of}
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
        for basis, shapes in self.shapes_of.items():
            c = turned(d, self.home, basis)
            room = self._room_c[basis]
            room[:, k] = c
            columns = (c[:, None] * self._stiffness[basis]) @ room[:, : k + 1].mT
            self._room_stiffness[shapes, :, k, : k + 1] = columns.movedim(1, 0)
            self._room_stiffness[shapes, :, : k + 1, k] = columns.movedim(1, 0)

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
            size = DIFFERENCE * self.laws.units.to(point.x)
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
        for basis, shapes in self.shapes_of.items():
            c = basis.forward(torch.eye(n).to(self.offset))
            self._room_c[basis].copy_(c)
            for shape in shapes:
                self._room_stiffness[shape] = c @ (c / self.spectra[shape]).mT
        torch.matmul(self.images, self.images.mT, out=self._room_hessian)
        self.move_residual(self.image(self.offset))

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
