"""Methods whose answer is their start: one evaluation says how well it explains the data."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.status import Reason
from deceptron.solve.model import Model
from deceptron.solve.outcome import Outcome, finite_rows
from deceptron.solve.snapshot import Callback, Snapshot
from deceptron.solve.stopping import Stopping


@torch.no_grad()
def answered(
    model: Model,
    stopping: Stopping,
    x: Float[Tensor, "B n"],
    target: Float[Tensor, "B m"],
    callback: Callback | None = None,
) -> Outcome:
    """Every row at its start. Where no rule was stated, having the answer is enough.

    A callback is told once, when all is done.
    """
    rows, x, target, ended = finite_rows(model, x, target)
    if len(rows) == 0:
        return Outcome.in_order(ended)
    point, objective = model.values(x, target), model.objective
    residual = objective.residual(point.fit)
    end = torch.full_like(
        rows, int(Reason.STEP_LIMIT if stopping.any_residual_rule else Reason.DIRECT)
    )
    for rule, met in reversed(list(stopping.residual_rules(point, residual, residual))):
        end = end.masked_fill(met, int(rule))
    finite = point.misfit.abs() < torch.inf
    end = end.masked_fill(~finite, int(Reason.NONFINITE_START))
    answers = Outcome(
        row=rows,
        x=x,
        misfit=point.misfit,
        residual=residual,
        first_residual=residual,
        over_noise=objective.over_noise(point.r),
        over_error=objective.over_error(point.r),
        iterations=torch.zeros_like(rows),
        rule=torch.full_like(rows, -1),
        reason=end,
        cost=model.tally.table(),
    )
    if callback is not None:
        snapshot = Snapshot(
            rows=rows,
            x=x.reshape(-1, *model.x_shape),
            residual=residual,
            loss=point.misfit / objective.count,
            iterations=answers.iterations,
            accepted=finite,
            reason=end,
            evaluations=model.tally.evaluations(),
        )
        callback(0, snapshot)
    return Outcome.in_order([*ended, answers])
