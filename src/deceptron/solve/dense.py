"""Small problems: J is formed once per point.

Without a prior its SVD is taken, after which any damping is a product, else the normal equations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.box import Box
from deceptron.solve.linear import free_components
from deceptron.solve.model import Model, Point
from deceptron.solve.rows import RowData


@dataclass(frozen=True)
class Spectrum(RowData):
    """Singular values, right vectors, the residual in the basis of the left ones, the mask."""

    values: Float[Tensor, "B k"]
    right: Float[Tensor, "B k n"]
    coefficients: Float[Tensor, "B k"]
    free: Float[Tensor, "B n"]


@dataclass(frozen=True)
class Normal(RowData):
    """J'w^2 J and the mask."""

    curvature: Float[Tensor, "B n n"]
    free: Float[Tensor, "B n"]


@dataclass(frozen=True)
class Dense:
    """SVD of the dense Jacobian; singular values below round-off count as zero (damping 0 too),
    unless the damping is larger.

    With a prior the normal equations are well conditioned, and solved as they are.
    """

    def factor(self, model: Model, point: Point, box: Box | None) -> Spectrum | Normal:
        """n jvps and one SVD a row."""
        free = free_components(point, box)
        jacobian = model.f_jacobian(point.x) * free[:, None, :]
        # LAPACK refuses NaN for the whole batch; such a row gets a zero step instead.
        usable = jacobian.isfinite().all((1, 2))
        jacobian = torch.where(usable[:, None, None], jacobian, 0.0)
        weighted = model.objective.weigh_columns(jacobian)
        if model.objective.has_prior:
            return Normal(weighted.mT @ weighted, free * usable[:, None])
        left, values, right = torch.linalg.svd(weighted, full_matrices=False)
        coefficients = (left.mT @ model.objective.weigh(point.r)[:, :, None])[:, :, 0]
        return Spectrum(values, right, coefficients, free)

    def solve(
        self, model: Model, point: Point, factors: RowData, damping: Float[Tensor, " B"]
    ) -> Float[Tensor, "B n"]:
        """d = -V s / (s^2 + damping) U'r, or by the normal equations."""
        if isinstance(factors, Normal):
            return _solve_normal(model, point, factors, damping)
        assert isinstance(factors, Spectrum)
        values, c = factors.values, factors.coefficients
        size = max(point.x.shape[1], point.r.shape[1])
        floor = torch.finfo(values.dtype).eps * size * values[:, :1]
        # Damping beyond floor^2 filters such values itself, and they may be all that is left to do.
        nonzero = (values > floor) | (damping[:, None] > floor.square())
        filtered = torch.where(nonzero, values / (values.square() + damping[:, None]), 0.0)
        # The mask is exact where the SVD is zero only to round-off: a component that leaves its
        # bound by 1e-17 would be free in the next iteration.
        return -(factors.right.mT @ (filtered * c)[:, :, None])[:, :, 0] * factors.free


def _solve_normal(
    model: Model, point: Point, factors: Normal, damping: Float[Tensor, " B"]
) -> Float[Tensor, "B n"]:
    objective, free = model.objective, factors.free
    identity = torch.eye(free.shape[1], dtype=free.dtype, device=free.device)
    stiffness = (objective.stiffness + damping)[:, None, None]
    matrix = factors.curvature + stiffness * objective.metric(identity)
    matrix = matrix * free[:, :, None] * free[:, None, :] + torch.diag_embed(1 - free)
    pulled = torch.where(free > 0, -point.gradient, 0.0)
    return torch.linalg.solve(matrix, pulled[:, :, None])[:, :, 0] * free
