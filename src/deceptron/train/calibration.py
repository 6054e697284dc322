"""The last step of a training run: what validation data say about answers, bars and trust."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.calibration import Calibration, TrustLimits
from deceptron.core.checks import check_count, check_seed
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.solution import Solution
from deceptron.core.status import Reason
from deceptron.geometry import Posterior, fit_interval_factor, fit_prior_share, fit_trust
from deceptron.geometry.bars import NORMAL_90, Maps
from deceptron.geometry.posterior import conformal
from deceptron.maps import Deceptron
from deceptron.problems import Dataset, Problem, get
from deceptron.solve import solve
from deceptron.solve.descents.correction import CORRECTION, DENSE, REGRESSION
from deceptron.train.families import corrections_of, family_of, observations_of
from deceptron.train.regression import fit_regression, solved_with
from deceptron.train.streams import stream
from deceptron.train.tables import with_tables
from deceptron.train.watch import calibrating, is_shown

# Two jvps for each row and draw, four where the share is chosen: a minute for the largest problem.
# The draws are those that a solution's bars are made of.
ROWS = 256
SHARE_OF_ROWS, SHARE_SAMPLES = 0.25, 8
# Where the simulator is asked to solve, fewer rows must do.
SOLVED_ROWS, BATCH = 96, 48
# Fewer still where it is an external one without derivatives, which may take its time.
CALLED_ROWS = 48
# On finer grids fewer rows, so that calibrating stays a share of training, which sees a bounded
# number of grid points: at most so many of them, at least so many rows. Counted, not timed: the
# same seed gives the same pair.
CALIBRATED_POINTS, SOLVED_POINTS, FEWEST_ROWS = 2**19, 2**18, 64
MOST_UNKNOWNS = 2**16
# Latents that a family is known by where nothing was trained.
FAMILY_ROWS = 1024
SAME_NOISE = 0.1
# A linear estimate that is better than g by this share is where answers start.
BETTER = 0.01
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


# Hears what is being done and which share of it is.
Told: TypeAlias = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Latents of the family, observations like those of training, and rows to calibrate on."""

    family: Float[Tensor, "N *x"]
    observed: Float[Tensor, "M *y"]
    x: Float[Tensor, "B *x"]
    y: Float[Tensor, "B *y"]


def calibrate(
    pair: Deceptron,
    problem: Problem,
    data: Dataset,
    *,
    correction_limit: int = MOST_UNKNOWNS,
    told: Told = lambda what, share: None,
) -> Deceptron:
    """Fit ``pair.calibration`` on the first rows of ``data.val``, with fresh noise.

    Error bars of one-shot answers (a quarter of the rows chooses the prior's share, the others the
    factor), trust, what corrections are plausible, and, on a differentiable simulator, how answers
    like the training data are best guessed. Beyond ``correction_limit`` unknowns corrections are
    left out. The same pair comes back.
    """
    _check_noise(problem)
    like = pair.scaler.scale
    most = _within(ROWS, CALIBRATED_POINTS, data.val.x)
    x, clean = (part[:most].to(like) for part in (data.val.x, data.val.y))
    if len(x) < 2:
        raise ConfigError(f"calibrate(data=...) must have two or more rows in val; got {len(x)}")
    y = problem.add_noise(clean, generator=stream(data.seed, "calibration-noise"))
    known = _Rows(data.train.x.to(like), data.train.y.to(like), x, y)
    return _calibrated(pair, problem, known, correction_limit, told)


def recalibrate(
    pair: Deceptron,
    problem: str | Problem,
    *,
    simulations: int = 200,
    seed: int = 7,
    progress: bool | None = None,
) -> Deceptron:
    """``pair`` with its trust, error bars and corrections found anew on ``problem``, no training.

    For a pair that meets another grid (``pair.at_grid``), another noise or another family than it
    was trained on.

    Args:
        pair: stays as it is; the weights of the result are shared with it.
        problem: what to calibrate on, or its name; it must have a simulator and the shapes of the
            pair.
        simulations: latents that are drawn and simulated. Corrections cost about as many products
            with the Jacobian again.
        seed: of those latents and their noise.
        progress: show a bar on standard error; by default on a terminal.

    Returns:
        The pair with a new calibration and the bounds of the problem. The error of its surrogate is
        measured, too, so its ``verdict`` is about the new problem. Limits of trust stay those of
        the training where most of the new rows lie beyond them at the same noise: the pair has not
        learned what it would need here, and its answers are flagged.
    """
    problem = get(problem) if isinstance(problem, str) else problem
    _check_noise(problem)
    if not problem.has_simulator:
        raise ConfigError(
            f"recalibrate(problem=...) must have a simulator; {problem.name} has none"
        )
    for side in ("x_shape", "y_shape"):
        wanted, known_shape = getattr(problem, side), getattr(pair, side)
        if known_shape != wanted:
            raise ShapeError(
                f"recalibrate(problem=...) must have the shapes of the pair, {side} {known_shape}; "
                f"got {wanted}: pair.at_grid(...) brings a pair to another grid"
            )
    check_count("simulations", simulations, low=2)
    check_seed(seed)
    with calibrating(is_shown(progress)) as told:
        return _recalibrated(pair, problem, simulations, seed, told)


def _recalibrated(
    pair: Deceptron, problem: Problem, simulations: int, seed: int, told: Told
) -> Deceptron:
    told("simulations", 0.0)
    like = pair.scaler.scale
    draw = stream(seed, "recalibration")
    family = problem.sample(FAMILY_ROWS, generator=draw).to(like)
    x = problem.sample(simulations, generator=draw).to(like)
    with torch.no_grad():
        clean = torch.cat([problem.simulate(rows) for rows in x.split(64)])
        fitted = torch.cat([pair.f(rows) for rows in x.split(64)])
    good = clean.isfinite().flatten(1).all(1)
    if int(good.sum()) < 2:
        raise ConfigError(
            f"simulate of {problem.name!r} has an answer for {int(good.sum())} of {simulations} "
            "rows: recalibrate needs two or more"
        )
    x, clean, fitted = x[good], clean[good], fitted[good]
    missed = fitted - pair.scaler.normalise(clean)
    y = problem.add_noise(clean, generator=stream(seed, "calibration-noise"))
    error = float(missed.square().mean().sqrt())
    known = Calibration(noise_std=problem.noise_std, surrogate_error=error)
    # Latents that the pair was not trained on may lie outside of its bounds.
    other = pair.replaced(bounds=problem.bounds, calibration=known).train(pair.training)
    rows = _Rows(family, clean, x, y)
    # Round trips miss by the noise, too: limits of another noise say nothing here.
    before, now = pair.noise_level or 0.0, other.noise_level or 0.0
    learned = pair.calibration.trust if abs(now - before) < SAME_NOISE * now else None
    return _calibrated(other, problem, rows, MOST_UNKNOWNS, told, learned)


def _calibrated(
    pair: Deceptron,
    problem: Problem,
    rows: _Rows,
    correction_limit: int,
    told: Told,
    learned: TrustLimits | None = None,
) -> Deceptron:
    told("error bars", 0.0)
    x, y, family = rows.x, rows.y, rows.family
    corrections = corrections_of(family)
    pair.calibration = replace(
        pair.calibration,
        noise_std=problem.noise_std,
        start=better_start(pair, x, y),
        family=family_of(family, corrections),
        observations=observations_of(pair.scaler.normalise(rows.observed)),
        rows=len(x),
    )
    pair.calibration = replace(pair.calibration, trust=fit_trust(pair, y, learned))
    _calibrate_bars(pair, x, y)
    n = x[0].numel()
    if n > correction_limit or not corrections.members:
        return pair
    if n > DENSE:
        corrections = with_tables(
            corrections, pair, problem, x, told=lambda share: told("tables", share)
        )
    pair.calibration = replace(pair.calibration, corrections=corrections)
    told("corrections", 0.0)
    few = slice(None, _within(SOLVED_ROWS, SOLVED_POINTS, x))
    if n <= DENSE:
        _fit_eagerness(pair, problem, x[few], y[few])
    if problem.has_simulator:
        rows_asked = _affordable(problem)
        _fit_corrected(pair, problem, x[few][rows_asked], y[few][rows_asked])
    _fit_keeping(pair, problem, x[few], y[few])
    return pair


def _affordable(problem: Problem) -> slice:
    """The rows of a few that its simulator is asked to solve."""
    return slice(None if problem.differentiable else CALLED_ROWS)


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
        least = (1 - EAGER_GAIN) * _rmse(kept.x, truth)
        for eager, by_family in ((True, False), (False, True), (True, True)):
            tried = answers(eager, by_family, forward, rows)
            if _rmse(tried.x, truth) < least:
                kept, chosen, least = tried, (eager, by_family), _rmse(tried.x, truth)
        mine = (kept.rule == REGRESSION).nonzero().flatten()
        factor = 1.0
        if chosen[1] and len(mine) >= FEWEST:
            missed = (truth[mine] - kept.x[mine]).abs() / kept.std[mine]
            factor = conformal(missed.flatten(1)) / NORMAL_90
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
        return found, _row_errors(found.x, x[rows])

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


def _check_noise(problem: Problem) -> None:
    if not bool((torch.as_tensor(problem.noise_std) > 0).all()):
        raise ConfigError(
            f"calibrate(problem=...) must have noise_std > 0; got {problem.noise_std}"
        )


def _within(rows: int, points: int, x: Float[Tensor, "B *x"]) -> int:
    """So many rows, fewer where they hold more grid points than this."""
    return min(rows, max(FEWEST_ROWS, points // x[0].numel()))


def better_start(pair: Deceptron, x: Tensor, y: Tensor) -> str:
    """Where answers start: at g, unless the linear estimate is clearly closer to the truth."""
    if pair.wiener is None:
        return "reverse"
    errors = {
        m: _rmse(solve(pair, y, method=m, history=False).x, x) for m in ("one-shot", "wiener")
    }
    return "wiener" if errors["wiener"] < (1 - BETTER) * errors["one-shot"] else "reverse"


def _calibrate_bars(pair: Deceptron, x: Tensor, y: Tensor) -> None:
    """Error bars about g(y) in the box, and about the linear estimate where answers start there."""
    known = pair.calibration
    if known.family is None or known.noise_std is None:
        return
    share, factor = _fit_bars(pair, x, y)
    pair.calibration = replace(known, prior_share=share, interval_factor=factor)
    if known.start == "wiener" and pair.wiener is not None:
        linear = Maps(pair.f, pair.wiener, pair.scaler, pair.bounds, known)
        share, factor = _fit_bars(linear, x, y)
        pair.calibration = replace(pair.calibration, linear_share=share, linear_factor=factor)


def _fit_bars(pair: Deceptron | Maps, x: Tensor, y: Tensor) -> tuple[float, float]:
    """The prior's share and the factor of bars about ``pair.g(y)``."""
    family, noise_std = pair.calibration.family, pair.calibration.noise_std
    assert family is not None
    assert noise_std is not None
    few = max(1, int(SHARE_OF_ROWS * len(x)))

    def bars(rows: slice) -> Posterior:
        return Posterior.one_shot(pair, y[rows], prior=family, noise_std=noise_std)

    first, others = slice(None, few), slice(few, None)
    share = fit_prior_share(bars(first), x[first], samples=SHARE_SAMPLES)
    factor = fit_interval_factor(replace(bars(others), prior_share=share), x[others])
    return share, factor


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
        missed = (x[rows][mine] - plain.x[mine]).abs() / plain.std[mine]
        factor = conformal(missed.flatten(1)) / NORMAL_90
    corrections = replace(before.corrections, regression=regression, factor=factor)
    pair.calibration = replace(before, corrections=corrections)


def _rmse(x: Tensor, truth: Tensor) -> float:
    return float(_row_errors(x, truth).mean())


def _row_errors(x: Tensor, truth: Tensor) -> Float[Tensor, " B"]:
    return (x - truth).square().flatten(1).mean(1).sqrt()
