"""The one loop that runs every method: each pass, every live row makes one trial.

propose -> project -> evaluate -> judge -> merge the accepted rows -> stop rows that are done
-> prepare the rows that moved. Line search and outer iteration share the loop: a row whose trial
was rejected tries a shorter one in the next pass while its neighbours move on. Nothing is decided
by a reduction over rows, and a row that is done leaves the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.status import Reason
from deceptron.solve.model import Model, Point, Tally, Trial
from deceptron.solve.protocols import Descent, Search, SearchState, Step
from deceptron.solve.recorder import Entry, Recorder
from deceptron.solve.rows import RowData, dot, norm
from deceptron.solve.stopping import RUNNING, Stopping


@dataclass(frozen=True)
class Snapshot:
    """What a callback sees after each pass: the rows that were live in it.

    ``reason`` is -1 where a row goes on and a ``Reason`` where it has just stopped.
    """

    rows: Int[Tensor, " B"]
    x: Float[Tensor, "B *x"]
    residual: Float[Tensor, " B"]
    loss: Float[Tensor, " B"]
    iterations: Int[Tensor, " B"]
    accepted: Bool[Tensor, " B"]
    reason: Int[Tensor, " B"]


Callback = Callable[[int, Snapshot], object]


@dataclass(frozen=True)
class Outcome(RowData):
    """How every row ended, in the order of the observations."""

    x: Float[Tensor, "B n"]
    loss: Float[Tensor, " B"]
    first_loss: Float[Tensor, " B"]
    iterations: Int[Tensor, " B"]
    reason: Int[Tensor, " B"]
    tally: Tally


@dataclass(frozen=True)
class _Live(RowData):
    """Bookkeeping of the rows still in the batch; ``row`` is their place in the observations."""

    row: Int[Tensor, " B"]
    target: Float[Tensor, "B m"]
    iterations: Int[Tensor, " B"]
    first_loss: Float[Tensor, " B"]
    first_gradient: Float[Tensor, " B"]
    finite_trial: Bool[Tensor, " B"]  # some trial since the last accepted step was finite


class Loop:
    """One run; with ``max_iterations=0`` every row stops where it starts."""

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
        counts = torch.zeros(len(x0), dtype=torch.int64, device=x0.device)
        unknown = torch.full_like(x0[:, 0], float("nan"))
        self.outcome = Outcome(
            x=x0.clone(),
            loss=unknown.clone(),
            first_loss=unknown.clone(),
            iterations=counts.clone(),
            reason=torch.full_like(counts, Reason.NONFINITE_OBSERVATION),
            tally=self.model.tally,
        )
        usable = target.isfinite().all(1).nonzero().flatten()
        self.live = _Live(
            row=usable,
            target=target[usable],
            iterations=counts[usable],
            first_loss=unknown[usable],
            first_gradient=unknown[usable],
            finite_trial=torch.zeros_like(usable, dtype=torch.bool),
        )
        if len(usable) == 0:
            return
        self.model.tally = self.outcome.tally.take(usable)
        trial = self.model.evaluate(x0[usable], self.live.target)
        self.point = trial.point
        self.live = replace(self.live, first_loss=self.point.loss)
        self.descent_state: RowData | None = None
        self.search_state: SearchState | None = None

        finite = self.point.loss.isfinite() & self.point.x.isfinite().all(1)
        reason = torch.where(finite, RUNNING, int(Reason.NONFINITE_START))
        reason = self._settle(trial, finite, reason)
        if self.stopping.gradient_tolerance is not None and self.point.gradient.numel():
            first = self._projected_gradient()
            self.live = replace(self.live, first_gradient=first)
            reason = torch.where((reason == RUNNING) & (first == 0), int(Reason.GRADIENT), reason)
        self._finish_pass(0, finite, reason)

    def _pass(self, number: int) -> None:
        assert self.search_state is not None
        model, point, live, search_state = self.model, self.point, self.live, self.search_state

        proposal = self.descent.propose(model, point, self.descent_state, search_state.scale)
        x, p = point.x + proposal.delta, proposal.delta
        if self.box is not None:
            x = self.box.project(x)
            p = x - point.x
        trial = model.evaluate(x, live.target)
        if self.search.needs_trial_gradient:
            trial = replace(trial, point=model.with_gradient(trial))
        step = Step(p, dot(point.gradient, p), norm(p), proposal)
        accept, next_state, give_up = self.search.judge(point, trial.point, step, search_state)
        # A map that swallows NaN must not smuggle a NaN iterate in.
        sane = trial.point.loss.isfinite() & step.slope.isfinite()
        accept = accept & sane
        finished = accept | give_up

        self._merge(trial.point, accept)
        if self.recorder is not None:
            self.recorder.add(self._entry(step, search_state, accept, finished, point.gradient))
        self.search_state = next_state
        sane = sane | live.finite_trial
        self.live = replace(live, iterations=live.iterations + accept, finite_trial=sane & ~accept)
        hopeless = torch.where(sane, int(Reason.NO_ACCEPTED_TRIAL), int(Reason.NONFINITE_TRIALS))
        reason = torch.where(give_up & ~accept, hopeless, RUNNING)
        reason = self._settle(trial, accept, reason)
        self._finish_pass(number, accept, reason)

    def _merge(self, trial: Point, accept: Bool[Tensor, " B"]) -> None:
        """Accepted rows move; their gradient, if not known yet, comes in ``_settle``."""
        if bool(accept.all()):
            self.point = trial
        elif bool(accept.any()):
            if trial.gradient.numel() == 0:
                trial = replace(trial, gradient=self.point.gradient)
            self.point = trial.where(accept, self.point)

    def _settle(
        self, trial: Trial, moved: Bool[Tensor, " B"], reason: Int[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        """Stop the moved rows that are done; give a gradient to those that go on."""
        live, stopping = self.live, self.stopping
        if stopping.any_residual_rule:
            first = (2 * live.first_loss).sqrt()
            met = stopping.by_residual(self.point.residual, first)
            reason = torch.where(moved & (reason == RUNNING), met, reason)
        at_limit = live.iterations >= self.max_iterations
        small_enough = stopping.gradient_tolerance
        wanted = moved & (reason == RUNNING)
        if small_enough is None or self.max_iterations == 0:
            wanted = wanted & ~at_limit
        if bool(wanted.any()):
            if trial.point.gradient.numel() == 0:
                gradient = self.model.with_gradient(trial, wanted).gradient
                if self.point.gradient.numel():
                    gradient = torch.where(moved[:, None], gradient, self.point.gradient)
                self.point = replace(self.point, gradient=gradient)
            if small_enough is not None:
                small = self._projected_gradient() <= small_enough * live.first_gradient
                reason = torch.where(wanted & small, int(Reason.GRADIENT), reason)
        limit = Reason.STEP_LIMIT
        if self.max_iterations == 0 and not stopping.any_residual_rule:
            limit = Reason.DIRECT
        return torch.where((reason == RUNNING) & at_limit, int(limit), reason)

    def _projected_gradient(self) -> Float[Tensor, " B"]:
        x, gradient = self.point.x, self.point.gradient
        return norm(gradient if self.box is None else x - self.box.project(x - gradient))

    def _finish_pass(
        self, number: int, moved: Bool[Tensor, " B"], reason: Int[Tensor, " B"]
    ) -> None:
        """Tell the callback, let the rows that are done leave, prepare those that moved."""
        live, point = self.live, self.point
        if self.callback is not None:
            snapshot = Snapshot(
                rows=live.row,
                x=point.x.reshape(-1, *self.model.x_shape),
                residual=point.residual,
                loss=point.loss,
                iterations=live.iterations,
                accepted=moved,
                reason=reason,
            )
            if self.callback(number, snapshot):
                reason = torch.where(reason == RUNNING, int(Reason.CALLBACK), reason)

        done = reason != RUNNING
        if bool(done.any()):
            self._leave(done.nonzero().flatten(), reason)
            stay = (~done).nonzero().flatten()
            moved = moved[stay]
            self.live, self.model.tally = live.take(stay), self.model.tally.take(stay)
            if len(stay) == 0:
                return
            self.point = point.take(stay)
            if self.search_state is not None and self.descent_state is not None:
                self.search_state = self.search_state.take(stay)
                self.descent_state = self.descent_state.take(stay)
        self._prepare(moved)

    def _leave(self, done: Int[Tensor, " k"], reason: Int[Tensor, " B"]) -> None:
        rows, out, tally = self.live.row[done], self.outcome, self.model.tally
        out.x[rows] = self.point.x[done]
        out.loss[rows] = self.point.loss[done]
        out.first_loss[rows] = self.live.first_loss[done]
        out.iterations[rows] = self.live.iterations[done]
        out.reason[rows] = reason[done]
        for name, counts in tally._tensors():
            getattr(out.tally, name)[rows] = counts[done]

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

    def _entry(
        self,
        step: Step,
        search_state: SearchState,
        accept: Bool[Tensor, " B"],
        finished: Bool[Tensor, " B"],
        gradient: Float[Tensor, "B n"],
    ) -> Entry:
        rule = step.proposal.rule
        tiny = torch.finfo(step.norm.dtype).tiny
        entry = Entry(
            row=self.live.row,
            iteration=self.live.iterations,
            residual=self.point.residual,
            loss=self.point.loss,
            step_size=search_state.scale,
            step_norm=step.norm,
            cosine=-step.slope / (step.norm * norm(gradient)).clamp_min(tiny),
            accepted=accept,
            trials=search_state.trials + 1,
            rule=torch.zeros_like(self.live.row) if rule is None else rule,
        )
        return entry if bool(finished.all()) else entry.take(finished.nonzero().flatten())
