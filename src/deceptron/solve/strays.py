"""Rows whose correction has gone far and still explains nothing go back to their start.

A correction is believed because it explains the data. One that does not, lies further from its
start than the family is wide, and has led away from the family, has followed a linearisation to
where it does not hold: on strongly nonlinear physics such rows alone made errors up to four
times those of the starts (``python -m benchmarks bent``). Others are kept: more noise than was
told leaves data unexplained, too, and there corrections help.
"""

from __future__ import annotations

import torch

from deceptron.core.status import Reason
from deceptron.solve.descents.correction import DENSE
from deceptron.solve.direct import answered
from deceptron.solve.noise import noise_limit
from deceptron.solve.outcome import Outcome
from deceptron.solve.rows import norm
from deceptron.solve.stopping import Stopping
from deceptron.solve.task import Task

# Root mean square of a correction, in spreads of the family.
FAR = 2.0
# Where a row was free to go anywhere, half as far is too far if most of the residual is left, and
# that is more than noise might be: two lines of a spectrum that were taken for each other. Noise
# that was told is not more than that.
MOST_LEFT, BEYOND_NOISE = 0.5, 5.0
ENDED = (Reason.STEP_LIMIT, Reason.NO_ACCEPTED_TRIAL, Reason.NO_PROGRESS, Reason.NONFINITE_TRIALS)


def with_strays_returned(task: Task, stopping: Stopping, outcome: Outcome) -> Outcome:
    """The outcome of corrections with such rows at their starts; they cost one evaluation more."""
    assert task.corrections is not None
    n = task.start.shape[1]
    distance = norm(outcome.x - task.start) / (FAR * task.corrections.scale * n**0.5)
    far = distance > 1
    if n <= DENSE:
        in_vain = outcome.residual > MOST_LEFT * outcome.first_residual
        if not task.noise_told:
            in_vain = in_vain & (outcome.over_error > BEYOND_NOISE)
        far = far | ((distance > 0.5) & in_vain)
    family = task.known.calibration.family
    if family is not None:
        mean = family.mean.to(task.start).flatten()
        far = far & (norm(outcome.x - mean) > norm(task.start - mean))
    ended = torch.isin(outcome.reason, torch.tensor(ENDED, device=outcome.reason.device))
    unexplained = outcome.over_error > noise_limit(task.objective.count)
    rows = (ended & unexplained & far).nonzero().flatten()
    if len(rows) == 0:
        return outcome
    model = task.model()
    model.keep(rows)
    back = answered(model, stopping, task.start[rows], task.target[rows])
    return outcome.put(
        rows,
        back.changed(
            row=outcome.row[rows],
            cost=outcome.cost[rows] + back.cost,
            reason=torch.full_like(back.reason, int(Reason.STRAYED)),
        ),
    )
