"""CG on the normal equations in its least-squares form (CGLS), through jvps and vjps.

Preconditioned by M^-1 (with a prior: its covariance). A row that has converged stops moving, and is
not charged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.checks import check_count, check_range
from deceptron.core.differentiate import Linearisation
from deceptron.solve.model import Model, Point
from deceptron.solve.objective import LeastSquares
from deceptron.solve.rows import RowData, dot
from deceptron.solve.span import Span


@dataclass(frozen=True)
class Face(RowData):
    """The mask of free components, and how far a step may go in each."""

    free: Float[Tensor, "B n"]
    low: Float[Tensor, "B n"]
    high: Float[Tensor, "B n"]


@dataclass(frozen=True)
class ConjugateGradients:
    """At most ``max_steps`` steps, or to a gradient of ``tolerance`` times that at the start.

    Gradients of the quadratic are measured in the dual norm of the metric, |M^-1/2 .|. With
    ``to_noise`` a row also stops once its linearised residual is down to the noise level: what is
    left is noise, and fitting it is what makes an ill-posed problem diverge (a prior sees to that
    itself, so with one the rule is off).

    Steps that leave the box are left to whoever projects them, unless ``in_box``: then the
    quadratic is minimised over the box. An iterate that leaves it is clipped, if the quadratic is
    lower there, or else stops at the first bound, and CG starts again on the face where it is (as
    in the active set methods of More and Toraldo 1991, and Dostal 1997). The step descends whatever
    the conditioning, where a projected Newton step need not.
    """

    max_steps: int = 100
    tolerance: float = 1e-6
    to_noise: bool = False
    in_box: bool = False

    def __post_init__(self) -> None:
        check_count("ConjugateGradients(max_steps=...)", self.max_steps)
        check_range("ConjugateGradients(tolerance=...)", self.tolerance, low=0)

    def factor(self, model: Model, point: Point, box: Box | None) -> Face:
        """Only the mask and the room: products with J are made as the iteration asks for them."""
        free = point.free(box)
        nothing = torch.zeros_like(point.x)
        if box is None or not self.in_box:
            return Face(free, nothing - torch.inf, nothing + torch.inf)
        return Face(free, box.low - point.x, box.high - point.x)

    def solve(
        self,
        model: Model,
        point: Point,
        factors: RowData,
        damping: Float[Tensor, " B"],
        start: Span | None = None,
    ) -> Float[Tensor, "B n"]:
        """Iterate, from the step of ``start``; rows that have converged leave once they are half
        of the rows.
        """
        assert isinstance(factors, Face)
        objective = model.objective
        rows = len(point.x)
        jacobian = model.linearise(point.x)
        quadratic = _Quadratic(objective, jacobian)
        # s = -w (J d + r); z is minus the gradient of the quadratic. At d = 0 the point carries
        # it, elsewhere it costs a vjp.
        solved = _Rows(
            index=torch.arange(rows, device=point.x.device),
            x=point.x,
            free=factors.free,
            low=factors.low,
            high=factors.high,
            damping=damping[:, None],
            d=torch.zeros_like(point.x),
            s=-objective.weigh(point.r),
            z=-point.gradient * factors.free,
            p=torch.zeros_like(point.x),
        )
        if start is not None and bool((moved := start.d.any(1)).any()):
            model.charge("vjp", moved.to(torch.int64))
            solved = replace(solved, d=start.d, s=solved.s - objective.weigh(start.image))
            solved, clipped = quadratic.clipped_start(solved)
            model.charge("jvp", clipped.to(torch.int64))
            z = quadratic.downhill(solved)
            if self.in_box:
                solved = solved.on_face(z, moved)
            solved = replace(solved, z=torch.where(moved[:, None], z * solved.free, solved.z))
        solved = replace(solved, p=objective.precondition(solved.z) * solved.free)
        steps = torch.zeros(rows, dtype=torch.int64, device=point.x.device)
        bends = torch.zeros_like(steps)
        step_out = torch.zeros_like(point.x)
        gamma = dot(solved.z, solved.p)
        goal = self.tolerance**2 * gamma
        going = (gamma > 0) & self._above_noise(objective, solved.s)

        for _ in range(self.max_steps):
            live = going.nonzero().flatten()
            if len(live) == 0:
                break
            if 2 * len(live) <= len(going):
                step_out[solved.index] = solved.d
                solved = solved.take(live)
                gamma, goal, going = gamma[live], goal[live], going[live]
                objective = model.objective.at(solved.index)
                # A row's count must not depend on its neighbours.
                quadratic = _Quadratic(objective, model.linearise(solved.x, charged=False))
            steps[solved.index] += going
            q = objective.weigh(quadratic.jacobian.jvp(solved.p))
            stiffness = objective.stiffness + solved.damping[:, 0]
            curvature = dot(q, q) + stiffness * dot(solved.p, objective.metric(solved.p))
            # A direction without curvature (or NaN) ends the row where it is.
            moving = going & (curvature > 0) & curvature.isfinite()
            alpha = torch.where(moving, gamma / torch.where(moving, curvature, 1.0), 0.0)[:, None]
            d = torch.where(moving[:, None], solved.d + alpha * solved.p, solved.d)
            s = torch.where(moving[:, None], solved.s - alpha * q, solved.s)
            bent = solved.left_by(d)
            if bool(bent.any()):
                bends[solved.index] += bent
                solved = quadratic.bent(solved, d, s, bent)
            else:
                solved = replace(solved, d=d, s=s)
            z = quadratic.downhill(solved)
            if bool(bent.any()):
                solved = solved.on_face(z, bent)
            z = z * solved.free
            preconditioned = objective.precondition(z) * solved.free
            gamma_next = dot(z, preconditioned)
            onward = moving & ~bent
            beta = torch.where(onward, gamma_next / torch.where(onward, gamma, 1.0), 0.0)[:, None]
            solved = replace(solved, z=z, p=preconditioned + beta * solved.p)
            gamma = gamma_next
            going = moving & (gamma > goal) & gamma.isfinite()
            going = going & self._above_noise(objective, solved.s)

        step_out[solved.index] = solved.d
        for kind in ("jvp", "vjp", "linear_steps"):
            model.charge(kind, steps)
        model.charge("jvp", bends)
        return step_out

    def _above_noise(self, objective: LeastSquares, s: Float[Tensor, "B m"]) -> Tensor:
        if not self.to_noise:
            return torch.ones_like(s[:, 0], dtype=torch.bool)
        return ~objective.only_noise(s)


@dataclass(frozen=True)
class _Rows(Face):
    """The vectors of CGLS for the rows that are still iterated."""

    index: Tensor
    x: Tensor
    damping: Tensor
    d: Tensor
    s: Tensor
    z: Tensor
    p: Tensor

    def left_by(self, d: Float[Tensor, "B n"]) -> Bool[Tensor, " B"]:
        """Whose steps leave the room."""
        return ((d < self.low) | (d > self.high)).any(1)

    def on_face(self, z: Float[Tensor, "B n"], rows: Bool[Tensor, " B"]) -> _Rows:
        """Components of ``rows`` at a bound that z pushes against are fixed, all others free."""
        fixed = ((self.d <= self.low) & (z < 0)) | ((self.d >= self.high) & (z > 0))
        return replace(self, free=torch.where(rows[:, None], (~fixed).to(z), self.free))


@dataclass(frozen=True)
class _Quadratic:
    """The damped quadratic at the rows' d, known by s = -w (J d + r)."""

    objective: LeastSquares
    jacobian: Linearisation

    def value(self, rows: _Rows) -> Float[Tensor, " B"]:
        damped = rows.damping[:, 0] * dot(rows.d, self.objective.metric(rows.d))
        return self.objective.value(rows.x + rows.d, 0.5 * dot(rows.s, rows.s)) + 0.5 * damped

    def downhill(self, rows: _Rows) -> Float[Tensor, "B n"]:
        """Minus the gradient."""
        z = self.jacobian.vjp(self.objective.weigh(rows.s))
        z = z - rows.damping * self.objective.metric(rows.d)
        pull = self.objective.pull(rows.x + rows.d)
        return z if pull is None else z - pull

    def clipped(self, rows: _Rows) -> _Rows:
        """The rows with d clipped to their room, for one product with J."""
        d = rows.d.clamp(rows.low, rows.high)
        s = rows.s - self.objective.weigh(self.jacobian.jvp(d - rows.d))
        return replace(rows, d=d, s=s)

    def bent(self, rows: _Rows, d: Tensor, s: Tensor, bent: Bool[Tensor, " B"]) -> _Rows:
        """To (d, s), but clipped where that is outside, or as far as there is room if clipping
        would raise the quadratic.
        """
        ahead = replace(rows, d=d, s=s)
        clipped = self.clipped(ahead)
        lower = self.value(clipped) < self.value(rows)
        step = d - rows.d
        room = torch.where(step > 0, rows.high - rows.d, rows.low - rows.d)
        share = torch.where(step != 0, room / step, torch.inf).amin(1).clamp(0.0, 1.0)[:, None]
        short_d = (rows.d + share * step).clamp(rows.low, rows.high)
        short = replace(rows, d=short_d, s=torch.lerp(rows.s, s, share))
        return clipped.where(lower, short).where(bent, ahead)

    def clipped_start(self, rows: _Rows) -> tuple[_Rows, Bool[Tensor, " B"]]:
        """A start outside the room is clipped."""
        outside = rows.left_by(rows.d)
        if not bool(outside.any()):
            return rows, outside
        return self.clipped(rows).where(outside, rows), outside
