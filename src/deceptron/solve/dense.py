"""Small problems: J is formed once per point, and its normal equations solved for any damping.

Cholesky factors in double precision serve all but rows so ill conditioned that squaring J has lost
what they need: those take an SVD. A row decides that by its own factor.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from deceptron.core.box import Box
from deceptron.solve.model import Model, Point
from deceptron.solve.rows import RowData

# The share of a step that round-off may be: condition times precision.
_LOST = 1e-4


@dataclass(frozen=True)
class Columns(RowData):
    """w J without its fixed columns, and the mask of those that are held; None: there is no box."""

    jacobian: Float[Tensor, "B m n"]
    held: Bool[Tensor, "B n"] | None


@dataclass(frozen=True)
class Dense:
    """Singular values below round-off count as zero (damping 0 too), if the damping is smaller."""

    def factor(self, model: Model, point: Point, box: Box | None) -> Columns:
        """n jvps a row."""
        jacobian = model.objective.weigh_columns(model.f_jacobian(point.x))
        if box is None:
            return Columns(jacobian, None)
        held = ~box.free(point.x, point.gradient)
        return Columns(jacobian.masked_fill(held[:, None, :], 0.0), held)

    def solve(
        self, model: Model, point: Point, factors: RowData, damping: Float[Tensor, " B"]
    ) -> Float[Tensor, "B n"]:
        """d = -(J'w^2 J + (k + damping) M)^-1 gradient, over the free components."""
        assert isinstance(factors, Columns)
        matrix = _normal_matrix(model, factors, damping)
        pulled = _pulled(point, factors)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        step = _solved(factor, pulled.to(matrix)).to(pulled)
        sound = _sound(factor) & (failed == 0)
        if not bool(sound.all()):
            bad = ~sound
            # A row whose J is not finite stays where it is, and no other row feels it.
            step[bad] = 0.0
            rows = bad.nonzero().flatten()
            rows = rows[factors.jacobian[rows].sum((1, 2)).isfinite()]
            step[rows] = _solve_again(
                model.at(rows), point.take(rows), factors.take(rows), matrix[rows], damping[rows]
            )
        # The mask is exact where a factor is zero only to round-off: a component that leaves its
        # bound by 1e-17 would be free in the next iteration.
        return step if factors.held is None else step.masked_fill_(factors.held, 0.0)


def _normal_matrix(
    model: Model, factors: Columns, damping: Float[Tensor, " B"]
) -> Float[Tensor, "B n n"]:
    """Products of single precision are exact in double precision."""
    objective, held = model.objective, factors.held
    wide = factors.jacobian.to(_wide(factors.jacobian))
    matrix = torch.bmm(wide.mT, wide)
    if not objective.has_prior:
        diagonal = damping.to(matrix).unsqueeze(1)
        diagonal = diagonal if held is None else torch.where(held, 1.0, diagonal)
        matrix.diagonal(dim1=1, dim2=2).add_(diagonal)
        return matrix
    n, stiffness = matrix.shape[1], (objective.stiffness + damping).to(matrix)
    identity = torch.eye(n, dtype=factors.jacobian.dtype, device=matrix.device)
    matrix = matrix + stiffness[:, None, None] * objective.metric(identity)
    if held is None:
        return matrix
    free = (~held).to(factors.jacobian)
    return matrix * free[:, :, None] * free[:, None, :] + torch.diag_embed(1 - free)


def _pulled(point: Point, factors: Columns) -> Float[Tensor, "B n"]:
    pulled = point.gradient.neg()
    return pulled if factors.held is None else pulled.masked_fill_(factors.held, 0.0)


def _solved(factor: Float[Tensor, "B n n"], v: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
    # As torch.cholesky_solve, which copies the factors of many rows first.
    halfway = torch.linalg.solve_triangular(factor, v.unsqueeze(2), upper=False)
    return torch.linalg.solve_triangular(factor.mT, halfway, upper=True).squeeze(2)


def _sound(factor: Float[Tensor, "B n n"]) -> Bool[Tensor, " B"]:
    """Where the diagonal of a Cholesky factor shows a condition that leaves enough digits."""
    low, high = factor.diagonal(dim1=1, dim2=2).aminmax(dim=1)
    return low >= (torch.finfo(factor.dtype).eps / _LOST) ** 0.5 * high


def _solve_again(
    model: Model,
    point: Point,
    factors: Columns,
    matrix: Float[Tensor, "B n n"],
    damping: Float[Tensor, " B"],
) -> Float[Tensor, "B n"]:
    """The rows whose factor says too little: by J itself; a prior has no factor to square."""
    if model.objective.has_prior:
        pulled = _pulled(point, factors)
        solved, failed = torch.linalg.solve_ex(matrix, pulled.to(matrix)[:, :, None])
        # A step of NaN ends its own row only.
        return torch.where(failed[:, None] == 0, solved[:, :, 0], torch.nan).to(pulled)
    left, values, right = torch.linalg.svd(factors.jacobian, full_matrices=False)
    c = (left.mT @ model.objective.weigh(point.r)[:, :, None])[:, :, 0]
    size = max(point.x.shape[1], point.r.shape[1])
    floor = torch.finfo(values.dtype).eps * size * values[:, :1]
    # Damping beyond floor^2 filters such values itself, and they may be all that is left to do.
    nonzero = (values > floor) | (damping[:, None] > floor.square())
    filtered = torch.where(nonzero, values / (values.square() + damping[:, None]), 0.0)
    return -(right.mT @ (filtered * c)[:, :, None])[:, :, 0]


def _wide(like: Tensor) -> torch.dtype:
    return like.dtype if like.device.type == "mps" else torch.float64
