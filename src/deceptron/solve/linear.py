"""Batched damped least squares: min_d |J d + r|^2 + damping |d|^2 over the free components.

Two solvers share one protocol. ``ConjugateGradients`` is CG on the normal equations in its
least-squares form (CGLS), through jvps and vjps; a row that has converged stops moving, and is not
charged. ``Dense`` forms J and its SVD once per point, after which any damping is a product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.checks import check_count, check_range
from deceptron.solve.model import Model, Point
from deceptron.solve.rows import RowData, dot


class LinearSolver(Protocol):
    """Prepares a linearisation once per point, then solves it for any damping."""

    def factor(self, model: Model, point: Point, box: Box | None) -> RowData:
        """What the solves at this point share."""
        ...

    def solve(
        self, model: Model, point: Point, factors: RowData, damping: Float[Tensor, " B"]
    ) -> Float[Tensor, "B n"]:
        """The step d."""
        ...


def free_components(point: Point, box: Box | None) -> Float[Tensor, "B n"]:
    """1 where a step may move, 0 where -gradient pushes against a bound that is already reached.

    Restricting the quadratic model to the free components is what keeps a projected Newton step a
    descent step (Bertsekas 1982).
    """
    if box is None:
        return torch.ones_like(point.x)
    return box.free(point.x, point.gradient).to(point.x.dtype)


@dataclass(frozen=True)
class Free(RowData):
    """The mask of free components."""

    free: Float[Tensor, "B n"]


@dataclass(frozen=True)
class ConjugateGradients:
    """CGLS to |J'(J d + r) + damping d| <= tolerance |J'r|, at most ``max_steps`` steps."""

    max_steps: int = 100
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        check_count("ConjugateGradients(max_steps=...)", self.max_steps)
        check_range("ConjugateGradients(tolerance=...)", self.tolerance, low=0)

    def factor(self, model: Model, point: Point, box: Box | None) -> Free:
        """Only the mask: products with J are made as the iteration asks for them."""
        return Free(free_components(point, box))

    def solve(
        self, model: Model, point: Point, factors: RowData, damping: Float[Tensor, " B"]
    ) -> Float[Tensor, "B n"]:
        """Iterate; rows that have converged leave once they are half of the company."""
        assert isinstance(factors, Free)
        rows = len(point.x)
        steps = torch.zeros(rows, dtype=torch.int64, device=point.x.device)
        solved = _Rows(
            index=torch.arange(rows, device=point.x.device),
            x=point.x,
            free=factors.free,
            damping=damping[:, None],
            d=torch.zeros_like(point.x),
            s=-point.r,  # -(J d + r)
            # J'r is the gradient that the point carries: no extra vjp.
            z=-point.gradient * factors.free,
            p=-point.gradient * factors.free,
        )
        step_out = torch.zeros_like(point.x)
        gamma = dot(solved.z, solved.z)
        goal = self.tolerance**2 * gamma
        going = gamma > 0
        # The graph that the products run over costs a forward and a backward pass. Rebuilding it
        # for a smaller company is not charged: a row's count must not depend on its neighbours.
        model.charge("f")
        model.charge("vjp")
        jacobian = model.linearise(point.x)

        for _ in range(self.max_steps):
            live = going.nonzero().flatten()
            if len(live) == 0:
                break
            if 2 * len(live) <= len(going):
                step_out[solved.index] = solved.d
                solved = solved.take(live)
                gamma, goal, going = gamma[live], goal[live], going[live]
                jacobian = model.linearise(solved.x)
            steps[solved.index] += going
            q = jacobian.jvp(solved.p)
            curvature = dot(q, q) + solved.damping[:, 0] * dot(solved.p, solved.p)
            # A direction without curvature (or NaN) ends the row where it is.
            moving = going & (curvature > 0) & curvature.isfinite()
            alpha = torch.where(moving, gamma / torch.where(moving, curvature, 1.0), 0.0)[:, None]
            d = torch.where(moving[:, None], solved.d + alpha * solved.p, solved.d)
            s = torch.where(moving[:, None], solved.s - alpha * q, solved.s)
            z = (jacobian.vjp(s) - solved.damping * d) * solved.free
            gamma_next = dot(z, z)
            beta = torch.where(moving, gamma_next / torch.where(moving, gamma, 1.0), 0.0)[:, None]
            solved = solved.moved(d=d, s=s, z=z, p=z + beta * solved.p)
            gamma = gamma_next
            going = moving & (gamma > goal) & gamma.isfinite()

        step_out[solved.index] = solved.d
        for kind in ("jvp", "vjp", "linear_steps"):
            model.charge(kind, steps)
        return step_out


@dataclass(frozen=True)
class _Rows(RowData):
    """The vectors of CGLS for the rows still in company."""

    index: Tensor
    x: Tensor
    free: Tensor
    damping: Tensor
    d: Tensor
    s: Tensor
    z: Tensor
    p: Tensor

    def moved(self, *, d: Tensor, s: Tensor, z: Tensor, p: Tensor) -> _Rows:
        return _Rows(self.index, self.x, self.free, self.damping, d, s, z, p)


@dataclass(frozen=True)
class Spectrum(RowData):
    """Singular values, right vectors, the residual in the basis of the left ones, the mask."""

    values: Float[Tensor, "B k"]
    right: Float[Tensor, "B k n"]
    coefficients: Float[Tensor, "B k"]
    free: Float[Tensor, "B n"]


@dataclass(frozen=True)
class Dense:
    """SVD of the dense Jacobian; singular values below round-off count as zero (damping 0 too)."""

    def factor(self, model: Model, point: Point, box: Box | None) -> Spectrum:
        """n jvps and one SVD a row."""
        free = free_components(point, box)
        jacobian = model.f_jacobian(point.x) * free[:, None, :]
        # LAPACK refuses NaN for the whole batch; such a row gets a zero step instead.
        usable = jacobian.isfinite().all((1, 2))
        left, values, right = torch.linalg.svd(
            torch.where(usable[:, None, None], jacobian, 0.0), full_matrices=False
        )
        coefficients = (left.mT @ point.r[:, :, None])[:, :, 0]
        return Spectrum(values, right, coefficients, free)

    def solve(
        self, model: Model, point: Point, factors: RowData, damping: Float[Tensor, " B"]
    ) -> Float[Tensor, "B n"]:
        """d = -V s / (s^2 + damping) U'r."""
        assert isinstance(factors, Spectrum)
        values, c = factors.values, factors.coefficients
        size = max(point.x.shape[1], point.r.shape[1])
        floor = torch.finfo(values.dtype).eps * size * values[:, :1]
        nonzero = values > floor
        filtered = torch.where(nonzero, values / (values.square() + damping[:, None]), 0.0)
        # The mask is exact where the SVD is zero only to round-off: a component that leaves its
        # bound by 1e-17 would be free in the next iteration.
        return -(factors.right.mT @ (filtered * c)[:, :, None])[:, :, 0] * factors.free
