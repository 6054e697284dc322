"""Small problems: J is formed once per point, and its normal equations solved for any damping.

Cholesky factors in double precision serve all but rows so ill conditioned that squaring J has lost
what they need: those take an SVD. A row decides that by its own factor.
"""

from __future__ import annotations

import math
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
    """w J without its fixed columns, and the mask of those that are held."""

    jacobian: Float[Tensor, "B m n"]
    held: Bool[Tensor, "B n"]


@dataclass(frozen=True)
class Dense:
    """Singular values below round-off count as zero (damping 0 too), if the damping is smaller."""

    def factor(self, model: Model, point: Point, box: Box | None) -> Columns:
        """n jvps a row."""
        jacobian = model.objective.weigh_columns(model.f_jacobian(point.x))
        if box is None:
            held = torch.zeros_like(point.x, dtype=torch.bool)
        else:
            held = ~box.free(point.x, point.gradient)
            jacobian = jacobian.masked_fill(held[:, None, :], 0.0)
        if not math.isfinite(float(jacobian.sum())):
            # A row that is not finite gets a zero step, and no other row feels it.
            finite = jacobian.sum((1, 2)).isfinite()
            held = held | ~finite[:, None]
            jacobian = torch.where(finite[:, None, None], jacobian, 0.0)
        return Columns(jacobian, held)

    def solve(
        self, model: Model, point: Point, factors: RowData, damping: Float[Tensor, " B"]
    ) -> Float[Tensor, "B n"]:
        """d = -(J'w^2 J + (k + damping) M)^-1 gradient, over the free components."""
        assert isinstance(factors, Columns)
        matrix = _normal_matrix(model, factors, damping)
        pulled = _pulled(point, factors)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        step = torch.cholesky_solve(pulled.to(matrix).unsqueeze(2), factor).squeeze(2).to(pulled)
        bad = _lost(factor) | (failed > 0)
        if bool(bad.any()):
            rows = bad.nonzero().flatten()
            again = _solve_again(
                model.at(rows), point.take(rows), factors.take(rows), matrix[rows], damping[rows]
            )
            step[rows] = again
        # The mask is exact where a factor is zero only to round-off: a component that leaves its
        # bound by 1e-17 would be free in the next iteration.
        return step.masked_fill_(factors.held, 0.0)


def _normal_matrix(
    model: Model, factors: Columns, damping: Float[Tensor, " B"]
) -> Float[Tensor, "B n n"]:
    """Products of single precision are exact in double precision."""
    objective, held = model.objective, factors.held
    wide = factors.jacobian.to(_wide(factors.jacobian))
    matrix = wide.mT @ wide
    stiffness = (objective.stiffness + damping).to(matrix)
    if not objective.has_prior:
        diagonal = torch.where(held, 1.0, stiffness.unsqueeze(1))
        matrix.diagonal(dim1=1, dim2=2).add_(diagonal)
        return matrix
    free = (~held).to(factors.jacobian)
    identity = torch.eye(free.shape[1], dtype=free.dtype, device=free.device)
    matrix = matrix + stiffness[:, None, None] * objective.metric(identity)
    return matrix * free[:, :, None] * free[:, None, :] + torch.diag_embed(1 - free)


def _pulled(point: Point, factors: Columns) -> Float[Tensor, "B n"]:
    return point.gradient.neg().masked_fill_(factors.held, 0.0)


def _lost(factor: Float[Tensor, "B n n"]) -> Bool[Tensor, " B"]:
    """Where the diagonal of a Cholesky factor shows a condition that leaves too few digits."""
    low, high = factor.diagonal(dim1=1, dim2=2).aminmax(dim=1)
    return ~(low >= (torch.finfo(factor.dtype).eps / _LOST) ** 0.5 * high)


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
        return torch.linalg.solve(matrix, pulled.to(matrix)[:, :, None])[:, :, 0].to(pulled)
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
