"""Methods whose answer is their start: one evaluation says how well it explains the data."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.status import Reason
from deceptron.solve.loop import Callback, Outcome, Snapshot
from deceptron.solve.model import KINDS, Model
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
    observed = (target.abs() < torch.inf).all(1)
    reason = torch.where(observed, int(Reason.NONFINITE_START), int(Reason.NONFINITE_OBSERVATION))
    outcome = Outcome.unanswered(x, reason, model.tally)
    rows = (observed & (x.abs() < torch.inf).all(1)).nonzero().flatten()
    if len(rows) == 0:
        return outcome
    model.keep(rows)
    point = model.values(x[rows], target[rows])
    outcome.misfit[rows], outcome.residual[rows] = point.misfit, point.residual
    outcome.first_residual[rows] = point.residual
    outcome.over_noise[rows] = model.objective.over_noise(point.r)
    for kind in KINDS:
        outcome.cost[kind][rows] = model.tally.counts(kind)
    end = torch.full_like(
        rows, int(Reason.STEP_LIMIT if stopping.any_residual_rule else Reason.DIRECT)
    )
    for rule, met in reversed(list(stopping.residual_rules(point, point.residual))):
        end = torch.where(met, int(rule), end)
    end = torch.where(point.misfit.isfinite(), end, int(Reason.NONFINITE_START))
    reason[rows] = end
    if callback is not None:
        snapshot = Snapshot(
            rows=rows,
            x=point.x.reshape(-1, *model.x_shape),
            residual=point.residual,
            loss=point.misfit / model.objective.count,
            iterations=torch.zeros_like(rows),
            accepted=point.misfit.isfinite(),
            reason=end,
            evaluations=model.tally.evaluations(),
        )
        callback(0, snapshot)
    return outcome
