"""The default solver's step: where the law that a row is believed to follow, and its data, send it.

A row is answered by its start, by a correction of it, or about the mean of the family; which of
these is decided once, at its start, by odds that cost no further run (``laws/odds.py``). Where it
is not the start, the forward map is linearised, a subspace of directions is grown
(``solve/growth.py``), and of all laws of that kind the one of the least score is taken
(``laws/score.py``). The row goes to the least score within the bounds, or part of the way, and is
linearised anew unless its data are explained. What is left open is always measured from the law's
mean, never from the last iterate: nothing accumulates.

The subspace is all of space where that costs no more products than growing one, and where bounds
hold some components: which ones is not to be found in a few directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.bases import DiagonalGaussian
from deceptron.core.box import Box
from deceptron.core.filling import filled
from deceptron.core.status import Reason
from deceptron.laws.beliefs import Beliefs
from deceptron.laws.data import Surprise, surprise
from deceptron.laws.law import Laws
from deceptron.laws.odds import (
    CORRECTION,
    FAMILY,
    START,
    Odds,
    misfit,
)
from deceptron.laws.score import Chosen, Quadratics, choose, fitted
from deceptron.solve.boxed import least_in_box
from deceptron.solve.growth import grow
from deceptron.solve.model import Model, Point, round_off
from deceptron.solve.protocols import Descent, Proposal, Rule, SearchState, Step
from deceptron.solve.rows import RowData, joined, norm
from deceptron.solve.subspace import Subspace

# Pairs of directions that the first linearisation and the later ones may take. Up to as many
# unknowns as the first may cost runs, all of space is no dearer.
PAIRS = (14, 20)
COMPLETE = 3 * PAIRS[0]
# Unknowns up to which all of space is used for rows that bounds hold.
BOUNDED = 256
# Rows whose subspaces are held at a time: numbers of double precision.
HELD = 2**25
# Noise that is so much above the stated one is called so.
NOISIER = 1.05
CORRECTED, BY_FAMILY, BY_START = range(3)
# Linearisations that a row may take; down an exponential it takes ten.
LINEARISATIONS = 20


@dataclass(frozen=True)
class Believed(RowData):
    """What is believed of rows, and where that sends them.

    ``family`` is the probability that the family's law is right and not that of the row's kind,
    ``family_shape`` and ``family_size`` are the family's likeliest. The score at a share s of the
    way to the goal has the prior's part ``(1 - s) near + s far - s (1 - s) between``.
    """

    kind: Int[Tensor, " B"]
    surprise: Float[Tensor, " B"]
    misfit: Float[Tensor, " B"]
    family: Float[Tensor, " B"]
    family_shape: Int[Tensor, " B"]
    family_size: Int[Tensor, " B"]
    origin: Float[Tensor, "B n"]
    goal: Float[Tensor, "B n"]
    guess: Float[Tensor, "B n"]
    guessed: Bool[Tensor, " B"]
    shape: Int[Tensor, " B"]
    size: Int[Tensor, " B"]
    noise: Float[Tensor, " B"]
    loudest: Float[Tensor, " B"]  # what the data themselves say that it may be
    freedom: Float[Tensor, " B"]
    near: Float[Tensor, " B"]
    far: Float[Tensor, " B"]
    between: Float[Tensor, " B"]
    predicted: Float[Tensor, " B"]  # decrease of the score at the goal
    spread: Float[Tensor, "B ?n"]
    # The residual, in units of the noise, that the linearisation expects at the goal; no columns
    # where the subspace is not all of space.
    expected: Float[Tensor, "B ?m"]
    count: Int[Tensor, " B"]  # linearisations so far


@dataclass(frozen=True)
class Posterior(Descent[Believed]):
    """See the module's text.

    Attributes:
        beliefs: the laws.
        odds: of the kinds, on the map that is solved on.
        observations: the law of the family's data: what a missing sensor would have shown.
        table_noise: the noise, normalised units, that tables were made for.
        told: whether somebody stated the noise.
        reverse_price: what a pass through g costs in products with the Jacobian.
    """

    beliefs: Beliefs
    odds: Odds
    observations: DiagonalGaussian | None
    table_noise: Float[Tensor, " m"]
    told: bool
    reverse_price: float = 0.0

    rules = ("correction", "family", "start's law")
    notes = (
        "kind",
        "family",
        "family_shape",
        "family_size",
        "shape",
        "size",
        "noise",
        "spread",
        "count",
    )
    needs_gradient = False

    def begin(self, model: Model, point: Point) -> Believed:
        """Kinds of rows at their starts."""
        seen = self._surprise(model, point)
        whitened = norm(model.objective.whiten(point.r)).double()
        count = model.objective.count.double().expand(len(whitened))
        over_noise = whitened / count.sqrt() / seen.noise
        wrong = misfit(over_noise, count)
        kind, chances = (ask(seen.gain, wrong) for ask in (self.odds.kinds, self.odds.left_open))
        if self.beliefs.family is None:
            kind = torch.where(kind == FAMILY, CORRECTION, kind)
            chances[:, FAMILY] = 0.0
        zero, few = torch.zeros_like(over_noise), point.x.shape[1] <= COMPLETE
        own = torch.where(kind == CORRECTION, chances[:, CORRECTION], chances[:, START])
        family = torch.where(kind == FAMILY, 1.0, chances[:, FAMILY] / (own + chances[:, FAMILY]))
        nothing = point.x.new_zeros(len(zero), point.x.shape[1] if few else 0)
        return Believed(
            kind=kind,
            surprise=seen.gain,
            misfit=wrong,
            family=family,
            family_shape=seen.shape,
            family_size=seen.size,
            origin=point.x,
            goal=point.x,
            guess=point.x,
            guessed=torch.zeros_like(kind, dtype=torch.bool),
            shape=torch.zeros_like(kind),
            size=torch.zeros_like(kind),
            noise=seen.noise,
            loudest=seen.loudest,
            freedom=zero,
            near=zero,
            far=zero,
            between=zero,
            predicted=zero,
            spread=nothing.double(),
            expected=point.y.new_zeros(len(zero), point.y.shape[1] if few else 0),
            count=torch.zeros_like(kind),
        )

    def _surprise(self, model: Model, point: Point) -> Surprise:
        """Of the data, a missing sensor showing what the others tell of it."""
        beliefs, precision = self.beliefs, model.objective.precision
        if beliefs.family is None or not beliefs.data or precision is None:
            return Surprise.none(point.misfit.double())
        noise = torch.where(precision > 0, 1 / precision, self.table_noise.to(precision))
        target, gaps = point.y - point.r, precision == 0
        if bool(gaps.any()) and self.observations is not None:
            target = filled(self.observations, target, gaps, noise)
        return surprise(beliefs.data, beliefs.family.sizes, target, noise, told=self.told)

    def endings(
        self, model: Model, before: Point | None, point: Point, state: Believed
    ) -> list[Rule]:
        """Rows that their law has no more to say of."""
        objective = model.objective
        # Noise that the data themselves do not show is what a linearisation gets wrong.
        louder = torch.minimum(state.noise, state.loudest)
        residual, noise = objective.residual(point.fit), louder.to(point.x)
        # An RMS residual that noise of this size may leave.
        at_noise = residual <= objective.limit * noise.clamp_min(1.0)
        noisier = at_noise & (noise > NOISIER)
        if before is None:
            stays = state.kind == START
            return [
                (Reason.DISCREPANCY, stays & point.explained),
                (Reason.NOISIER, stays & noisier),
                (Reason.START_IS_BETTER, stays),
            ]
        settled = torch.ones_like(at_noise)
        chance = (state.freedom * louder.square()).to(point.x)
        if state.expected.shape[1]:
            # As far from what was expected as chance is, and round-off: linearising again would
            # change little.
            error = 4 * torch.finfo(point.x.dtype).eps * norm(objective.whiten(point.y))
            missed = norm(objective.whiten(point.r) - state.expected).square()
            settled = missed <= chance + error.square()
        assert objective.level is not None
        gain = 2 * (before.fit - point.fit) / objective.level.square()
        # What is left to explain, were every linearisation that a row may take to gain as much.
        excess = residual.square() - (objective.limit * noise).square()
        excess = objective.count * excess / objective.level.square() / LINEARISATIONS
        return [
            (Reason.DISCREPANCY, point.explained & settled),
            (Reason.NOISIER, noisier & settled),
            (Reason.NO_PROGRESS, gain <= torch.maximum(chance, excess)),
        ]

    def prepare(
        self, model: Model, point: Point, state: Believed | None, box: Box | None
    ) -> Believed:
        """Grow the subspace of every row and choose in it."""
        assert state is not None
        n = point.x.shape[1]
        complete = torch.full_like(point.explained, n <= COMPLETE)
        if box is not None and n <= BOUNDED:
            complete = complete | box.touched(point.x).any(1)
        parts, order = [], []
        for kind in (CORRECTION, FAMILY):
            for whole in (False, True):
                mine = ((state.kind == kind) & (complete == whole)).nonzero().flatten()
                for rows in mine.split(self._together(point, whole)) if len(mine) else ():
                    part = state.take(rows)
                    parts.append(
                        self._prepare(model.at(rows), point.take(rows), part, box, kind, whole)
                    )
                    order.append(rows)
        found = joined(parts).take(torch.cat(order).argsort())
        if box is not None and COMPLETE < n <= BOUNDED:
            mine = self._lost_at_bounds(model, point, found, box)
            mine = mine[~complete[mine]]
            for rows in mine.split(self._together(point, True)) if len(mine) else ():
                for kind in state.kind[rows].unique().tolist():
                    some = rows[state.kind[rows] == kind]
                    part = self._prepare(
                        model.at(some), point.take(some), state.take(some), box, kind, True
                    )
                    found = found.put(some, part)
        return found

    def _lost_at_bounds(
        self, model: Model, point: Point, found: Believed, box: Box
    ) -> Int[Tensor, " k"]:
        """Rows whose goal was cut off at the bounds and does not explain the data as linearised."""
        rows = box.touched(found.goal).any(1).nonzero().flatten()
        if len(rows) == 0:
            return rows
        model, here = model.at(rows), point.take(rows)
        left = here.r + model.image(here, found.goal[rows] - here.x)
        objective = model.objective
        return rows[~objective.explained(objective.residual(objective.fit(left)))]

    def _together(self, point: Point, complete: bool) -> int:
        """So many rows have their subspaces held at a time: directions, images, and their products
        for every shape.
        """
        n, m = point.x.shape[1], point.r.shape[1]
        directions = n if complete else 2 * max(PAIRS) + 2
        shapes = len(self.beliefs.corrections.shapes)
        return max(1, HELD // (directions * (2 * n + m + shapes * directions)))

    def _prepare(
        self,
        model: Model,
        point: Point,
        state: Believed,
        box: Box | None,
        kind: int,
        complete: bool,
    ) -> Believed:
        first = bool((state.count == 0).all())
        laws, origin = self.beliefs.corrections, state.origin
        if kind == FAMILY:
            assert self.beliefs.family is not None
            laws = self.beliefs.family
            assert laws.mean is not None
            origin = laws.mean.to(point.x).expand_as(point.x)
        span = Subspace(model, point, origin, box, laws)
        if complete:
            span.fill()
        else:
            so_far = None if first else (state.shape, state.size)
            if first and kind == FAMILY:
                so_far = state.family_shape, state.family_size
            grow(span, so_far, PAIRS[0 if first else 1], reverse_price=self.reverse_price)
        quadratics = span.quadratics()
        low, high = _room(origin, box)
        count = model.objective.count.double().expand(len(origin))
        # Directions that a subspace lacks look like noise; what a linearisation of all of space
        # gets wrong is noise.
        loudest = torch.full_like(count, torch.inf) if complete else state.loudest
        stated: dict[str, Any] = {"count": count, "loudest": loudest, "told": self.told}
        if kind == FAMILY and not complete:
            # Their data have chosen, in all of space.
            law = state.family_shape, state.family_size
            chosen = fitted(laws, quadratics, *law, **stated)
        else:
            # About the family bounds are no news: its rows lie within them.
            bounded = complete and box is not None and kind != FAMILY
            mass = laws.log_mass(low, high) if bounded else None
            precision = self._precision(model, point)
            chosen = choose(
                laws, quadratics, precision=precision, complete=complete, mass=mass, **stated
            )
        e = span.combined(chosen.z)
        if complete and box is not None:
            e = _inside(laws, quadratics, chosen, low, high)
        goal = _feasible(origin.double() + e, point, box)
        state = state.changed(
            origin=origin,
            goal=goal,
            guess=goal,
            guessed=torch.zeros_like(state.guessed),
            count=state.count + 1,
        )
        if first and kind == CORRECTION and self.beliefs.start is not None and not complete:
            state = self._with_start_law(state, span, quadratics, point, box)
        return self._scored(state, span, chosen, point, complete)

    def _precision(self, model: Model, point: Point) -> Float[Tensor, " B"]:
        """Of the data, relative to those that the tables were made for."""
        weight = model.objective.whiten(torch.ones_like(point.r))
        return (weight * self.table_noise.to(weight)).double().square().mean(1)

    def _with_start_law(
        self,
        state: Believed,
        span: Subspace,
        quadratics: Quadratics,
        point: Point,
        box: Box | None,
    ) -> Believed:
        law, laws = self.beliefs.start, self.beliefs.corrections
        assert law is not None
        t = laws.strengths(span.offset)[law.size].expand(1, len(span.offset))
        z = quadratics.minimise(quadratics.stiffness[law.shape], t)[0][0]
        fit = state.origin.double() + span.combined(z)
        guess = _feasible(law.answer(laws, state.origin, fit), point, box)
        return state.changed(guess=guess, guessed=torch.ones_like(state.guessed))

    def _scored(
        self, state: Believed, span: Subspace, chosen: Chosen, point: Point, complete: bool
    ) -> Believed:
        laws, shape, size = span.laws, chosen.shape, chosen.size
        there = (state.goal - state.origin).double()
        near = laws.distance(span.offset, shape, size)
        far = laws.distance(there, shape, size)
        value, expected = chosen.value, state.expected
        if expected.shape[1]:
            expected = span.promised(there)
            value = expected.double().square().sum(1) + far
        square = norm(span.model.objective.whiten(point.r)).double().square()
        scale = chosen.noise.square()
        return state.changed(
            shape=shape,
            size=size,
            noise=chosen.noise,
            freedom=chosen.freedom,
            near=near / scale,
            far=far / scale,
            between=laws.distance(there - span.offset, shape, size) / scale,
            predicted=(square + near - value) / scale,
            # Its bars come from the tables where it is not the row's own posterior.
            spread=chosen.spread if state.spread.shape[1] else state.spread,
            expected=expected.to(point.y),
        )

    def propose(self, model: Model, point: Point, state: Believed, scale: Tensor) -> Proposal:
        """What the start's law says, at scale 2, else this share of the way to the goal."""
        share = scale.clamp(max=1.0)
        x = torch.addcmul(point.x, share[:, None], state.goal - point.x)
        guessing = state.guessed & (scale > 1)
        x = torch.where(guessing[:, None], state.guess, x)
        assert model.objective.level is not None
        s = share.double()
        change = s * (state.far - state.near) - s * (1 - s) * state.between
        return Proposal(
            x,
            rule=torch.where(
                guessing, BY_START, torch.where(state.kind == FAMILY, BY_FAMILY, CORRECTED)
            ),
            provisional=guessing,
            predicted=(s * state.predicted).to(x),
            score=Score(
                per_misfit := 2 / (model.objective.level.double() * state.noise).square(),
                change,
                per_misfit * round_off(point, model.objective).double(),
            ),
        )


@dataclass(frozen=True)
class Score:
    """What a misfit counts in the score, by how much the prior's part of it changes on the way, and
    how far two evaluations of the score may differ.
    """

    per_misfit: Float[Tensor, " B"]
    change: Float[Tensor, " B"]
    round_off: Float[Tensor, " B"]


@dataclass(frozen=True)
class ScoreDecrease:
    """A step is taken if the score falls by a share of what was predicted, or the data are
    explained; else half of it is tried. What the start's law says comes first, and must explain.
    """

    guesses: bool = False
    share: float = 0.05
    most_halvings: int = 5

    needs_trial_gradient = False

    def start(self, model: Model, point: Point) -> SearchState:
        """The start's law first."""
        return SearchState(torch.full_like(point.misfit, self._first), None)

    @property
    def _first(self) -> float:
        return 2.0 if self.guesses else 1.0

    def judge(
        self, point: Point, trial: Point, step: Step, state: SearchState
    ) -> tuple[Bool[Tensor, " B"], SearchState, Bool[Tensor, " B"]]:
        """A row is decided by its own score."""
        guessing, score = step.proposal.provisional, step.proposal.score
        assert guessing is not None
        assert score is not None
        assert step.proposal.predicted is not None
        actual = score.per_misfit * (point.fit.double() - trial.fit) - score.change
        asked = self.share * step.proposal.predicted
        lower = actual > asked.clamp_min(0.0)
        # What is asked for cannot be told from round-off, at this share of the way or at a smaller.
        drowned = ~guessing & (asked <= score.round_off)
        lower = lower & ~drowned
        refining = point.explained
        accept = torch.where(guessing, trial.explained, (lower & ~refining) | trial.explained)
        accept = torch.where(refining, trial.explained & lower, accept) & trial.fit.isfinite()
        share = torch.where(guessing, 2.0, state.scale.clamp(max=1.0))
        last = share <= 0.5**self.most_halvings
        scale = torch.where(accept, self._first, share / 2)
        trials = torch.where(accept, 0, state.rejections + 1)
        return accept, SearchState(scale, trials), ~accept & (last | drowned)


def _room(
    origin: Float[Tensor, "B n"], box: Box | None
) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B n"]]:
    """How far the bounds are below and above."""
    sides = (-torch.inf, torch.inf) if box is None else (box.low, box.high)
    here = origin.double()
    low, high = (torch.as_tensor(side, dtype=here.dtype, device=here.device) for side in sides)
    return low - here, high - here


def _inside(
    laws: Laws, quadratics: Quadratics, chosen: Chosen, low: Tensor, high: Tensor
) -> Float[Tensor, "B n"]:
    """The least value of the chosen law within the bounds, where its own is outside of them; the
    subspace must be all of space, in the coordinates of x.
    """
    found = chosen.z
    outside = ((found < low) | (found > high)).any(1) & found.isfinite().all(1)
    rows = outside.nonzero().flatten()
    if len(rows) == 0:
        return found
    t = laws.strengths(found)[chosen.size[rows]]
    system = quadratics.hessian[rows] + (
        quadratics.stiffness[chosen.shape[rows], rows] / t[:, None, None]
    )
    inside = least_in_box(system, quadratics.slope[rows], low[rows], high[rows], found[rows])
    return found.index_copy(0, rows, inside)


def _feasible(x: Float[Tensor, "B n"], point: Point, box: Box | None) -> Float[Tensor, "B n"]:
    """Within the bounds, and where the row is if it is not finite. Cut off here and not on the way:
    what is cut off first may be no way down at any length.
    """
    x = torch.where(x.isfinite().all(1)[:, None], x, point.x.double()).to(point.x)
    return x if box is None else box.project(x)
