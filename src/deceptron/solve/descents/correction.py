"""The default solver's step: from where a row started, the correction that its data ask for.

At each accepted point the forward map is linearised and a span of directions is grown
(``solve/span_growth.py``). Of all plausible corrections in the span the evidence picks one
(``solve/evidence.py``); the row goes there, or part of the way if its misfit says so, and is
linearised anew unless its data are explained. The correction is always one of the start, never of
the last iterate: nothing accumulates, so noise that no plausible correction explains is left alone.

A start that explains its data costs one evaluation. Up to ``DENSE`` unknowns the span is the whole
space. The goal is then the most plausible correction within the bounds, and an explained row
is linearised anew until it is where the last linearisation has promised, to within chance: with
2000 sensors and 4 unknowns it may be explained and off by ten of its standard deviations.

So it is up to ``BOXED`` unknowns for rows that touch a bound: which components the bounds hold is
not to be found in a few directions. Beyond, the goal is cut off at the bounds. If it then explains
the data no more, by the same linearisation, all of space is used up to ``BOXED_AT_LAST`` unknowns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.bases import DiagonalGaussian
from deceptron.core.box import Box
from deceptron.core.corrections import Corrections, Regression
from deceptron.solve.boxed_evidence import choose_in_box
from deceptron.solve.evidence import Chosen, Quadratics, choose
from deceptron.solve.measured_span import Guess, MeasuredSpan
from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import Descent, Promise, Proposal
from deceptron.solve.rows import RowData, joined, norm
from deceptron.solve.span_growth import grow

DENSE, BOXED, BOXED_AT_LAST = 32, 128, 256
# Rows whose spans are held at a time: numbers of double precision.
HELD = 2**25
CORRECTION, REGRESSION = range(2)
# Pairs of directions that the first linearisation and the later ones may take.
PAIRS = (14, 20)
# Of chi-squared, for each unknown: the truth is above the least value by so much on average.
CHANCE = 1.0


@dataclass(frozen=True)
class Corrected(RowData):
    """Where rows started, where the evidence sends them, and the guess to try before that."""

    start: Float[Tensor, "B n"]
    goal: Float[Tensor, "B n"]
    guess: Float[Tensor, "B n"]
    guessed: Bool[Tensor, " B"]
    member: Int[Tensor, " B"]
    size: Float[Tensor, " B"]
    noise: Float[Tensor, " B"]
    spread: Float[Tensor, "B ?n"]
    guess_spread: Float[Tensor, "B ?n"]
    count: Int[Tensor, " B"]  # linearisations so far
    # The residual, in units of the noise, that the linearisation promises at the goal and at the
    # guess. No columns where the span is not the whole space, or there is no guess.
    promised: Float[Tensor, "B ?m"]
    guess_promised: Float[Tensor, "B ?m"]


@dataclass(frozen=True)
class Correction(Descent[Corrected]):
    """See the module's text.

    Attributes:
        corrections: what is plausible.
        table_noise: the noise, normalised units, that their tables were made for.
        free_noise: whether the noise may be larger than it is said to be, from the start.
        family: the mean of its posterior is the guess, where the span is the whole space.
        chance: log odds that a row has nothing to correct.
        reverse_price: what a pass through g costs in products with the Jacobian.
    """

    corrections: Corrections
    table_noise: Float[Tensor, " m"]
    free_noise: bool
    family: DiagonalGaussian | None = None
    chance: float = -math.inf
    reverse_price: float = 0.0

    rules = ("correction", "regression")
    notes = ("member", "size", "noise", "spread", "guess_spread", "count")
    needs_gradient = False

    def prepare(
        self, model: Model, point: Point, state: Corrected | None, box: Box | None
    ) -> Corrected:
        """Grow the span of every row and choose in it."""
        n = point.x.shape[1]

        def prepared(rows: Int[Tensor, " k"], complete: bool) -> Corrected:
            before = None if state is None else state.take(rows)
            return self._prepare(model.at(rows), point.take(rows), before, box, complete)

        whole = torch.full_like(point.explained, n <= DENSE)
        if box is not None and n <= BOXED:
            whole = whole | box.touched(point.x).any(1)
        parts, order = [], []
        for complete in (False, True):
            mine = (whole == complete).nonzero().flatten()
            for rows in mine.split(self._together(point, complete)) if len(mine) else ():
                parts.append(prepared(rows, complete))
                order.append(rows)
        found = joined(parts).take(torch.cat(order).argsort())
        if box is not None and BOXED < n <= BOXED_AT_LAST:
            mine = self._lost_at_bounds(model, point, found, box)
            for rows in mine.split(self._together(point, True)) if len(mine) else ():
                found = found.put(rows, prepared(rows, True))
        return found

    def _lost_at_bounds(
        self, model: Model, point: Point, found: Corrected, box: Box
    ) -> Int[Tensor, " k"]:
        """Rows whose goal, cut off at the bounds, does not explain the data even as linearised."""
        rows = (box.project(found.goal) != found.goal).any(1).nonzero().flatten()
        if len(rows) == 0:
            return rows
        model, here = model.at(rows), point.take(rows)
        left = here.r + model.image(here, box.project(found.goal[rows]) - here.x)
        objective = model.objective
        return rows[~objective.explained(objective.residual(objective.fit(left)))]

    def _together(self, point: Point, complete: bool) -> int:
        """So many rows have their spans held at a time: directions, images, and their products for
        every member.
        """
        n, m = point.x.shape[1], point.r.shape[1]
        directions = n if complete else 2 * max(PAIRS) + 2
        numbers = directions * (2 * n + m + len(self.corrections.members) * directions)
        return max(1, HELD // numbers)

    def propose(self, model: Model, point: Point, state: Corrected, scale: Tensor) -> Proposal:
        """The guess at scale 2, else this share of the way to the goal."""
        x = torch.addcmul(point.x, scale.clamp(max=1.0)[:, None], state.goal - point.x)
        guessing = state.guessed & (scale > 1)
        x = torch.where(guessing[:, None], state.guess, x)
        rule = torch.where(guessing, REGRESSION, CORRECTION)
        promise = None
        if state.promised.shape[1]:
            left = state.promised
            if state.guess_promised.shape[1]:
                left = torch.where(guessing[:, None], state.guess_promised, left)
            # Round-off is chance, too.
            error = 4 * torch.finfo(x.dtype).eps * norm(model.objective.whiten(point.y))
            chance = CHANCE * x.shape[1] * state.noise.square() + error.square()
            promise = Promise.at(point, model.objective, left, chance)
        return Proposal(x, rule=rule, provisional=guessing, promise=promise)

    def _prepare(
        self,
        model: Model,
        point: Point,
        state: Corrected | None,
        box: Box | None,
        complete: bool,
    ) -> Corrected:
        start = point.x if state is None else state.start
        objective, few = model.objective, point.x.shape[1] <= DENSE
        # What earlier linearisations did not predict is their own error. With few unknowns it would
        # be fitted as signal, so it counts as noise even where the noise is stated.
        free_noise = self.free_noise or (few and state is not None)
        span = MeasuredSpan(model, point, start, box, self.corrections)
        if complete:
            span.fill()
        else:
            so_far = None if state is None else (state.member, state.size)
            pairs = PAIRS[0 if state is None else 1]
            grow(span, so_far, pairs, reverse_price=self.reverse_price)
        weight = objective.whiten(torch.ones_like(point.r))
        precision = (weight * self.table_noise.to(weight)).double().square().mean(1)
        quadratics = span.quadratics()
        chosen, guess = choose(
            self.corrections,
            quadratics,
            precision=precision,
            count=objective.count.double().expand(len(start)),
            free_noise=free_noise,
            complete=complete,
        )
        tried = None
        if self.family is not None and few:
            tried = span.posterior_mean(self.family, start, objective.count)
        elif guess is not None and self.corrections.regression is not None:
            tried = Guess(
                self._regressed(self.corrections.regression, start, span.combined(guess)),
                torch.ones_like(point.explained),
                start.new_empty(len(start), 0),
            )
        if complete and box is not None:
            chosen = self._inside(quadratics, chosen, start, box, objective.count, free_noise)
        if not few:
            # Its bars come from the tables, as those of other rows.
            chosen = chosen.changed(spread=chosen.spread[:, :0])
        corrected = self._corrected(point, start, span, chosen, tried, box, state)
        if few:
            corrected = corrected.changed(promised=span.promised(corrected.goal - start))
            if tried is not None:
                at_guess = span.promised(corrected.guess - start)
                corrected = corrected.changed(guess_promised=at_guess)
        return corrected

    def _inside(
        self,
        quadratics: Quadratics,
        chosen: Chosen,
        start: Float[Tensor, "B n"],
        box: Box,
        count: Float[Tensor, "#B"],
        free_noise: bool,
    ) -> Chosen:
        low, high = (
            torch.as_tensor(side, dtype=start.dtype, device=start.device).double() - start.double()
            for side in (box.low, box.high)
        )
        return choose_in_box(
            self.corrections,
            quadratics,
            chosen,
            low=low,
            high=high,
            count=count.double().expand(len(start)),
            free_noise=free_noise,
        )

    def _corrected(
        self,
        point: Point,
        start: Tensor,
        span: MeasuredSpan,
        chosen: Chosen,
        guess: Guess | None,
        box: Box | None,
        state: Corrected | None,
    ) -> Corrected:
        def finite(rows: Tensor) -> Tensor:
            return torch.where(rows.isfinite().all(1)[:, None], rows, point.x.double()).to(point.x)

        def feasible(rows: Tensor) -> Tensor:
            return finite(rows) if box is None else box.project(finite(rows))

        # Cut off on the way there: what is cut off first may be no way down at any length.
        goal = finite(start.double() + span.combined(chosen.shared(self.chance)))
        if guess is None:
            none = torch.zeros_like(point.explained)
            guess = Guess(goal, none, goal.new_empty(len(goal), 0))
        count = torch.zeros_like(chosen.member) if state is None else state.count
        return Corrected(
            start=start,
            goal=goal,
            guess=torch.where(guess.plausible[:, None], feasible(guess.x), goal),
            guessed=guess.plausible,
            member=chosen.member,
            size=chosen.size.to(point.x),
            noise=chosen.noise.to(point.x),
            spread=chosen.spread.to(point.x),
            guess_spread=guess.spread.to(point.x),
            count=count + 1,
            promised=goal.new_empty(len(goal), 0),
            guess_promised=goal.new_empty(len(goal), 0),
        )

    def _regressed(
        self, regression: Regression, start: Float[Tensor, "B n"], e: Float[Tensor, "B n"]
    ) -> Float[Tensor, "B n"]:
        basis = self.corrections.members[regression.member].basis
        mean, own, first = (
            part.to(e) for part in (regression.mean, regression.own, regression.start)
        )
        about = start.double() - mean
        return mean + basis.back(own * basis.forward(about + e) + first * basis.forward(about))
