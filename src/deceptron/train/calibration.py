"""The last step of a training run: what validation data say about answers, bars and trust."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.arrays import rms
from deceptron.core.checks import check_count, check_seed
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.geometry import fit_trust
from deceptron.laws.calibration import Calibration, TrustLimits
from deceptron.maps import Deceptron
from deceptron.problems import Dataset, Problem, get
from deceptron.problems.units import UnitlessProblem
from deceptron.solve import solve
from deceptron.train.beliefs import fit_beliefs
from deceptron.train.families import family_of, observations_of
from deceptron.train.start_bars import fit_start_bars
from deceptron.train.streams import stream
from deceptron.train.watch import calibrating, is_shown

# Two jvps for each row and draw, four where the share is chosen: a minute for the largest problem.
ROWS = 256
# Where the simulator is asked to solve, fewer rows must do.
SOLVED_ROWS = 96
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
    factor), trust, and what rows are believed to be (``train/beliefs.py``), up to
    ``correction_limit`` unknowns. The pair stays as it is; its weights are shared.
    """
    _check_noise(problem)
    return _calibrated(pair, problem, _rows(pair, problem, data), correction_limit, told)


def calibrate_trust(pair: Deceptron, problem: Problem, data: Dataset) -> Deceptron:
    """The part of ``calibrate`` that fits the limits of trust, alone."""
    rows = _rows(pair, problem, data)
    return _knowing(pair, replace(pair.calibration, trust=fit_trust(pair, rows.y)))


def _rows(pair: Deceptron, problem: Problem, data: Dataset) -> _Rows:
    like = pair.scaler.scale
    most = _within(ROWS, CALIBRATED_POINTS, data.val.x)
    x, clean = (part[:most].to(like) for part in (data.val.x, data.val.y))
    if len(x) < 2:
        raise ConfigError(f"calibrate(data=...) must have two or more rows in val; got {len(x)}")
    y = problem.add_noise(clean, generator=stream(data.seed, "calibration-noise"))
    return _Rows(data.train.x.to(like), data.train.y.to(like), x, y)


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
    units, inside = pair.units, problem
    if units is not None:
        inside = UnitlessProblem.of(problem, units)
    with calibrating(is_shown(progress)) as told:
        found = _recalibrated(pair.unitless, inside, simulations, seed, told)
    return found if units is None else found.with_units(units, problem.bounds)


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
    x, y = rows.x, rows.y
    known = replace(
        pair.calibration,
        noise_std=problem.noise_std,
        start=_better_start(pair, x, y),
        family=family_of(rows.family),
        observations=observations_of(pair.scaler.normalise(rows.observed)),
        trust=None,
        beliefs=None,
        rows=len(x),
    )
    pair = _knowing(pair, known)
    pair = _knowing(pair, replace(known, trust=fit_trust(pair, y, learned)))
    pair = _knowing(pair, fit_start_bars(pair, x, y))
    if x[0].numel() > correction_limit:
        return pair
    few = slice(None, _within(SOLVED_ROWS, SOLVED_POINTS, x))
    beliefs = fit_beliefs(
        pair, problem, rows.family, x[few], y[few], lambda share: told("laws", share)
    )
    return _knowing(pair, replace(pair.calibration, beliefs=beliefs))


def _knowing(pair: Deceptron, calibration: Calibration) -> Deceptron:
    return pair.replaced(calibration=calibration).train(pair.training)


def _check_noise(problem: Problem) -> None:
    if not bool((torch.as_tensor(problem.noise_std) > 0).all()):
        raise ConfigError(
            f"calibrate(problem=...) must have noise_std > 0; got {problem.noise_std}"
        )


def _within(rows: int, points: int, x: Float[Tensor, "B *x"]) -> int:
    """So many rows, fewer where they hold more grid points than this."""
    return min(rows, max(FEWEST_ROWS, points // x[0].numel()))


def _better_start(pair: Deceptron, x: Tensor, y: Tensor) -> str:
    """Where answers start: at g, unless the linear estimate is clearly closer to the truth."""
    if pair.wiener is None:
        return "reverse"
    errors = {
        m: float(rms(solve(pair, y, method=m, history=False).x - x).mean())
        for m in ("one-shot", "wiener")
    }
    return "wiener" if errors["wiener"] < (1 - BETTER) * errors["one-shot"] else "reverse"
