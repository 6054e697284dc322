"""From the outcome of a run to what a user gets: how each row ended, error bars, trust."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.filling import filled
from deceptron.core.history import Cost
from deceptron.core.solution import Solution
from deceptron.core.status import Reason
from deceptron.core.trust import Trust
from deceptron.geometry.bars import AnswerBars, Maps
from deceptron.geometry.noise_aware import Covariance
from deceptron.geometry.posterior import Posterior
from deceptron.geometry.trust import judged
from deceptron.solve.evaluation import in_evaluation
from deceptron.solve.law_bars import LawBars
from deceptron.solve.noise import noise_limit
from deceptron.solve.outcome import Outcome
from deceptron.solve.recorder import Recorder
from deceptron.solve.task import Task

# Noise that is so much above the stated one is called so.
NOISIER = 1.05
_STATUSES = [reason.status for reason in Reason]


def solution_of(
    task: Task,
    outcome: Outcome,
    recorder: Recorder | None,
    method: str,
    seconds: float,
) -> Solution:
    """Everything in the order and the units of the observations."""
    reason = _ended(task, outcome)
    status_of = torch.tensor(_STATUSES, device=reason.device)
    first = outcome.first_residual
    relative = torch.where(first == 0, 0.0, outcome.residual / first)
    judge = None
    known = task.known
    trained_g = known.trained_g
    if trained_g is not None and known.calibration.trust is not None:

        def judge() -> Trust:
            g = in_evaluation(trained_g)
            maps = Maps(known.f, g, known.scaler, known.bounds, known.calibration)
            observed = task.objective.observed
            gappy = None if observed is None else (observed == 0).any(1)
            return judged(maps, _complete(task), gappy)

    return Solution(
        x=outcome.x.reshape(-1, *task.x_shape),
        status=status_of[reason],
        reason=reason,
        iterations=outcome.iterations,
        residual=outcome.residual,
        relative_residual=relative,
        over_noise=outcome.over_noise,
        explained=outcome.over_noise <= noise_limit(task.objective.count),
        rule=outcome.rule,
        loss=outcome.misfit / task.objective.count,
        cost=Cost(*outcome.cost.unbind(1)),
        method=method,
        seconds=seconds,
        record=None if recorder is None else recorder.history,
        error_bars=_bars(task, outcome),
        judge=judge,
    )


def _complete(task: Task) -> Float[Tensor, "B *y"]:
    """The observations with what missing sensors would most likely have shown."""
    family, observed = task.known.calibration.observations, task.objective.observed
    if observed is None or family is None or task.believed_noise is None:
        return task.y
    target = filled(family, task.target, observed == 0, task.believed_noise)
    if task.no_data is not None:
        target[task.no_data] = torch.nan
    return task.known.scaler.denormalise(target.reshape(-1, *task.y_shape)).to(task.y)


def _ended(task: Task, outcome: Outcome) -> Int[Tensor, " B"]:
    """Why each row stopped, told apart as far as the noise allows."""
    reason = outcome.reason
    if task.no_data is not None:
        reason = reason.masked_fill(task.no_data, int(Reason.NO_DATA))
    if task.noise is None:
        return reason
    reason = reason.clone()
    if task.beliefs is not None:
        # Nothing better was found, and nothing better is needed.
        kept = (reason == Reason.NO_ACCEPTED_TRIAL) | (reason == Reason.NO_PROGRESS)
        kept = kept | ((reason == Reason.STEP_LIMIT) & (outcome.iterations > 0))
        reason[kept & task.objective.explained(outcome.residual)] = int(Reason.DISCREPANCY)
    if task.on_surrogate and task.objective.tau is not None:
        # Down to the noise and the surrogate's error together, but not to the noise alone.
        beyond = (reason == Reason.DISCREPANCY) & (outcome.over_noise > task.objective.tau)
        reason[beyond] = int(Reason.SURROGATE_LIMIT)
    if "noise" in outcome.notes:
        noise = outcome.notes["noise"].clamp_min(1.0)
        ended = (reason == Reason.NO_PROGRESS) | (reason == Reason.NO_ACCEPTED_TRIAL)
        ended = ended | (reason == Reason.STEP_LIMIT)
        level = task.objective.limit * noise
        noisier = ended & (noise > NOISIER) & (outcome.residual <= NOISIER * level)
        reason[noisier] = int(Reason.NOISIER)
    return reason


def _bars(task: Task, outcome: Outcome) -> AnswerBars | None:
    """With a prior that was stated, its own; else what the pair's calibration knows."""
    known, calibration = task.known, task.known.calibration
    prior: Covariance | None = calibration.family
    if task.prior is not None:
        prior = task.prior if isinstance(task.prior, Covariance) else None
    noise = task.believed_noise
    if known.g is None or noise is None or prior is None:
        return None
    ratio = _widening(task, outcome.over_error, noise)
    if task.objective.observed is not None:
        noise = torch.where(task.objective.observed > 0, noise, torch.inf)
    noise = noise.reshape(-1, *task.y_shape)
    laws = None
    if task.beliefs is not None and outcome.notes:
        laws = LawBars.of(task, outcome, prior)
        ratio = torch.where(laws.answered, 1.0, ratio)
        # More noise than stated has gone through the start, too.
        more = torch.where(laws.answered, laws.noise, 1.0).to(noise)
        noise = noise * more.reshape(-1, *(1,) * len(task.y_shape))
    g, factor, share = known.g, calibration.interval_factor, calibration.prior_share
    if task.linear_start and known.wiener is not None and calibration.linear_factor is not None:
        g, factor, share = known.wiener, calibration.linear_factor, calibration.linear_share
    at_start = Posterior(
        pair=Maps(known.f, g, known.scaler, known.bounds, calibration),
        x=outcome.x.reshape(-1, *task.x_shape),
        prior=prior,
        noise_std=noise * known.scaler.scale.to(noise),
        noise_rows=len(noise) > 1,
        misfit=ratio,
        bounds=task.bounds,
        factor=factor or 1.0,
        prior_share=share or 1.0,
    )
    return AnswerBars(
        x=at_start.x,
        bounds=task.bounds,
        at_start=at_start,
        laws=laws,
    )


def _widening(
    task: Task, ratio: Float[Tensor, " B"], noise: Float[Tensor, "#B m"]
) -> Float[Tensor, " B"]:
    """What bars are multiplied by for a residual of ``ratio`` times what was told.

    The factor of the bars was found with residuals in units of the noise of training, s0. What a
    row leaves beyond the noise s that was told, R^2 - s^2, counts in those units too: more noise
    that is told must not make bars narrower by explaining less of it away. At s = s0, and below,
    this is the ratio itself.
    """
    if task.known.calibration.noise_std is None:
        return ratio
    there = noise.isfinite()
    relative = torch.where(there, noise / task.table_noise.to(noise), 0.0).square()
    told = relative.sum(1) / there.sum(1).clamp_min(1)
    excess = (ratio.square() - 1).clamp_min(0.0) * told.clamp_min(1.0).to(ratio)
    return torch.where(ratio > 1, (1 + excess).sqrt(), ratio)
