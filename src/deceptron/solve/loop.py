"""The one loop that runs every method: each pass, every live row makes one trial.

propose -> project -> evaluate -> judge -> merge the accepted rows -> stop rows that are done
-> prepare the rows that moved. Line search and outer iteration share the loop: a row whose trial
was rejected tries a shorter one in the next pass while its neighbours move on. Nothing is decided
by a reduction over rows, and a row that is done leaves the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.status import Reason
from deceptron.solve.model import KINDS, Model, Point, Tally, Trial
from deceptron.solve.protocols import Descent, Proposal, Search, SearchState, Step
from deceptron.solve.recorder import Entry, Recorder
from deceptron.solve.rows import RowData, dot, norm
from deceptron.solve.stopping import RUNNING, Path, Stopping, round_off


@dataclass(frozen=True)
class Snapshot:
    """What a callback sees after each pass: the rows that were live in it.

    ``reason`` is -1 where a row goes on and a ``Reason`` where it has just stopped;
    ``evaluations`` counts what the row has asked for so far (f, g, jvp and vjp alike).
    """

    rows: Int[Tensor, " B"]
    x: Float[Tensor, "B *x"]
    residual: Float[Tensor, " B"]
    loss: Float[Tensor, " B"]
    iterations: Int[Tensor, " B"]
    accepted: Bool[Tensor, " B"]
    reason: Int[Tensor, " B"]
    evaluations: Int[Tensor, " B"]


Callback = Callable[[int, Snapshot], object]
_Rule = tuple[Reason, Bool[Tensor, " B"]]


@dataclass(frozen=True)
class Outcome:
    """How every row ended, in the order of the observations."""

    x: Float[Tensor, "B n"]
    misfit: Float[Tensor, " B"]
    residual: Float[Tensor, " B"]
    first_residual: Float[Tensor, " B"]
    over_noise: Float[Tensor, " B"]
    iterations: Int[Tensor, " B"]
    rule: Int[Tensor, " B"]  # of the last accepted step, -1 if there was none
    reason: Int[Tensor, " B"]
    cost: dict[str, Int[Tensor, " B"]]
    notes: dict[str, Tensor]

    @staticmethod
    def unanswered(x: Float[Tensor, "B n"], reason: Int[Tensor, " B"], tally: Tally) -> Outcome:
        """Every row as it starts."""
        unknown = torch.full_like(x[:, 0], float("nan"))
        return Outcome(
            x=x.clone(),
            misfit=unknown.clone(),
            residual=unknown.clone(),
            first_residual=unknown.clone(),
            over_noise=unknown,
            iterations=torch.zeros_like(reason),
            rule=torch.full_like(reason, -1),
            reason=reason,
            cost={kind: tally.counts(kind) for kind in KINDS},
            notes={},
        )


@dataclass(frozen=True)
class _Live(RowData):
    """Bookkeeping of the rows still in the batch; ``row`` is their place in the observations."""

    row: Int[Tensor, " B"]
    target: Float[Tensor, "B m"]
    iterations: Int[Tensor, " B"]
    rule: Int[Tensor, " B"]
    first_residual: Float[Tensor, " B"]
    first_gradient: Float[Tensor, " B"]
    last_gradient: Float[Tensor, " B"]  # projected, at the accepted point before
    finite_trial: Bool[Tensor, " B"]  # some trial since the last accepted step was finite


@dataclass(frozen=True)
class _Judgement:
    """What a step says about its row: rules met, the gradient that would be as good as none, and
    whether the step was ``idle``, of use only if it lowers the gradient.
    """

    rules: list[_Rule] = field(default_factory=list)
    flat: Float[Tensor, " B"] | None = None
    idle: Bool[Tensor, " B"] | None = None


class Loop:
    """One run."""

    def __init__(
        self,
        model: Model,
        *,
        descent: Descent[Any],
        search: Search[Any],
        stopping: Stopping,
        max_iterations: int,
        box: Box | None,
        recorder: Recorder | None,
        callback: Callback | None,
    ) -> None:
        self.model, self.descent, self.search = model, descent, search
        self.stopping, self.max_iterations, self.box = stopping, max_iterations, box
        self.recorder, self.callback = recorder, callback
        self.descent_state: RowData | None = None
        self.search_state: SearchState | None = None

    @torch.no_grad()
    def run(self, x0: Float[Tensor, "B n"], target: Float[Tensor, "B m"]) -> Outcome:
        """Solve every row from ``x0``."""
        self._start(x0, target)
        passes = 0
        while len(self.live.row):
            passes += 1
            self._pass(passes)
        return self.outcome

    def _start(self, x0: Tensor, target: Tensor) -> None:
        """Evaluate the rows that can be evaluated; a simulator may refuse NaN for all of them."""
        counts = torch.zeros(len(x0), dtype=torch.int64, device=x0.device)
        unknown = torch.full_like(x0[:, 0], float("nan"))
        observed = (target.abs() < torch.inf).all(1)
        usable = (observed & (x0.abs() < torch.inf).all(1)).nonzero().flatten()
        bad = torch.where(observed, int(Reason.NONFINITE_START), int(Reason.NONFINITE_OBSERVATION))
        self.outcome = Outcome.unanswered(x0, bad, self.model.tally)
        self.model.keep(usable)
        self.live = _Live(
            row=usable,
            target=target[usable],
            iterations=counts[usable],
            rule=counts[usable] - 1,
            first_residual=unknown[usable],
            first_gradient=unknown[usable],
            last_gradient=unknown[usable],
            finite_trial=torch.zeros_like(usable, dtype=torch.bool),
        )
        if len(usable) == 0:
            return
        trial = self.model.evaluate(x0[usable], self.live.target)
        self.point = trial.point
        self.live = replace(self.live, first_residual=self.point.residual)
        finite = self.point.misfit.isfinite()
        reason = _mark(None, ~finite, Reason.NONFINITE_START)
        reason = self._settle(0, trial, finite, reason)
        if self.stopping.gradient_tolerance is not None and self.point.known_gradient is not None:
            first = self._projected_gradient()
            self.live = replace(self.live, first_gradient=first, last_gradient=first)
            reason = _mark(reason, first == 0, Reason.GRADIENT)
        self.path = Path(norm(self.point.x), torch.zeros_like(finite))
        self._finish_pass(0, finite, reason)

    def _pass(self, number: int) -> None:
        assert self.search_state is not None
        model, point, live, search_state = self.model, self.point, self.live, self.search_state

        proposal = self.descent.propose(model, point, self.descent_state, search_state.scale)
        x = proposal.x if self.box is None else self.box.project(proposal.x)
        p = x - point.x
        slope = p.sum(1) if point.known_gradient is None else dot(point.gradient, p)
        if not bool((slope.abs() < torch.inf).all()):
            # A step that is not finite is not evaluated (a simulator may refuse it, for everyone);
            # its slope of NaN fails every test a search makes.
            finite = slope.isfinite()
            x = torch.where(finite[:, None], x, point.x)
            slope = torch.where(finite, slope, torch.nan)
        trial = model.evaluate(x, live.target)
        if self.search.needs_trial_gradient:
            gradient = model.gradient(trial)
            trial = replace(trial, point=replace(trial.point, known_gradient=gradient))
        step = Step(x, p, slope, proposal)
        accept, next_state, give_up = self.search.judge(point, trial.point, step, search_state)
        noise = None
        if self.stopping.decrease_tolerance is not None:
            noise = round_off(point, model.objective)
            if self.stopping.decrease_tolerance > 0:
                accept = accept & ~self.stopping.drowned(step, search_state.trials, noise)

        failed: list[_Rule] = []
        if bool(accept.all()):
            self.point = trial.point
            clean = torch.zeros_like(accept)
            self.live = replace(live, iterations=live.iterations + 1, finite_trial=clean)
        else:
            if trial.point.known_gradient is None:
                trial = replace(
                    trial, point=replace(trial.point, known_gradient=point.known_gradient)
                )
            self.point = trial.point.where(accept, point)
            sane = (trial.point.misfit.isfinite() & slope.isfinite()) | live.finite_trial
            iterations = live.iterations + accept
            self.live = replace(live, iterations=iterations, finite_trial=sane & ~accept)
            failed = [
                (Reason.NO_ACCEPTED_TRIAL, give_up & sane),
                (Reason.NONFINITE_TRIALS, give_up),
            ]
        self._remember(proposal, accept)
        if self.recorder is not None:
            self.recorder.add(self._entry(live, point, step, search_state, accept, give_up))
        self.search_state = next_state
        judged = self._judge_step(point, step, accept, search_state.trials, noise)
        judged.rules.extend(failed)
        reason = self._settle(number, trial, accept, None, judged)
        self._finish_pass(number, accept, reason)

    def _judge_step(
        self,
        before: Point,
        step: Step,
        accept: Bool[Tensor, " B"],
        trials: Int[Tensor, " B"],
        noise: Float[Tensor, " B"] | None,
    ) -> _Judgement:
        """Which rows the step itself shows to be done."""
        stopping, judged = self.stopping, _Judgement()
        if noise is not None:
            rules, self.path = stopping.at_minimum(
                before,
                self.point,
                step,
                accepted=accept,
                trials=trials,
                path=self.path,
                round_off=noise,
            )
            judged = _Judgement(
                rules,
                flat=stopping.flat(before, self.point, step, self.model.objective),
                idle=stopping.drowned(step, trials, noise),
            )
        if stopping.progress is not None:
            little = before.misfit - self.point.misfit < stopping.progress * before.misfit
            if step.proposal.provisional is not None:
                little = little & ~step.proposal.provisional
            judged.rules.append((Reason.NO_PROGRESS, little & accept))
        return judged

    def _settle(
        self,
        number: int,
        trial: Trial,
        moved: Bool[Tensor, " B"],
        reason: Int[Tensor, " B"] | None,
        judged: _Judgement | None = None,
    ) -> Int[Tensor, " B"] | None:
        """Stop the rows that are done by their residual, their step or their gradient, which those
        that go on are given.
        """
        live, stopping = self.live, self.stopping
        if stopping.any_residual_rule:
            for rule, met in stopping.residual_rules(
                self.point, live.first_residual, live.iterations
            ):
                reason = _mark(reason, met & moved, rule)
        for rule, met in () if judged is None else judged.rules:
            reason = _mark(reason, met, rule)

        small_enough = stopping.gradient_tolerance
        wanted = moved if reason is None else moved & (reason == RUNNING)
        if small_enough is None and not self.descent.needs_gradient:
            wanted = torch.zeros_like(moved)
        # A row takes at most one step a pass, so early passes need not look at the step limit.
        at_limit = live.iterations >= self.max_iterations if number >= self.max_iterations else None
        if at_limit is not None and (small_enough is None or self.max_iterations == 0):
            wanted = wanted & ~at_limit
        if bool(wanted.any()):
            self._update_gradient(trial, moved, wanted)
            if small_enough is not None:
                gradient = self._projected_gradient()
                small = gradient <= small_enough * live.first_gradient
                if judged is not None and judged.flat is not None and judged.idle is not None:
                    small = small | (norm(self._free_gradient()) <= judged.flat)
                    stuck = wanted & ~small & judged.idle & (gradient >= live.last_gradient)
                    reason = _mark(reason, stuck, Reason.SMALL_DECREASE)
                reason = _mark(reason, wanted & small, Reason.GRADIENT)
                self.live = replace(live, last_gradient=gradient)
        if at_limit is not None:
            reason = _mark(reason, at_limit, Reason.STEP_LIMIT)
        return reason

    def _update_gradient(
        self, trial: Trial, moved: Bool[Tensor, " B"], wanted: Bool[Tensor, " B"]
    ) -> None:
        """One vjp through the trial's graph, unless the search has asked for it already."""
        if self.search.needs_trial_gradient and self.search_state is not None:
            return
        everyone = bool(wanted.all())
        gradient = self.model.gradient(trial, None if everyone else wanted)
        if not everyone and self.point.known_gradient is not None:
            gradient = torch.where(moved[:, None], gradient, self.point.gradient)
        self.point = replace(self.point, known_gradient=gradient)

    def _projected_gradient(self) -> Float[Tensor, " B"]:
        x, gradient = self.point.x, self.point.gradient
        return norm(gradient if self.box is None else x - self.box.project(x - gradient))

    def _free_gradient(self) -> Float[Tensor, "B n"]:
        """Without what pushes against a bound. Unlike the projected gradient it has one unit."""
        x, gradient = self.point.x, self.point.gradient
        return gradient if self.box is None else gradient * self.box.free(x, gradient)

    def _finish_pass(
        self, number: int, moved: Bool[Tensor, " B"], reason: Int[Tensor, " B"] | None
    ) -> None:
        """Tell the callback, let the rows that are done leave, prepare those that moved."""
        if self.callback is not None:
            snapshot = self._snapshot(moved, reason)
            if self.callback(number, snapshot):
                reason = _mark(snapshot.reason, torch.ones_like(moved), Reason.CALLBACK)
        if reason is not None:
            stay = self._leave(reason)
            if len(stay) == 0:
                return
            moved = moved[stay]
        self._prepare(moved)

    def _leave(self, reason: Int[Tensor, " B"]) -> Int[Tensor, " k"]:
        """Write out the rows that have a reason to stop; return the places of those that stay."""
        live, out = self.live, self.outcome
        done = (reason != RUNNING).nonzero().flatten()
        stay = (reason == RUNNING).nonzero().flatten()
        rows = live.row[done]
        point, objective = self.point, self.model.objective
        for column, values in (
            (out.x, point.x),
            (out.misfit, point.misfit),
            (out.residual, point.residual),
            (out.first_residual, live.first_residual),
            (out.iterations, live.iterations),
            (out.rule, live.rule),
            (out.reason, reason),
        ):
            column.index_copy_(0, rows, values.index_select(0, done))
        if objective.precision is not None:
            out.over_noise[rows] = objective.at(done).over_noise(point.r[done])
        self.model.tally.write(out.cost, rows, done)
        self._note(rows, done)

        self.live = live.take(stay)
        self.model.keep(stay)
        if len(stay):
            self.point, self.path = self.point.take(stay), self.path.take(stay)
            if self.search_state is not None and self.descent_state is not None:
                self.search_state = self.search_state.take(stay)
                self.descent_state = self.descent_state.take(stay)
        return stay

    def _remember(self, proposal: Proposal, accept: Bool[Tensor, " B"]) -> None:
        rule = torch.zeros_like(self.live.rule) if proposal.rule is None else proposal.rule
        self.live = replace(self.live, rule=torch.where(accept, rule, self.live.rule))

    def _note(self, rows: Int[Tensor, " k"], done: Int[Tensor, " k"]) -> None:
        """What the descent wants remembered of rows that leave; zero where it never met them."""
        if self.descent_state is None:
            return
        for name in self.descent.notes:
            value = getattr(self.descent_state, name)
            if name not in self.outcome.notes:
                blank = value.new_zeros(len(self.outcome.x), *value.shape[1:])
                self.outcome.notes[name] = blank
            self.outcome.notes[name][rows] = value[done]

    def _prepare(self, moved: Bool[Tensor, " B"]) -> None:
        model, point, box = self.model, self.point, self.box
        if self.search_state is None or self.descent_state is None:
            self.descent_state = self.descent.prepare(model, point, None, box)
            self.search_state = self.search.start(model, point)
        elif bool(moved.all()):
            self.descent_state = self.descent.prepare(model, point, self.descent_state, box)
        elif bool(moved.any()):
            rows = moved.nonzero().flatten()
            old = self.descent_state.take(rows)
            new = self.descent.prepare(model.at(rows), point.take(rows), old, box)
            self.descent_state = self.descent_state.put(rows, new)

    def _snapshot(self, moved: Bool[Tensor, " B"], reason: Int[Tensor, " B"] | None) -> Snapshot:
        live, point = self.live, self.point
        return Snapshot(
            rows=live.row,
            x=point.x.reshape(-1, *self.model.x_shape),
            residual=point.residual,
            loss=point.misfit / self.model.objective.count,
            iterations=live.iterations,
            accepted=moved,
            reason=torch.full_like(live.row, RUNNING) if reason is None else reason,
            evaluations=self.model.tally.evaluations(),
        )

    def _entry(
        self,
        live: _Live,
        before: Point,
        step: Step,
        search_state: SearchState,
        accept: Bool[Tensor, " B"],
        give_up: Bool[Tensor, " B"],
    ) -> Entry:
        """What the pass did to the rows that finished an iteration in it."""
        rule = step.proposal.rule
        entry = Entry(
            row=live.row,
            iteration=live.iterations,
            loss=self.point.misfit / self.model.objective.count,
            residual=self.point.residual,
            scale=search_state.scale,
            slope=step.slope,
            step_norm=norm(step.p),
            gradient_norm=norm(step.p if before.known_gradient is None else before.gradient),
            accepted=accept,
            rejections=search_state.trials,
            rule=torch.zeros_like(live.row) if rule is None else rule,
        )
        finished = accept | give_up
        return entry if bool(finished.all()) else entry.take(finished.nonzero().flatten())


def _mark(
    reason: Int[Tensor, " B"] | None, mask: Bool[Tensor, " B"], value: Reason
) -> Int[Tensor, " B"] | None:
    """Note why rows stop; the first reason stands, and None means that no row stops."""
    if not bool(mask.any()):
        return reason
    if reason is None:
        reason = torch.full_like(mask, RUNNING, dtype=torch.int64)
    return reason.masked_fill(mask & (reason == RUNNING), int(value))
