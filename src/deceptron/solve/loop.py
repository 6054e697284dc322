"""The one loop that runs every method: each pass, every live row makes one trial.

propose -> project -> evaluate -> judge -> merge the accepted rows -> stop rows that are done
-> prepare the rows that moved. Line search and outer iteration share the loop: a row whose trial
was rejected tries a shorter one in the next pass while its neighbours move on. Nothing is decided
by a reduction over rows, and a row that is done leaves the batch. Where all rows go the same way,
as they mostly do, nothing is masked: a mask of None means all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.status import Reason
from deceptron.solve.endings import Endings, named
from deceptron.solve.model import Model, Point, Trial
from deceptron.solve.outcome import Outcome, finite_rows
from deceptron.solve.protocols import Descent, Rule, Search, SearchState, Step
from deceptron.solve.recorder import Entry, Recorder
from deceptron.solve.rows import RowData, dot, norm
from deceptron.solve.snapshot import Callback, Snapshot
from deceptron.solve.stopping import RUNNING, Stopping


@dataclass(frozen=True)
class _Live(RowData):
    """Bookkeeping of the rows still in the batch; ``row`` is their place in the observations."""

    row: Int[Tensor, " B"]
    target: Float[Tensor, "B m"]
    iterations: Int[Tensor, " B"]
    rule: Int[Tensor, " B"]  # of the last accepted step, the first one before there is any
    # Where some trial since the last accepted step was finite; None: nowhere.
    finite_trial: Bool[Tensor, " B"] | None = None


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

    @property
    def _uses_gradients(self) -> bool:
        by_gradient = self.stopping.gradient_tolerance is not None
        return by_gradient or self.descent.needs_gradient or self.search.needs_trial_gradient

    @torch.no_grad()
    def run(self, x0: Float[Tensor, "B n"], target: Float[Tensor, "B m"]) -> Outcome:
        """Solve every row from ``x0``."""
        rows, x0, target, self.ended = finite_rows(self.model, x0, target)
        self.live = _Live(rows, target, torch.zeros_like(rows), torch.zeros_like(rows))
        passes = 0
        if rows.shape[0]:
            self._start(x0)
        while self.live.row.shape[0]:
            passes += 1
            self._pass(passes)
        return Outcome.in_order(self.ended)

    def _start(self, x0: Float[Tensor, "B n"]) -> None:
        trial = self.model.evaluate(x0, self.live.target, taped=self._uses_gradients)
        self.point = trial.point
        self.endings = Endings(self.model, self.stopping, self.box, self.point)
        finite = self.point.misfit.abs() < torch.inf
        moved = None if bool(finite.all()) else finite
        rules: list[Rule] = [] if moved is None else [(Reason.NONFINITE_START, ~moved)]
        rules += self.endings.by_residual(self.point, moved)
        self.descent_state = self.descent.begin(self.model, self.point)
        rules += self._by_descent(None, moved)
        reason = named(None, rules)
        wanted = self._wanted(0, moved, reason)
        if wanted is None or bool(wanted.any()):
            self._update_gradient(trial, moved, wanted)
        if self.stopping.gradient_tolerance is not None and self.point.known_gradient is not None:
            reason = named(reason, self.endings.at_first_gradient(self.point))
        self._finish_pass(0, moved, self._at_limit(0, reason))

    def _pass(self, number: int) -> None:
        assert self.search_state is not None
        model, point, live, search_state = self.model, self.point, self.live, self.search_state

        proposal = self.descent.propose(model, point, self.descent_state, search_state.scale)
        x = proposal.x if self.box is None else self.box.project(proposal.x)
        p = x - point.x
        slope = p.sum(1) if point.known_gradient is None else dot(point.gradient, p)
        if not math.isfinite(float(slope.sum())):
            # A step that is not finite is not evaluated (a simulator may refuse it, for everyone);
            # its slope of NaN fails every test a search makes.
            finite = slope.isfinite()
            x = torch.where(finite[:, None], x, point.x)
            slope = torch.where(finite, slope, torch.nan)
        if self._uses_gradients:
            trial = model.evaluate(x, live.target)
        else:
            trial = Trial(model.values(x, live.target), x, None)
        after = trial.point
        if self.search.needs_trial_gradient:
            after = after.changed(known_gradient=model.gradient(trial))
        step = Step(x, p, slope, proposal)
        accept, next_state, give_up = self.search.judge(point, after, step, search_state)
        trials = search_state.trials
        drowned = self.endings.drowned(point, step, trials)
        if drowned is not None and self.stopping.decrease_tolerance:
            accept = accept & ~drowned[0]

        failed: list[Rule] = []
        rule = live.rule if proposal.rule is None else proposal.rule
        if bool(accept.all()):
            moved = None
            self.point = after
            self.live = live.changed(iterations=live.iterations + 1, rule=rule, finite_trial=None)
        else:
            moved = accept
            sane = (after.misfit + slope).abs() < torch.inf
            if live.finite_trial is not None:
                sane = sane | live.finite_trial
            if after.known_gradient is None:
                after = after.changed(known_gradient=point.known_gradient)
            self.point = after.where(accept, point)
            self.live = live.changed(
                iterations=live.iterations + accept,
                rule=torch.where(accept, rule, live.rule),
                finite_trial=sane & ~accept,
            )
            failed = [
                (Reason.NO_ACCEPTED_TRIAL, give_up & sane),
                (Reason.NONFINITE_TRIALS, give_up),
            ]
        if self.recorder is not None:
            self.recorder.add(self._entry(live, point, step, search_state, accept, give_up))
        self.search_state = next_state
        endings = self.endings
        rules = endings.by_residual(self.point, moved)
        rules += self._by_descent(point, moved)
        rules += endings.by_step(point, self.point, step, moved, trials, drowned)
        reason = named(None, [*rules, *failed])
        wanted = self._wanted(number, moved, reason)
        if wanted is None or bool(wanted.any()):
            self._update_gradient(trial, moved, wanted)
            if self.stopping.gradient_tolerance is not None:
                rules = endings.by_gradient(point, self.point, step, wanted, trials, drowned)
                reason = named(reason, rules)
        self._finish_pass(number, moved, self._at_limit(number, reason))

    def _by_descent(self, before: Point | None, moved: Bool[Tensor, " B"] | None) -> list[Rule]:
        """What the descent itself says of rows that have moved."""
        if self.descent_state is None:
            return []
        rules = self.descent.endings(self.model, before, self.point, self.descent_state)
        return [(reason, met if moved is None else met & moved) for reason, met in rules]

    def _wanted(
        self, number: int, moved: Bool[Tensor, " B"] | None, reason: Int[Tensor, " B"] | None
    ) -> Bool[Tensor, " B"] | None:
        """Which rows need the gradient where they are: those that go on, or may be done by it."""
        by_gradient = self.stopping.gradient_tolerance is not None
        if not by_gradient and not self.descent.needs_gradient:
            return torch.zeros_like(self.live.row, dtype=torch.bool)
        wanted = moved
        if reason is not None:
            running = reason == RUNNING
            wanted = running if moved is None else moved & running
        # A row takes at most one step a pass, so early passes need not look at the step limit.
        if number >= self.max_iterations and (not by_gradient or self.max_iterations == 0):
            below = self.live.iterations < self.max_iterations
            wanted = below if wanted is None else wanted & below
        return wanted

    def _at_limit(self, number: int, reason: Int[Tensor, " B"] | None) -> Int[Tensor, " B"] | None:
        if number < self.max_iterations:
            return reason
        return named(reason, [(Reason.STEP_LIMIT, self.live.iterations >= self.max_iterations)])

    def _update_gradient(
        self,
        trial: Trial,
        moved: Bool[Tensor, " B"] | None,
        wanted: Bool[Tensor, " B"] | None,
    ) -> None:
        """One vjp through the trial's graph, unless the search has asked for it already."""
        if self.search.needs_trial_gradient and self.search_state is not None:
            return
        gradient = self.model.gradient(trial, wanted)
        if moved is not None and self.point.known_gradient is not None:
            gradient = torch.where(moved[:, None], gradient, self.point.gradient)
        self.point = self.point.changed(known_gradient=gradient)

    def _finish_pass(
        self,
        number: int,
        moved: Bool[Tensor, " B"] | None,
        reason: Int[Tensor, " B"] | None,
    ) -> None:
        """Tell the callback, let the rows that are done leave, prepare those that moved."""
        if self.callback is not None:
            snapshot = self._snapshot(moved, reason)
            if self.callback(number, snapshot):
                everyone = torch.ones_like(self.live.row, dtype=torch.bool)
                reason = named(snapshot.reason, [(Reason.CALLBACK, everyone)])
        if reason is not None:
            stay = self._leave(reason)
            if stay.shape[0] == 0:
                return
            moved = None if moved is None else moved[stay]
        self._prepare(moved)

    def _leave(self, reason: Int[Tensor, " B"]) -> Int[Tensor, " k"]:
        """Part with the rows that have a reason to stop; return the places of those that stay."""
        stay = (reason == RUNNING).nonzero().flatten()
        live, point, objective = self.live, self.point, self.model.objective
        first, cost, state = (
            self.endings.first_residual,
            self.model.tally.table(),
            self.descent_state,
        )
        if stay.shape[0]:
            done = (reason != RUNNING).nonzero().flatten()
            live, point, objective = live.take(done), point.take(done), objective.at(done)
            first, cost, reason = first[done], cost[done], reason[done]
            state = None if state is None else state.take(done)
        self.ended.append(
            Outcome(
                row=live.row,
                x=point.x,
                misfit=point.misfit,
                residual=objective.residual(point.fit),
                first_residual=first,
                over_noise=objective.over_noise(point.r),
                over_error=objective.over_error(point.r),
                iterations=live.iterations,
                rule=live.rule.masked_fill(live.iterations == 0, -1),
                reason=reason,
                cost=cost,
                notes={} if state is None else {n: getattr(state, n) for n in self.descent.notes},
            )
        )
        self.live = self.live.take(stay)
        if stay.shape[0]:
            self.model.keep(stay)
            self.endings.keep(stay)
            self.point = self.point.take(stay)
            if self.search_state is not None:
                self.search_state = self.search_state.take(stay)
            if self.descent_state is not None:
                self.descent_state = self.descent_state.take(stay)
        return stay

    def _prepare(self, moved: Bool[Tensor, " B"] | None) -> None:
        model, point, box = self.model, self.point, self.box
        if self.search_state is None:
            self.descent_state = self.descent.prepare(model, point, self.descent_state, box)
            self.search_state = self.search.start(model, point)
        elif moved is None or bool(moved.all()):
            self.descent_state = self.descent.prepare(model, point, self.descent_state, box)
        elif bool(moved.any()):
            assert self.descent_state is not None
            rows = moved.nonzero().flatten()
            old = self.descent_state.take(rows)
            new = self.descent.prepare(model.at(rows), point.take(rows), old, box)
            self.descent_state = self.descent_state.put(rows, new)

    def _snapshot(
        self, moved: Bool[Tensor, " B"] | None, reason: Int[Tensor, " B"] | None
    ) -> Snapshot:
        live, point, objective = self.live, self.point, self.model.objective
        everyone = torch.ones_like(live.row, dtype=torch.bool)
        return Snapshot(
            rows=live.row,
            x=point.x.reshape(-1, *self.model.x_shape),
            residual=objective.residual(point.fit),
            loss=point.misfit / objective.count,
            iterations=live.iterations,
            accepted=everyone if moved is None else moved,
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
        rule, objective = step.proposal.rule, self.model.objective
        unknown = torch.full_like(step.slope, torch.nan)
        entry = Entry(
            row=live.row,
            iteration=live.iterations,
            loss=self.point.misfit / objective.count,
            residual=objective.residual(self.point.fit),
            scale=search_state.scale,
            slope=step.slope,
            step_norm=norm(step.p),
            gradient_norm=unknown if before.known_gradient is None else norm(before.gradient),
            accepted=accept,
            rejections=search_state.rejections,
            rule=torch.zeros_like(live.row) if rule is None else rule,
        )
        finished = accept | give_up
        return entry if bool(finished.all()) else entry.take(finished.nonzero().flatten())
