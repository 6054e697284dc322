"""A ladder of directions: the learned step where it is worth its price, Newton-CG, L-BFGS, the
gradient.

At each accepted point, and for each row on its own:

1. *learned*: the best step in the span of a few directions that g makes of the residual
   (``solve/span.py``): p = -J_g(y_t) r_t first, whose image J p, one jvp, gives its best length and
   the share of the residual that the linearised problem would keep. Taken if that share is small,
   or if the linearised residual is down to the noise. After a single direction that did leave so
   little, the next one is taken at the length that was right for it, without the jvp.
2. *newton*: CG on the linearised problem, started from the learned step, stopped at the noise, and
   projected. A row whose projected step once failed to descend has it minimised over the box from
   then on: slower where few bounds matter, much faster where they decide.
3. *l-bfgs*: where Newton steps lower the misfit by less than ``progress`` and do not halve the
   projected gradient, their many products buy little: the curvature that they leave out, or bounds
   that come and go, decide. After ``patience`` such steps the row takes quasi-Newton steps instead,
   two evaluations each, from the pairs of its steps since the first of those, and shortens them
   until they descend in the box.
4. *gradient*: the projected gradient, as long as its quadratic model says.

**Why it converges for any g.** Let d be the step to x~ = P(x + p) and w = x - P(x - grad) the
projected gradient. A rung's d is used only if ``-<grad, d> >= angle |w| |d|`` and
``|d| >= shortest |w|``. If the gradient has Lipschitz constant L, Armijo's test with constant c
holds along the feasible d at every scale up to ``2 (1 - c) angle |w| / (L |d|)``, so halving ends
there or above, and an accepted step lowers the misfit by at least a constant times |w|^2. A misfit
that is bounded below can be lowered only finitely often by more than any such amount, so |w| -> 0.
The projected gradient satisfies both tests by construction. Nothing is asked of g: where it returns
NaN, noise or zero, the row is on the lower rungs.

The proof lets the search halve for as long as it takes. The code stops after ``max_backtracks`` =
30, a scale of 1e-9: a row that needs less, one with ``|d| > 1e9 angle |w| / L``, ends as
NO_ACCEPTED_TRIAL where it stands. In float32 that is below what the misfit can resolve.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.checks import check_count, check_range
from deceptron.solve.conjugate_gradients import ConjugateGradients
from deceptron.solve.descents.lbfgs import MEMORY, Pairs
from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import Descent, Proposal
from deceptron.solve.rows import dot, norm
from deceptron.solve.span import Directions, Span, feasible, learned_pull

LEARNED, NEWTON, PAIRS, GRADIENT = range(4)
# Of a quasi-Newton step, to a quarter each.
SHORTENINGS = 4


@dataclass(frozen=True)
class Rung(Pairs):
    """The feasible direction of each row, who made it, and what it promised."""

    step: Float[Tensor, "B n"]
    rule: Int[Tensor, " B"]
    learned: Bool[Tensor, " B"]  # whether the learned step is still worth asking for
    misfit: Float[Tensor, " B"]
    promised: Float[Tensor, " B"]
    scale: Float[Tensor, " B"]  # of a single learned direction; 0 where there were more or none
    bent: Bool[Tensor, " B"]  # whether a projected Newton step has failed to descend
    slow: Int[Tensor, " B"]  # Newton steps that have bought too little


@dataclass(frozen=True)
class Guarded(Descent[Rung]):
    """See the module's text. ``quality`` is the share of the residual that a learned step may
    leave and still be taken alone; a row whose learned step keeps less than ``trust`` of its
    promise, or promises nothing, does not ask for one again. ``progress`` is the share of the
    misfit that a Newton step must gain, unless it halves the projected gradient; after ``patience``
    steps that did neither there are no more.
    """

    linear: ConjugateGradients
    directions: Directions
    quality: float = 0.5
    trust: float = 0.25
    progress: float = 0.02
    patience: int = 6
    angle: float = 1e-4
    shortest: float = 1e-8

    rules = ("learned", "newton", "l-bfgs", "gradient")

    def __post_init__(self) -> None:
        check_range("quality", self.quality, low=0, high=1)
        check_range("trust", self.trust, low=0, high=1)
        check_range("progress", self.progress, low=0, high=1)
        check_count("patience", self.patience)
        check_range("angle", self.angle, low=0, high=1, open_low=True, open_high=True)
        check_range("shortest", self.shortest, low=0, open_low=True)

    def prepare(self, model: Model, point: Point, state: Rung | None, box: Box | None) -> Rung:
        """Climb down the ladder until every row has a direction that passes the tests."""
        asking = torch.ones_like(point.misfit, dtype=torch.bool)
        proven, scale = torch.zeros_like(asking), torch.zeros_like(point.misfit)
        pairs = Pairs.none(point, 0)
        slow, bent = torch.zeros_like(asking, dtype=torch.int64), torch.zeros_like(asking)
        if state is not None:
            slow, bent = state.slow + self._bought_little(point, state, box), state.bent
            # Most rows never need them, and forty vectors a row are a lot.
            wanted = slow > 0
            pairs = state.with_room(MEMORY if bool(wanted.any()) else 0).pushed(point, wanted)
            last = state.rule == LEARNED
            kept = state.misfit - point.misfit >= self.trust * state.promised
            asking = state.learned & (kept | ~last) & (slow < self.patience)
            proven = asking & last & (point.misfit <= self.quality**2 * state.misfit)
            proven, scale = proven & (state.scale > 0), state.scale
        span = self.directions.span(model, point, box, (learned_pull,), asking & ~proven)
        left = span.left(point)
        asking = asking & (proven | (left < 1))
        good = (left <= self.quality) | model.objective.only_noise(
            model.objective.weigh(point.r + span.image)
        )
        direction = span.d
        rows = proven.nonzero().flatten()
        if len(rows):
            part = point.take(rows)
            pulled = scale[rows, None] * learned_pull(model.at(rows), part, part.r)
            direction = direction.index_copy(0, rows, pulled)
        direction = feasible(point.x, direction, box)
        good = asking & (good | proven) & self._descends(point, direction, box)
        rule = torch.full_like(asking, LEARNED, dtype=torch.int64)
        scale = torch.where(proven, scale, span.scale)

        rule = torch.where(good, rule, NEWTON)
        rows = (slow >= self.patience).nonzero().flatten()
        if len(rows):
            step = self._by_pairs(model.at(rows), point.take(rows), pairs.take(rows), box)
            direction, rule = direction.index_copy(0, rows, step), rule.index_fill(0, rows, PAIRS)
        newton = ~good & (slow < self.patience)
        for linear, wanted in (
            (self.linear, newton & ~bent),
            (replace(self.linear, in_box=True), newton & bent),
        ):
            direction = self._newton(linear, model, point, span, box, direction, wanted)
        failed = ~self._descends(point, direction, box) & newton & ~bent
        if box is not None and bool(failed.any()):
            bent = bent | failed
            linear = replace(self.linear, in_box=True)
            direction = self._newton(linear, model, point, span, box, direction, failed)
        bad = (~self._descends(point, direction, box)).nonzero().flatten()
        if len(bad):
            direction, rule = direction.clone(), rule.index_fill(0, bad, GRADIENT)
            direction[bad] = self._steepest(model.at(bad), point.take(bad), box)
        promised = -0.5 * dot(point.gradient, direction)
        return Rung(
            **vars(pairs),
            step=direction,
            rule=rule,
            learned=asking,
            misfit=point.misfit,
            promised=promised,
            scale=scale,
            bent=bent,
            slow=slow,
        )

    def propose(self, model: Model, point: Point, state: Rung, scale: Tensor) -> Proposal:
        """Backtrack along the feasible direction."""
        x = torch.addcmul(point.x, scale[:, None], state.step)
        return Proposal(x, rule=state.rule, provisional=state.rule == LEARNED)

    def _bought_little(self, point: Point, state: Rung, box: Box | None) -> Bool[Tensor, " B"]:
        """Newton steps, just taken, that lowered neither the misfit nor the projected gradient."""
        before = norm(state.x - _ahead(state, 1.0, box))
        steep = norm(point.x - _ahead(point, 1.0, box)) > 0.5 * before
        little = state.misfit - point.misfit < self.progress * state.misfit
        return (state.rule == NEWTON) & little & steep

    def _newton(
        self,
        linear: ConjugateGradients,
        model: Model,
        point: Point,
        learned: Span,
        box: Box | None,
        direction: Float[Tensor, "B n"],
        wanted: Bool[Tensor, " B"],
    ) -> Float[Tensor, "B n"]:
        """The directions, with those of the ``wanted`` rows by CG from their learned steps."""
        rows = wanted.nonzero().flatten()
        if len(rows) == 0:
            return direction
        model, point, learned = model.at(rows), point.take(rows), learned.take(rows)
        factors = linear.factor(model, point, box)
        undamped = torch.zeros_like(point.misfit)
        step = linear.solve(model, point, factors, undamped, learned)
        return direction.index_copy(0, rows, feasible(point.x, step, box))

    def _by_pairs(
        self, model: Model, point: Point, pairs: Pairs, box: Box | None
    ) -> Float[Tensor, "B n"]:
        """Quasi-Newton steps; one that does not descend where the box ends it is shortened."""
        step = pairs.direction(model, point, box)
        inside = feasible(point.x, step, box)
        for _ in range(SHORTENINGS):
            bad = ~self._descends(point, inside, box)
            if not bool(bad.any()):
                break
            step = torch.where(bad[:, None], 0.25 * step, step)
            inside = feasible(point.x, step, box)
        return inside

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


def _ahead(point: Point | Rung, scale: float | Tensor, box: Box | None) -> Float[Tensor, "B n"]:
    x = point.x - scale * point.gradient
    return x if box is None else box.project(x)
