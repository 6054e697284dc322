"""Which rows are corrected and how, and how wide their bars must be, by solving validation rows."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.arrays import rms
from deceptron.core.solution import Solution
from deceptron.core.status import Reason
from deceptron.maps import Deceptron
from deceptron.problems import Problem
from deceptron.solve import solve
from deceptron.solve.descents.correction import CORRECTION, DENSE, REGRESSION
from deceptron.train.regression import bar_factor, fit_regression, rmse, solved_with

# Rows that are linearised at a time.
BATCH = 48
# Rows that a simulator without derivatives is asked to solve: it may take its time.
CALLED_ROWS = 48
# What correcting explained rows, or any on a doubtful surrogate, must lower the error of validation
# rows by.
EAGER_GAIN = 0.05
# Rows whose corrections can be calibrated against.
FEWEST = 16
# What corrections may raise the error of validation rows by, and how many standard errors beyond
# chance, before starts are left as they are: rows from elsewhere need their corrections. Much harm
# is believed sooner, and any that goes with answers so many times further off than their bars say.
HARMS = ((0.02, 4.0), (0.1, 2.5))
FAR_OFF, FAR_OFF_HARM = 5.0, (0.02, 1.0)
# Share of rows that miss the limit of the noise by chance. What more of them do, beyond a standard
# error, have something to correct; however few, so many times that share might.
BY_CHANCE, LEAST_REAL = 0.01, 0.02


def fit_correcting(pair: Deceptron, problem: Problem, x: Tensor, y: Tensor) -> None:
    """Complete ``pair.calibration.corrections``, which has its members and tables already."""
    if x[0].numel() <= DENSE:
        _fit_eagerness(pair, problem, x, y)
    if problem.has_simulator:
        asked = _affordable(problem)
        _fit_corrected(pair, problem, x[asked], y[asked])
    _fit_keeping(pair, problem, x, y)


def _fit_eagerness(pair: Deceptron, problem: Problem, x: Tensor, y: Tensor) -> None:
    """Whether rows that their start explains gain by a correction, which costs a product for each
    unknown, and whether the family's posterior mean is the better answer, on the surrogate and on
    the simulator; of data without one the surrogate must tell.
    """
    before, corrections = pair.calibration, pair.calibration.corrections
    assert corrections is not None

    def answers(eager: bool, by_family: bool, forward: Problem | None, rows: slice) -> Solution:
        tried = replace(
            corrections, eager=(eager, eager), by_family=(by_family, by_family), family_factor=1.0
        )
        return solved_with(tried, pair, y[rows], forward)

    def best(forward: Problem | None, rows: slice = slice(None)) -> _Way:
        truth = x[rows]
        kept, chosen = answers(False, False, forward, rows), (False, False)
        least = (1 - EAGER_GAIN) * rmse(kept.x, truth)
        for eager, by_family in ((True, False), (False, True), (True, True)):
            tried = answers(eager, by_family, forward, rows)
            if rmse(tried.x, truth) < least:
                kept, chosen, least = tried, (eager, by_family), rmse(tried.x, truth)
        mine = (kept.rule == REGRESSION).nonzero().flatten()
        factor = 1.0
        if chosen[1] and len(mine) >= FEWEST:
            factor = bar_factor(truth[mine] - kept.x[mine], kept.std[mine])
        return _Way(*chosen, factor)

    surrogate = best(None)
    simulator = surrogate
    if problem.has_simulator:
        simulator = best(problem, _affordable(problem))
    chosen = replace(
        corrections,
        eager=(surrogate.eager, simulator.eager),
        by_family=(surrogate.by_family, simulator.by_family),
        # The simulator's where it has one: bars on the surrogate know of its error.
        family_factor=(simulator if simulator.by_family else surrogate).factor,
    )
    pair.calibration = replace(before, corrections=chosen)


class _Way(NamedTuple):
    """How rows are answered, and what the bars of the family's answers are multiplied by."""

    eager: bool
    by_family: bool
    factor: float


def _fit_corrected(pair: Deceptron, problem: Problem, x: Tensor, y: Tensor) -> None:
    """Guesses for rows like these, and what the bars of corrected answers are multiplied by."""
    before = pair.calibration
    assert before.corrections is not None
    # Where rows are solved densely the family's own posterior does better; linearising many rows to
    # choose a regression asks too much of a simulator without derivatives.
    guessing = x[0].numel() > DENSE and problem.differentiable
    fitted = fit_regression(pair, problem, x, y, batch=BATCH) if guessing else None
    if fitted is None:
        # Few rows need a correction, so solving all of them costs little.
        regression, rows = None, torch.arange(len(y))
        plain = solve(pair, y, forward=problem, history=False)
    else:
        regression, rows, plain = fitted.regression, fitted.left_out, fitted.plain
    mine = (plain.rule == CORRECTION).nonzero().flatten()
    factor = 1.0
    if len(mine) >= FEWEST:
        factor = bar_factor(x[rows][mine] - plain.x[mine], plain.std[mine])
    corrections = replace(before.corrections, regression=regression, factor=factor)
    pair.calibration = replace(before, corrections=corrections)


def _fit_keeping(pair: Deceptron, problem: Problem, x: Tensor, y: Tensor) -> None:
    """Whether rows that their start does not explain are better left there, and how likely they
    are to have missed the limit by chance.

    On a simulator, or a surrogate as good, corrections are right until validation rows show harm. A
    doubtful surrogate is the other way round: rows it cannot explain are most often rows that it
    has not learned, and corrections lead them astray, too few of them to show.
    """
    before, corrections = pair.calibration, pair.calibration.corrections
    assert corrections is not None

    @cache
    def errors(keep: bool, forward: Problem | None) -> tuple[Solution, Float[Tensor, " B"]]:
        rows = slice(None) if forward is None else _affordable(forward)
        tried = replace(corrections, keep=(keep, keep))
        found = solved_with(tried, pair, y[rows], forward)
        return found, rms(found.x - x[rows])

    def harmful(forward: Problem | None) -> bool:
        start, least = errors(True, forward)
        if int((start.reason == Reason.START_IS_BETTER).sum()) < FEWEST:
            return False
        worse = errors(False, forward)[1] - least
        chance = float(worse.std()) / len(worse) ** 0.5
        astray = forward is not None and corrections.factor > FAR_OFF
        return any(
            float(worse.mean()) > max(harm * float(least.mean()), beyond * chance)
            for harm, beyond in (*HARMS, *([FAR_OFF_HARM] if astray else []))
        )

    def chance(forward: Problem | None) -> float:
        missed = (errors(True, forward)[0].reason == Reason.START_IS_BETTER).double()
        expected = BY_CHANCE + (BY_CHANCE / len(missed)) ** 0.5
        return math.log(BY_CHANCE / max(float(missed.mean()) - expected, LEAST_REAL * BY_CHANCE))

    def useless() -> bool:
        least = float(errors(True, None)[1].mean())
        return float(errors(False, None)[1].mean()) > (1 - EAGER_GAIN) * least

    doubtful = before.doubtful(pair.noise_level)
    surrogate = harmful(None)
    simulator = harmful(problem) if problem.has_simulator else surrogate
    by_chance = chance(None)
    chosen = replace(
        corrections,
        keep=(surrogate or (doubtful and useless()), simulator),
        chance=(by_chance, chance(problem) if problem.has_simulator else by_chance),
    )
    pair.calibration = replace(before, corrections=chosen)


def _affordable(problem: Problem) -> slice:
    """The rows of a few that its simulator is asked to solve."""
    return slice(None if problem.differentiable else CALLED_ROWS)
