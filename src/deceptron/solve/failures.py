"""Rows that cannot be evaluated at their start, and rows that their steps have led astray.

Rows that start where the simulator fails begin again closer to the family, where it works.

What a network answers to strange data may be nothing that a simulator can run: a negative mass, two
bodies in one place. The family of the training data was simulated, so on the way from such a start
to its mean there is a point that can be.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from deceptron.core.status import Reason
from deceptron.solve.outcome import Outcome
from deceptron.solve.plan import Plan
from deceptron.solve.recorder import Recorder

# How often the way to the mean is halved; what is left of it then is a sixteenth.
HALVINGS = 4


def with_failures_begun_again(
    plan: Plan, outcome: Outcome, recorder: Recorder | None
) -> tuple[Plan, Outcome]:
    """The plan with other starts for such rows, and the outcome with what became of them. Each
    attempt costs what it evaluates; a row for which none works stays at its start.
    """
    family = plan.known.calibration.family
    if family is None or bool((outcome.reason == Reason.CALLBACK).any()):
        return plan, outcome
    first, mean = plan.start, family.mean.to(plan.start).flatten()
    for _ in range(HALVINGS):
        rows = _failed(plan, outcome)
        if len(rows) == 0:
            return plan, outcome
        start = plan.start.clone()
        start[rows] = mean + 0.5 * (start[rows] - mean)
        plan = replace(plan, start=start if plan.box is None else plan.box.project(start))
        model = replace(plan, start_cost={}).model()
        model.keep(rows)
        steps = None if recorder is None else recorder.at(rows)
        again = plan.run(model, plan.start[rows], plan.target[rows], steps)
        again = again.changed(row=outcome.row[rows], cost=outcome.cost[rows] + again.cost)
        others = torch.ones_like(outcome.row).index_fill(0, rows, 0).nonzero().flatten()
        notes = {name: value[others] for name, value in outcome.notes.items()}
        outcome = Outcome.in_order([outcome.take(others).changed(notes=notes), again])
    rows = _failed(plan, outcome)
    plan = replace(plan, start=plan.start.index_copy(0, rows, first[rows]))
    return plan, outcome.changed(x=outcome.x.index_copy(0, rows, first[rows]))


def _failed(plan: Plan, outcome: Outcome) -> Int[Tensor, " k"]:
    failed = outcome.reason == Reason.NONFINITE_START
    return (failed & plan.start.isfinite().all(1)).nonzero().flatten()


def with_less_plausible_left(plan: Plan, outcome: Outcome) -> Outcome:
    """No answer is less plausible than its start: rows whose data are not explained go back there
    where that is so.

    Down a linearisation that does not hold, a row may go far to explain little. What the data say
    for an answer x, at the noise that suits it best, is ``m log |r|^2``; what the family says
    against it, by the widest of its laws, ``|x - mean|^2 / (size scale)^2`` in the metric of its
    shape.
    """
    assert plan.beliefs is not None
    family = plan.beliefs.family
    left = (outcome.rule >= 0) & ~plan.objective.explained(outcome.residual)
    rows = (left & outcome.misfit.isfinite()).nonzero().flatten()
    if family is None or family.mean is None or len(rows) == 0:
        return outcome
    widest = torch.full_like(rows, len(family.shapes) - 1), torch.full_like(rows, -1)
    mean = family.mean.to(plan.start).expand(len(rows), -1)
    far = family.distance(outcome.x[rows] - mean, *widest)
    near = family.distance(plan.start[rows] - mean, *widest)
    count = plan.objective.count.expand(len(outcome.row))[rows].double()
    first, last = (part[rows].double() for part in (outcome.first_residual, outcome.residual))
    # What noise alone may leave is as good as nothing.
    limit = plan.objective.limit.expand(len(outcome.row))[rows].double()
    gain = 2 * count * (torch.maximum(first, limit) / torch.maximum(last, limit)).log()
    rows = rows[far - near > gain]
    if len(rows) == 0:
        return outcome
    model = replace(plan, start_cost={}).model()
    model.keep(rows)
    point = model.values(plan.start[rows], plan.target[rows])
    back = outcome.take(rows).changed(
        x=point.x,
        misfit=point.misfit,
        residual=model.objective.residual(point.fit),
        over_noise=model.objective.over_noise(point.r),
        over_error=model.objective.over_error(point.r),
        rule=torch.full_like(rows, -1),
        reason=torch.full_like(rows, int(Reason.START_IS_BETTER)),
        cost=outcome.cost[rows] + model.tally.table(),
        notes={name: value[rows] for name, value in outcome.notes.items()},
    )
    others = torch.ones_like(outcome.row).index_fill(0, rows, 0).nonzero().flatten()
    notes = {name: value[others] for name, value in outcome.notes.items()}
    return Outcome.in_order([outcome.take(others).changed(notes=notes), back])
