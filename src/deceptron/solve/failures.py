"""Rows that start where the simulator fails begin again closer to the family, where it works.

What a network answers to strange data may be nothing that a simulator can run: a negative mass, two
bodies in one place. The family of the training data was simulated, so on the way from such a start
to its mean there is a point that can be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.status import Reason
from deceptron.solve.model import Model
from deceptron.solve.outcome import Outcome
from deceptron.solve.recorder import Recorder
from deceptron.solve.task import Task

# How often the way to the mean is halved; what is left of it then is a sixteenth.
HALVINGS = 4
# Solves rows from where they start: (model, start, target, recorder) -> outcome.
Run: TypeAlias = Callable[
    [Model, Float[Tensor, "B n"], Float[Tensor, "B m"], Recorder | None], Outcome
]


def with_failures_begun_again(
    task: Task, outcome: Outcome, run: Run, recorder: Recorder | None
) -> tuple[Task, Outcome]:
    """The task with other starts for such rows, and the outcome with what became of them. Each
    attempt costs what it evaluates; a row for which none works stays at its start.
    """
    family = task.known.calibration.family
    if family is None:
        return task, outcome
    first, mean = task.start, family.mean.to(task.start).flatten()
    for _ in range(HALVINGS):
        rows = _failed(task, outcome)
        if len(rows) == 0:
            return task, outcome
        start = task.start.clone()
        start[rows] = mean + 0.5 * (start[rows] - mean)
        task = replace(task, start=start if task.box is None else task.box.project(start))
        model = task.model()
        model.keep(rows)
        steps = None if recorder is None else recorder.at(rows)
        again = run(model, task.start[rows], task.target[rows], steps)
        again = again.changed(row=outcome.row[rows], cost=outcome.cost[rows] + again.cost)
        others = torch.ones_like(outcome.row).index_fill(0, rows, 0).nonzero().flatten()
        notes = {name: value[others] for name, value in outcome.notes.items()}
        outcome = Outcome.in_order([outcome.take(others).changed(notes=notes), again])
    rows = _failed(task, outcome)
    task = replace(task, start=task.start.index_copy(0, rows, first[rows]))
    return task, outcome.changed(x=outcome.x.index_copy(0, rows, first[rows]))


def _failed(task: Task, outcome: Outcome) -> Int[Tensor, " k"]:
    failed = outcome.reason == Reason.NONFINITE_START
    return (failed & task.start.isfinite().all(1)).nonzero().flatten()
