"""The last step of a training run: what validation data say about answers, bars and trust."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from deceptron.core.errors import ConfigError
from deceptron.core.solution import Solution
from deceptron.core.status import Reason
from deceptron.geometry import Posterior, fit_interval_factor, fit_prior_share, fit_trust
from deceptron.maps import Deceptron, Shrinkage
from deceptron.problems import Dataset, Problem
from deceptron.solve import solve
from deceptron.train.streams import stream

# Two jvps for each row and draw, four where the share is chosen: a minute for the largest problem.
# The draws are those that a solution's bars are made of.
ROWS = 256
SHARE_OF_ROWS, SHARE_SAMPLES = 0.25, 8
# Directions of a shrinkage. RMSE of guarded on navier-stokes-2d with 64, 128, 192 and 512, relative
# to none: 0.99, 0.76, 0.75 and 0.75 (96 test rows). Beyond so many unknowns the directions would
# weigh more than the maps.
MODES, MOST_UNKNOWNS = 192, 2**14
# Share of the error that must be gained on rows left out: shrinking costs a row an evaluation.
WORTH = 0.05
# Fewer rows that a step brings to the noise tell nothing.
FEWEST_ROWS = 32
# Where a few rows take longer than this, a better g is what the pair wants.
PILOT_ROWS, MOST_STEPS, MOST_EVALUATIONS = 8, 3, 40
BATCH = 64


def calibrate(pair: Deceptron, problem: Problem, data: Dataset, *, rows: int = ROWS) -> Deceptron:
    """Fit error bars, trust and ``pair.shrinkage`` on the first rows of ``data.val``, fresh noise.

    The first two are kept in ``pair.provenance["calibration"]``; all are saved and loaded with the
    pair, and the same pair comes back. The answers that bars are fitted to are one-shot, g(y) in
    the box. A quarter of the rows chooses the prior's share, the others the factor.
    """
    noise_std = problem.noise_std
    if not bool((torch.as_tensor(noise_std) > 0).all()):
        raise ConfigError(f"calibrate(problem=...) must have noise_std > 0; got {noise_std}")
    like = pair.scaler.scale
    x, clean = (part[:rows].to(like) for part in (data.val.x, data.val.y))
    y = problem.add_noise(clean, generator=stream(data.seed, "calibration-noise"))
    if len(x) < 2:
        raise ConfigError(f"calibrate(data=...) must have two or more rows in val; got {len(x)}")
    few = max(1, int(SHARE_OF_ROWS * len(x)))

    def bars(rows: slice) -> Posterior:
        return Posterior.one_shot(pair, y[rows], prior=problem.prior, noise_std=noise_std)

    first, others = slice(None, few), slice(few, None)
    share = fit_prior_share(bars(first), x[first], samples=SHARE_SAMPLES)
    factor = fit_interval_factor(replace(bars(others), prior_share=share), x[others])
    pair.provenance["calibration"] = {
        "interval_factor": factor,
        "prior_share": share,
        "trust": fit_trust(pair, y),
        "rows": len(x),
    }
    if problem.differentiable:  # an external simulator is not called unasked
        pair.shrinkage = fit_shrinkage(pair, problem, data, rows=rows)
    return pair


def fit_shrinkage(
    pair: Deceptron,
    problem: Problem,
    data: Dataset,
    *,
    rows: int = ROWS,
    worth: float = WORTH,
) -> Shrinkage | None:
    """How guarded answers on the true simulator should be shrunk towards the family, if at all.

    Fitted to the answers of rows of ``data.val``, with fresh noise, that a step or three bring to
    the noise. None unless a fit to three quarters of them lowers the error of solving the others by
    the share ``worth``.
    """
    like = pair.scaler.scale
    x, clean = (part[:rows].to(like) for part in (data.val.x, data.val.y))
    y = problem.add_noise(clean, generator=stream(data.seed, "shrinkage-noise"))
    if x[0].numel() > MOST_UNKNOWNS:
        return None
    before = pair.shrinkage
    try:
        pair.shrinkage = None
        pilot = _answers(pair, problem, y[:PILOT_ROWS])
        if float(pilot.cost.forward.double().mean()) > MOST_EVALUATIONS:
            return None
        found = [_answers(pair, problem, part) for part in y.split(BATCH)]
        answers = torch.cat([part.x for part in found])
        stepped = torch.cat([(p.iterations > 0) & (p.reason == Reason.DISCREPANCY) for p in found])
        useful = stepped.nonzero().flatten()
        if len(useful) < FEWEST_ROWS:
            return None
        seen, new = useful.tensor_split([int((1 - SHARE_OF_ROWS) * len(useful))])
        family = Shrinkage.along(data.train.x.to(like), modes=MODES)
        pair.shrinkage = family.fit(answers[seen], x[seen])
        shrunk = _answers(pair, problem, y[new]).x
        if _rmse(shrunk, x[new]) > (1 - worth) * _rmse(answers[new], x[new]):
            return None
        return family.fit(answers[useful], x[useful])
    finally:
        pair.shrinkage = before


def _answers(pair: Deceptron, problem: Problem, y: Tensor) -> Solution:
    return solve(
        pair,
        y,
        forward=problem.simulate,
        noise_std=problem.noise_std,
        max_iterations=MOST_STEPS,
        history=False,
    )


def _rmse(x: Tensor, truth: Tensor) -> float:
    return float((x - truth).square().flatten(1).mean(1).sqrt().mean())
