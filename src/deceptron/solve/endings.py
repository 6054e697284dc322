"""Which rows a pass ends, and why: by their residual, their step, their gradient or the limit."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.status import Reason
from deceptron.solve.model import Model, Point, round_off
from deceptron.solve.protocols import Rule, Step
from deceptron.solve.rows import RowData, norm
from deceptron.solve.stopping import RUNNING, Path, Stopping


@dataclass(frozen=True)
class _Marks(RowData):
    """What the rules remember of each row; gradients are projected."""

    first_residual: Float[Tensor, " B"]
    first_gradient: Float[Tensor, " B"] | None
    last_gradient: Float[Tensor, " B"] | None


class Endings:
    """The rules of one run, applied to the rows that are live. A mask of None means all of them."""

    def __init__(self, model: Model, stopping: Stopping, box: Box | None, point: Point) -> None:
        self._model, self._stopping, self._box = model, stopping, box
        self._marks = _Marks(model.objective.residual(point.fit), None, None)
        self._path: Path | None = None
        if stopping.decrease_tolerance is not None:
            size = norm(point.x)
            self._path = Path(size, torch.zeros_like(size, dtype=torch.bool))

    @property
    def first_residual(self) -> Float[Tensor, " B"]:
        """At the start."""
        return self._marks.first_residual

    def keep(self, index: Int[Tensor, " k"]) -> None:
        """Only the live rows at ``index`` stay."""
        self._marks = self._marks.take(index)
        self._path = None if self._path is None else self._path.take(index)

    def by_residual(
        self,
        point: Point,
        moved: Bool[Tensor, " B"] | None,
    ) -> list[Rule]:
        """What the user asked for."""
        if not self._stopping.any_residual_rule:
            return []
        residual = self._model.objective.residual(point.fit)
        rules = self._stopping.residual_rules(point, residual, self.first_residual)
        return [(rule, met if moved is None else met & moved) for rule, met in rules]

    def drowned(
        self, point: Point, step: Step, trials: Int[Tensor, " B"] | None
    ) -> tuple[Bool[Tensor, " B"], Float[Tensor, " B"]] | None:
        """Where a trial from ``point`` can show nothing but round-off, and how large that is.

        ``trials`` are those that the search had rejected before; None: none of them.
        """
        if self._stopping.decrease_tolerance is None:
            return None
        noise = round_off(point, self._model.objective)
        return self._stopping.drowned(step, trials, noise), noise

    def by_step(
        self,
        before: Point,
        after: Point,
        step: Step,
        moved: Bool[Tensor, " B"] | None,
        trials: Int[Tensor, " B"] | None,
        drowned: tuple[Bool[Tensor, " B"], Float[Tensor, " B"]] | None,
    ) -> list[Rule]:
        """Which rows the step itself shows to be done."""
        stopping = self._stopping
        rules: list[Rule] = []
        if drowned is not None:
            assert self._path is not None
            rules, self._path = stopping.at_minimum(
                before,
                after,
                step,
                accepted=moved,
                trials=trials,
                path=self._path,
                drowned=drowned[0],
                round_off=drowned[1],
            )
        if stopping.progress is not None:
            gain = before.misfit - after.misfit
            too_little = gain < stopping.progress * before.misfit
            if step.proposal.provisional is not None:
                too_little = too_little & ~step.proposal.provisional
            if moved is not None:
                too_little = too_little & moved
            rules.append((Reason.NO_PROGRESS, too_little))
        return rules

    def at_first_gradient(self, point: Point) -> list[Rule]:
        """Remember it; a row that has none is done."""
        first = self._projected(point)
        self._marks = self._marks.changed(first_gradient=first, last_gradient=first)
        return [(Reason.GRADIENT, first == 0)]

    def by_gradient(
        self,
        before: Point,
        after: Point,
        step: Step,
        wanted: Bool[Tensor, " B"] | None,
        trials: Int[Tensor, " B"] | None,
        drowned: tuple[Bool[Tensor, " B"], Float[Tensor, " B"]] | None,
    ) -> list[Rule]:
        """Which of the ``wanted`` rows are done by the gradient they have just been given."""
        assert self._stopping.gradient_tolerance is not None
        first, last = self._marks.first_gradient, self._marks.last_gradient
        assert first is not None
        assert last is not None
        gradient = self._projected(after)
        self._marks = self._marks.changed(last_gradient=gradient)
        small = gradient <= self._stopping.gradient_tolerance * first
        rules: list[Rule] = []
        if drowned is not None:
            # Without what pushes against a bound. Unlike the projected gradient it has one unit.
            free, box = gradient, self._box
            if box is not None:
                free = norm(after.gradient * box.free(after.x, after.gradient))
            flat = self._stopping.flat(before, after, step, self._model.objective)
            small = small | (free <= flat)
            # Such a step is of use only if it lowers the gradient.
            useless = (gradient >= last) & ~small
            stuck = drowned[0] & useless
            if trials is not None and step.proposal.predicted is not None:
                # Where J is singular the undamped model promises much for ever. But less damping
                # has failed, and what this much can gain is not to be seen.
                unseen = (trials > 0) & (step.proposal.predicted <= drowned[1]) & useless & ~stuck
                stuck = stuck | self._near_a_minimum(after, free, unseen)
            rules.append((Reason.SMALL_DECREASE, stuck if wanted is None else stuck & wanted))
        return [*rules, (Reason.GRADIENT, small if wanted is None else small & wanted)]

    def _near_a_minimum(
        self, point: Point, gradient: Float[Tensor, " B"], asked: Bool[Tensor, " B"]
    ) -> Bool[Tensor, " B"]:
        """Of the rows ``asked``, those with |J'r| <= eps^(1/2) |J| |r|: a misfit that is known to
        its precision places a minimum to the root of that. |J| is probed by one product.
        """
        rows = asked.nonzero().flatten()
        near = torch.zeros_like(asked)
        if len(rows):
            model, x = self._model.at(rows), point.x[rows]
            probe = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(0)).to(x)
            stretch = norm(model.objective.weigh(model.f_jvp(x, probe.expand_as(x))))
            root = torch.finfo(x.dtype).eps ** 0.5
            near[rows] = gradient[rows] <= root * stretch * (2 * point.misfit[rows]).sqrt()
        return near

    def _projected(self, point: Point) -> Float[Tensor, " B"]:
        x, gradient, box = point.x, point.gradient, self._box
        return norm(gradient if box is None else x - box.project(x - gradient))


def named(reason: Int[Tensor, " B"] | None, rules: list[Rule]) -> Int[Tensor, " B"] | None:
    """Why rows stop: the first rule that a row meets. None means that no row stops."""
    if not rules:
        return reason
    met = rules[0][1]
    for _, other in rules[1:]:
        met = met | other
    if not bool(met.any()):
        return reason
    if reason is None:
        reason = torch.full_like(met, RUNNING, dtype=torch.int64)
    for rule, mask in rules:
        reason = reason.masked_fill(mask & (reason == RUNNING), int(rule))
    return reason
