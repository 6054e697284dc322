"""Batched damped Gauss-Newton steps over the free components: with the objective's w, k, m, M,

    min_d  |w (J d + r)|^2 + k |x + d - m|_M^2 + damping |d|_M^2

Two solvers share one protocol. ``ConjugateGradients`` is CG on the normal equations in its
least-squares form (CGLS), through jvps and vjps, preconditioned by M^-1 (with a prior: its
covariance); a row that has converged stops moving, and is not charged. ``Dense`` forms J once per
point: without a prior its SVD, after which any damping is a product, else the normal equations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.checks import check_count, check_range
from deceptron.core.differentiate import Linearisation
from deceptron.solve.model import Model, Point
from deceptron.solve.objective import LeastSquares
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
class Start(RowData):
    """A first guess d and its image J d."""

    d: Float[Tensor, "B n"]
    image: Float[Tensor, "B m"]


@dataclass(frozen=True)
class ConjugateGradients:
    """At most ``max_steps`` steps, or to a gradient of ``tolerance`` times that at the start.

    Gradients of the quadratic are measured in the dual norm of the metric, |M^-1/2 .|. With
    ``to_noise`` a row also stops once its linearised residual is down to the noise level: what is
    left is noise, and fitting it is what makes an ill-posed problem diverge (a prior sees to that
    itself, so with one the rule is off).
    """

    max_steps: int = 100
    tolerance: float = 1e-6
    to_noise: bool = False

    def __post_init__(self) -> None:
        check_count("ConjugateGradients(max_steps=...)", self.max_steps)
        check_range("ConjugateGradients(tolerance=...)", self.tolerance, low=0)

    def factor(self, model: Model, point: Point, box: Box | None) -> Free:
        """Only the mask: products with J are made as the iteration asks for them."""
        return Free(free_components(point, box))

    def solve(
        self,
        model: Model,
        point: Point,
        factors: RowData,
        damping: Float[Tensor, " B"],
        start: Start | None = None,
    ) -> Float[Tensor, "B n"]:
        """Iterate; rows that have converged leave once they are half of the company."""
        assert isinstance(factors, Free)
        objective = model.objective
        rows = len(point.x)
        jacobian = model.linearise(point.x)
        # s = -w (J d + r); z is minus the gradient of the quadratic. At d = 0 the point carries
        # it, elsewhere it costs a vjp.
        d, s = torch.zeros_like(point.x), -objective.weigh(point.r)
        z = -point.gradient * factors.free
        if start is not None and bool((moved := start.d.any(1)).any()):
            model.charge("vjp", moved.to(torch.int64))
            d, s = start.d, s - objective.weigh(start.image)
            z = _downhill(objective, jacobian, point.x, d, s, damping[:, None]) * factors.free
        p = objective.precondition(z) * factors.free
        steps = torch.zeros(rows, dtype=torch.int64, device=point.x.device)
        solved = _Rows(
            index=torch.arange(rows, device=point.x.device),
            x=point.x,
            free=factors.free,
            damping=damping[:, None],
            d=d,
            s=s,
            z=z,
            p=p,
        )
        step_out = torch.zeros_like(point.x)
        gamma = dot(z, p)
        goal = self.tolerance**2 * gamma
        going = (gamma > 0) & self._above_noise(objective, s)

        for _ in range(self.max_steps):
            live = going.nonzero().flatten()
            if len(live) == 0:
                break
            if 2 * len(live) <= len(going):
                step_out[solved.index] = solved.d
                solved = solved.take(live)
                gamma, goal, going = gamma[live], goal[live], going[live]
                # A row's count must not depend on its neighbours.
                jacobian = model.linearise(solved.x, charged=False)
            steps[solved.index] += going
            q = objective.weigh(jacobian.jvp(solved.p))
            stiffness = objective.stiffness + solved.damping[:, 0]
            curvature = dot(q, q) + stiffness * dot(solved.p, objective.metric(solved.p))
            # A direction without curvature (or NaN) ends the row where it is.
            moving = going & (curvature > 0) & curvature.isfinite()
            alpha = torch.where(moving, gamma / torch.where(moving, curvature, 1.0), 0.0)[:, None]
            d = torch.where(moving[:, None], solved.d + alpha * solved.p, solved.d)
            s = torch.where(moving[:, None], solved.s - alpha * q, solved.s)
            z = _downhill(objective, jacobian, solved.x, d, s, solved.damping) * solved.free
            preconditioned = objective.precondition(z) * solved.free
            gamma_next = dot(z, preconditioned)
            beta = torch.where(moving, gamma_next / torch.where(moving, gamma, 1.0), 0.0)[:, None]
            solved = solved.moved(d=d, s=s, z=z, p=preconditioned + beta * solved.p)
            gamma = gamma_next
            going = moving & (gamma > goal) & gamma.isfinite() & self._above_noise(objective, s)

        step_out[solved.index] = solved.d
        for kind in ("jvp", "vjp", "linear_steps"):
            model.charge(kind, steps)
        return step_out

    def _above_noise(self, objective: LeastSquares, s: Float[Tensor, "B m"]) -> Tensor:
        if not self.to_noise:
            return torch.ones_like(s[:, 0], dtype=torch.bool)
        return ~objective.only_noise(s)


def _downhill(
    objective: LeastSquares,
    jacobian: Linearisation,
    x: Float[Tensor, "B n"],
    d: Float[Tensor, "B n"],
    s: Float[Tensor, "B m"],
    damping: Float[Tensor, "B 1"],
) -> Float[Tensor, "B n"]:
    """Minus the gradient of the damped quadratic at d."""
    z = jacobian.vjp(objective.weigh(s)) - damping * objective.metric(d)
    pull = objective.pull(x + d)
    return z if pull is None else z - pull


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
class Normal(RowData):
    """J'w^2 J and the mask."""

    curvature: Float[Tensor, "B n n"]
    free: Float[Tensor, "B n"]


@dataclass(frozen=True)
class Dense:
    """SVD of the dense Jacobian; singular values below round-off count as zero (damping 0 too).

    With a prior the normal equations are well conditioned, and solved as they are.
    """

    def factor(self, model: Model, point: Point, box: Box | None) -> Spectrum | Normal:
        """n jvps and one SVD a row."""
        free = free_components(point, box)
        jacobian = model.f_jacobian(point.x) * free[:, None, :]
        # LAPACK refuses NaN for the whole batch; such a row gets a zero step instead.
        usable = jacobian.isfinite().all((1, 2))
        jacobian = torch.where(usable[:, None, None], jacobian, 0.0)
        if model.objective.stiffness > 0:
            weighted = model.objective.weigh(jacobian.mT).mT
            return Normal(weighted.mT @ weighted, free * usable[:, None])
        left, values, right = torch.linalg.svd(jacobian, full_matrices=False)
        coefficients = (left.mT @ point.r[:, :, None])[:, :, 0]
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
        nonzero = values > floor
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
