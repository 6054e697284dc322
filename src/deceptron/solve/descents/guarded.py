"""A ladder of directions: the learned step where it is worth its price, Newton-CG, the gradient.

At each accepted point, and for each row on its own:

1. *learned*: p = -J_g(y_t) r_t, projected on the box. One jvp, q = J p, gives the best scale along
   p and the share of the residual that the linearised problem would keep. Taken if that share is
   small, or if it brings the linearised residual down to the noise. After a learned step that did
   leave so little, the next one is taken without the jvp.
2. *newton*: CG on the linearised problem, started from the learned step, stopped at the noise.
3. *gradient*: the projected gradient, as long as its quadratic model says.

**Why it converges for any g.** Let d be the step to x~ = P(x + p) and w = x - P(x - grad) the
projected gradient. A rung's d is used only if ``-<grad, d> >= angle |w| |d|`` and
``|d| >= shortest |w|``. With Armijo backtracking along the feasible d and a Lipschitz gradient,
each accepted step then lowers the misfit by at least a constant times |w|^2; a misfit that is
bounded below can be lowered only finitely often by more than any such amount, so |w| -> 0. The
projected gradient satisfies both tests by construction. Nothing is asked of g: where it returns
NaN, noise or zero, the row is on the lower rungs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.checks import check_range
from deceptron.solve.linear import ConjugateGradients, Start
from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import Proposal
from deceptron.solve.rows import RowData, dot, norm

LEARNED, NEWTON, GRADIENT = range(3)

# The learned step may be lengthened by this much if its linearisation asks for it.
LONGEST = 4.0


@dataclass(frozen=True)
class Rung(RowData):
    """The feasible direction of each row, who made it, and what it promised."""

    direction: Float[Tensor, "B n"]
    rule: Int[Tensor, " B"]
    learned: Bool[Tensor, " B"]  # whether the learned step is still worth asking for
    misfit: Float[Tensor, " B"]
    promised: Float[Tensor, " B"]


@dataclass(frozen=True)
class _Learned(RowData):
    """A learned step at its best scale, its image, and the share of the misfit it would leave."""

    d: Float[Tensor, "B n"]
    image: Float[Tensor, "B m"]
    left: Float[Tensor, " B"]


@dataclass(frozen=True)
class Guarded:
    """See the module's text. ``quality`` is the share of the residual that a learned step may
    leave and still be taken alone; a row whose learned step keeps less than ``trust`` of its
    promise, or promises nothing, does not ask for one again.
    """

    linear: ConjugateGradients
    quality: float = 0.5
    trust: float = 0.25
    angle: float = 1e-4
    shortest: float = 1e-8

    rules = ("learned", "newton", "gradient")

    def __post_init__(self) -> None:
        check_range("quality", self.quality, low=0, high=1)
        check_range("trust", self.trust, low=0, high=1)
        check_range("angle", self.angle, low=0, high=1, open_low=True, open_high=True)
        check_range("shortest", self.shortest, low=0, open_low=True)

    def prepare(self, model: Model, point: Point, state: Rung | None, box: Box | None) -> Rung:
        """Climb down the ladder until every row has a direction that passes the tests."""
        asking, proven = torch.ones_like(point.misfit, dtype=torch.bool), None
        if state is not None:
            last = state.rule == LEARNED
            kept = state.misfit - point.misfit >= self.trust * state.promised
            asking = state.learned & (kept | ~last)
            proven = last & (point.misfit <= self.quality**2 * state.misfit)
        learned = self._learned(model, point, box, asking, proven)
        asking = asking & (learned.left < 1)
        direction = _feasible(point.x, learned.d, box)
        rule = torch.full_like(asking, LEARNED, dtype=torch.int64)

        good = learned.left <= self.quality
        good = good | model.objective.only_noise(model.objective.weigh(point.r + learned.image))
        good = asking & good & self._descends(point, direction, box)
        rest = (~good).nonzero().flatten()
        if len(rest):
            direction, rule = direction.clone(), rule.index_fill(0, rest, NEWTON)
            direction[rest] = self._newton(
                model.at(rest), point.take(rest), learned.take(rest), box
            )
        direction = _feasible(point.x, direction, box)
        bad = (~self._descends(point, direction, box)).nonzero().flatten()
        if len(bad):
            direction, rule = direction.clone(), rule.index_fill(0, bad, GRADIENT)
            direction[bad] = self._steepest(model.at(bad), point.take(bad), box)
        promised = -0.5 * dot(point.gradient, direction)
        return Rung(direction, rule, asking, point.misfit, promised)

    def propose(self, model: Model, point: Point, state: Rung, scale: Tensor) -> Proposal:
        """Backtrack along the feasible direction."""
        x = torch.addcmul(point.x, scale[:, None], state.direction)
        return Proposal(x, rule=state.rule, provisional=state.rule == LEARNED)

    def _learned(
        self,
        model: Model,
        point: Point,
        box: Box | None,
        asking: Bool[Tensor, " B"],
        proven: Bool[Tensor, " B"] | None,
    ) -> _Learned:
        """The learned step of the rows that ask; nothing, at no cost, for the others."""
        learned = _Learned(
            torch.zeros_like(point.x),
            torch.zeros_like(point.r),
            torch.full_like(point.misfit, torch.inf),
        )
        unproven = asking if proven is None else asking & ~proven
        rows = unproven.nonzero().flatten()
        if len(rows):
            measured = self._measured(model.at(rows), point.take(rows), box)
            learned = learned.put(rows, measured)
        rows = (asking & ~unproven).nonzero().flatten()
        if len(rows):
            step = _pulled_back(model.at(rows), point.take(rows), box)
            good = torch.zeros_like(step[:, 0])
            learned = learned.put(rows, _Learned(step, torch.zeros_like(point.r[rows]), good))
        return learned

    def _measured(self, model: Model, point: Point, box: Box | None) -> _Learned:
        p = _pulled_back(model, point, box)
        q = model.f_jvp(point.x, p)
        slope, objective = dot(point.gradient, p), model.objective
        curvature = dot(objective.weigh(q), objective.weigh(q))
        curvature = curvature + objective.stiffness * dot(p, objective.metric(p))
        scale = (-slope / curvature).nan_to_num(0.0, 0.0, 0.0).clamp(0.0, LONGEST)
        model_misfit = point.misfit + scale * (slope + 0.5 * scale * curvature)
        left = (model_misfit / point.misfit).clamp_min(0.0).sqrt()
        left = torch.where((scale > 0) & left.isfinite(), left, torch.inf)
        usable = left.isfinite()[:, None]
        scale = scale[:, None]
        return _Learned(
            torch.where(usable, scale * p, 0.0), torch.where(usable, scale * q, 0.0), left
        )

    def _newton(
        self, model: Model, point: Point, learned: _Learned, box: Box | None
    ) -> Float[Tensor, "B n"]:
        factors = self.linear.factor(model, point, box)
        start = Start(learned.d, learned.image)
        return self.linear.solve(model, point, factors, torch.zeros_like(point.misfit), start)

    def _descends(
        self, point: Point, direction: Float[Tensor, "B n"], box: Box | None
    ) -> Bool[Tensor, " B"]:
        """The two tests that the convergence proof needs."""
        gradient = norm(point.x - _ahead(point, 1.0, box))
        length = norm(direction)
        slope = -dot(point.gradient, direction)
        steep = (slope > 0) & (slope >= self.angle * gradient * length)
        return steep & (length >= self.shortest * gradient)

    def _steepest(self, model: Model, point: Point, box: Box | None) -> Float[Tensor, "B n"]:
        """To where the quadratic model along the projected gradient has its minimum."""
        downhill = _ahead(point, 1.0, box) - point.x
        objective = model.objective
        q = objective.weigh(model.f_jvp(point.x, downhill))
        curvature = dot(q, q) + objective.stiffness * dot(downhill, objective.metric(downhill))
        scale = (-dot(point.gradient, downhill) / curvature).nan_to_num(1.0, 1.0, 1.0)
        # Within these limits the projected step passes both tests.
        return _ahead(point, scale.clamp(self.shortest, 1 / self.angle)[:, None], box) - point.x


def _pulled_back(model: Model, point: Point, box: Box | None) -> Float[Tensor, "B n"]:
    p = -model.g_jvp(point.y, point.r)
    return _feasible(point.x, torch.where(p.isfinite().all(1)[:, None], p, 0.0), box)


def _ahead(point: Point, scale: float | Tensor, box: Box | None) -> Float[Tensor, "B n"]:
    x = point.x - scale * point.gradient
    return x if box is None else box.project(x)


def _feasible(
    x: Float[Tensor, "B n"], step: Float[Tensor, "B n"], box: Box | None
) -> Float[Tensor, "B n"]:
    """The step that ends in the box; every shorter one does too."""
    return step if box is None else box.project(x + step) - x
