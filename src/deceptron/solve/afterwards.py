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
from deceptron.laws.noise import noise_limit
from deceptron.solve.descents.posterior import NOISIER
from deceptron.solve.evaluation import in_evaluation
from deceptron.solve.law_bars import LawBars
from deceptron.solve.outcome import Outcome
from deceptron.solve.plan import Plan
from deceptron.solve.recorder import Recorder

_STATUSES = [reason.status for reason in Reason]


def solution_of(
    plan: Plan,
    outcome: Outcome,
    recorder: Recorder | None,
    method: str,
    seconds: float,
) -> Solution:
    """Everything in the order and the units of the observations."""
    reason = _ended(plan, outcome)
    status_of = torch.tensor(_STATUSES, device=reason.device)
    first = outcome.first_residual
    relative = torch.where(first == 0, 0.0, outcome.residual / first)
    judge = None
    known = plan.known
    trained_g = known.trained_g
    if trained_g is not None and known.calibration.trust is not None:

        def judge() -> Trust:
            g = in_evaluation(trained_g)
            maps = Maps(known.f, g, known.scaler, known.bounds, known.calibration)
            observed = plan.objective.observed
            gappy = None if observed is None else (observed == 0).any(1)
            return judged(maps, _complete(plan), gappy)

    return Solution(
        x=outcome.x.reshape(-1, *plan.x_shape),
        status=status_of[reason],
        reason=reason,
        iterations=outcome.iterations,
        residual=outcome.residual,
        relative_residual=relative,
        over_noise=outcome.over_noise,
        explained=outcome.over_noise <= noise_limit(plan.objective.count),
        rule=outcome.rule,
        loss=outcome.misfit / plan.objective.count,
        cost=Cost(*outcome.cost.unbind(1)),
        method=method,
        seconds=seconds,
        record=None if recorder is None else recorder.history,
        error_bars=_bars(plan, outcome),
        judge=judge,
    )


def _complete(plan: Plan) -> Float[Tensor, "B *y"]:
    """The observations with what missing sensors would most likely have shown."""
    family, observed = plan.known.calibration.observations, plan.objective.observed
    if observed is None or family is None or plan.believed_noise is None:
        return plan.y
    target = filled(family, plan.target, observed == 0, plan.believed_noise)
    if plan.no_data is not None:
        target[plan.no_data] = torch.nan
    return plan.known.scaler.denormalise(target.reshape(-1, *plan.y_shape)).to(plan.y)


def _ended(plan: Plan, outcome: Outcome) -> Int[Tensor, " B"]:
    """Why each row stopped, told apart as far as the noise allows."""
    reason = outcome.reason
    if plan.no_data is not None:
        reason = reason.masked_fill(plan.no_data, int(Reason.NO_DATA))
    if plan.noise is None:
        return reason
    reason = reason.clone()
    if plan.beliefs is not None:
        # Nothing better was found, and nothing better is needed.
        kept = (reason == Reason.NO_ACCEPTED_TRIAL) | (reason == Reason.NO_PROGRESS)
        kept = kept | ((reason == Reason.STEP_LIMIT) & (outcome.iterations > 0))
        reason[kept & plan.objective.explained(outcome.residual)] = int(Reason.DISCREPANCY)
    if plan.on_surrogate and plan.objective.tau is not None:
        # Down to the noise and the surrogate's error together, but not to the noise alone.
        beyond = (reason == Reason.DISCREPANCY) & (outcome.over_noise > plan.objective.tau)
        reason[beyond] = int(Reason.SURROGATE_LIMIT)
    if "noise" in outcome.notes:
        noise = outcome.notes["noise"].clamp_min(1.0)
        ended = (reason == Reason.NO_PROGRESS) | (reason == Reason.NO_ACCEPTED_TRIAL)
        ended = ended | (reason == Reason.STEP_LIMIT)
        level = plan.objective.limit * noise
        noisier = ended & (noise > NOISIER) & (outcome.residual <= NOISIER * level)
        reason[noisier] = int(Reason.NOISIER)
    return reason


def _bars(plan: Plan, outcome: Outcome) -> AnswerBars | None:
    """With a prior that was stated, its own; else what the pair's calibration knows."""
    known, calibration = plan.known, plan.known.calibration
    prior: Covariance | None = calibration.family
    if plan.prior is not None:
        prior = plan.prior if isinstance(plan.prior, Covariance) else None
    noise = plan.believed_noise
    if known.g is None or noise is None or prior is None:
        return None
    ratio = _widening(plan, outcome.over_error, noise)
    if plan.objective.observed is not None:
        noise = torch.where(plan.objective.observed > 0, noise, torch.inf)
    noise = noise.reshape(-1, *plan.y_shape)
    laws = None
    if plan.beliefs is not None and outcome.notes:
        laws = LawBars.of(plan, outcome, prior)
        ratio = torch.where(laws.answered, 1.0, ratio)
        # More noise than stated has gone through the start, too.
        more = torch.where(laws.answered, laws.noise, 1.0).to(noise)
        noise = noise * more.reshape(-1, *(1,) * len(plan.y_shape))
    g, factor, share = known.g, calibration.interval_factor, calibration.prior_share
    if plan.linear_start and known.wiener is not None and calibration.linear_factor is not None:
        g, factor, share = known.wiener, calibration.linear_factor, calibration.linear_share
    at_start = Posterior(
        pair=Maps(known.f, g, known.scaler, known.bounds, calibration),
        x=outcome.x.reshape(-1, *plan.x_shape),
        prior=prior,
        noise_std=noise * known.scaler.scale.to(noise),
        noise_rows=len(noise) > 1,
        misfit=ratio,
        bounds=plan.bounds,
        factor=factor or 1.0,
        prior_share=share or 1.0,
    )
    return AnswerBars(
        x=at_start.x,
        bounds=plan.bounds,
        at_start=at_start,
        laws=laws,
    )


def _widening(
    plan: Plan, ratio: Float[Tensor, " B"], noise: Float[Tensor, "#B m"]
) -> Float[Tensor, " B"]:
    """What bars are multiplied by for a residual of ``ratio`` times what was told.

    The factor of the bars was found with residuals in units of the noise of training, s0. What a
    row leaves beyond the noise s that was told, R^2 - s^2, counts in those units too: more noise
    that is told must not make bars narrower by explaining less of it away. At s = s0, and below,
    this is the ratio itself.
    """
    if plan.known.calibration.noise_std is None:
        return ratio
    there = noise.isfinite()
    relative = torch.where(there, noise / plan.table_noise.to(noise), 0.0).square()
    told = relative.sum(1) / there.sum(1).clamp_min(1)
    excess = (ratio.square() - 1).clamp_min(0.0) * told.clamp_min(1.0).to(ratio)
    return torch.where(ratio > 1, (1 + excess).sqrt(), ratio)
