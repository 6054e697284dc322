"""The last step of a training run: what validation data say about answers, bars and trust."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.bases import FLOOR, Basis, DiagonalGaussian
from deceptron.core.corrections import Corrections, tabulated
from deceptron.core.differentiate import jvp
from deceptron.core.errors import ConfigError
from deceptron.geometry import Posterior, fit_interval_factor, fit_prior_share, fit_trust
from deceptron.geometry.bars import NORMAL_90
from deceptron.geometry.posterior import conformal
from deceptron.maps import Deceptron
from deceptron.problems import Dataset, Problem
from deceptron.solve import solve
from deceptron.solve.descents.correction import CORRECTION, DENSE
from deceptron.train.regression import fit_regression
from deceptron.train.streams import stream

# Two jvps for each row and draw, four where the share is chosen: a minute for the largest problem.
# The draws are those that a solution's bars are made of.
ROWS = 256
SHARE_OF_ROWS, SHARE_SAMPLES = 0.25, 8
# Where the simulator is asked to solve, fewer rows must do.
SOLVED_ROWS, BATCH = 96, 48
# Jacobians that the tables of corrections average over, each as many products as there are
# unknowns, and the most unknowns for which they are formed.
POINTS, MOST_UNKNOWNS, CHUNK = 2, 2048, 256
# Powers of the family's covariance: vectors of up to so many components, this many directions.
LARGEST_VECTOR, KEPT = 1024, 128
# A linear estimate that is better than g by this share is where answers start.
BETTER = 0.01
# Rows whose corrections can be calibrated against.
FEWEST = 16


def calibrate(
    pair: Deceptron,
    problem: Problem,
    data: Dataset,
    *,
    rows: int = ROWS,
    correction_limit: int = MOST_UNKNOWNS,
) -> Deceptron:
    """Fit ``pair.calibration`` on the first rows of ``data.val``, with fresh noise.

    Error bars of one-shot answers (a quarter of the rows chooses the prior's share, the others the
    factor), trust, what corrections are plausible, and, on a differentiable simulator, how answers
    like the training data are best guessed. Beyond ``correction_limit`` unknowns corrections are
    left out. The same pair comes back.
    """
    noise_std = problem.noise_std
    if not bool((torch.as_tensor(noise_std) > 0).all()):
        raise ConfigError(f"calibrate(problem=...) must have noise_std > 0; got {noise_std}")
    like = pair.scaler.scale
    x, clean = (part[:rows].to(like) for part in (data.val.x, data.val.y))
    y = problem.add_noise(clean, generator=stream(data.seed, "calibration-noise"))
    if len(x) < 2:
        raise ConfigError(f"calibrate(data=...) must have two or more rows in val; got {len(x)}")
    family = data.train.x.to(like)
    corrections = Corrections.of(family, largest=LARGEST_VECTOR, kept=KEPT)
    pair.calibration = replace(
        pair.calibration,
        noise_std=noise_std,
        start=better_start(pair, x, y),
        family=gaussian_of(family, corrections.eigen or corrections.grid),
        observations=observations_of(pair.scaler.normalise(data.train.y.to(like))),
        trust=fit_trust(pair, y),
        rows=len(x),
    )
    _calibrate_bars(pair, x, y)
    n = x[0].numel()
    if n > correction_limit or not corrections.members:
        return pair
    if n > DENSE:
        corrections = with_tables(corrections, pair, problem, x)
    pair.calibration = replace(pair.calibration, corrections=corrections)
    if problem.differentiable:  # an external simulator is not called unasked
        few = slice(None, SOLVED_ROWS)
        _fit_corrected(pair, problem, x[few], y[few])
    return pair


def better_start(pair: Deceptron, x: Tensor, y: Tensor) -> str:
    """Where answers start: at g, unless the linear estimate is clearly closer to the truth."""
    if pair.wiener is None:
        return "reverse"
    errors = {
        m: _rmse(solve(pair, y, method=m, history=False).x, x) for m in ("one-shot", "wiener")
    }
    return "wiener" if errors["wiener"] < (1 - BETTER) * errors["one-shot"] else "reverse"


def gaussian_of(rows: Float[Tensor, "N *x"], basis: Basis | None) -> DiagonalGaussian | None:
    """Mean and covariance of samples, the latter as far as the basis shows it."""
    if basis is None:
        return None
    flat = rows.double().flatten(1)
    mean = flat.mean(0)
    spectrum = basis.forward(flat - mean).square().mean(0)
    spectrum = spectrum.clamp_min(FLOOR * float(spectrum.max()))
    return DiagonalGaussian(mean.reshape(rows.shape[1:]), basis, spectrum)


def observations_of(y: Float[Tensor, "N *y"]) -> DiagonalGaussian | None:
    """What sensors show, normalised units: of a vector its own principal directions, else waves."""
    found = Corrections.of(y, largest=LARGEST_VECTOR, kept=KEPT)
    return gaussian_of(y, found.eigen or found.grid)


def with_tables(
    corrections: Corrections, pair: Deceptron, problem: Problem, x: Float[Tensor, "B *x"]
) -> Corrections:
    """With log-determinants and variances at validation points, by the simulator's Jacobian where
    it has one and by the surrogate's where it has not.
    """
    y_shape = tuple(pair.f(x[:1]).shape[1:])
    noise = pair.scaler.noise(problem.noise_std, y_shape).double().flatten()
    simulate = problem.unchecked().simulate if problem.differentiable else None

    def forward(rows: Tensor) -> Tensor:
        return pair.f(rows) if simulate is None else pair.scaler.normalise(simulate(rows)).to(rows)

    points = []
    with torch.no_grad():
        for row in x[:POINTS].split(1):
            columns = []
            for unit in torch.eye(row.numel()).to(row).split(CHUNK):
                tangents = unit.reshape(-1, *row.shape[1:])
                point = row.expand(len(unit), *row.shape[1:]).contiguous()
                columns.append(jvp(forward, point, tangents)[1].flatten(1).double())
            points.append((torch.cat(columns).T / noise[:, None]).cpu())
    determinants, variances = tabulated(corrections, points)
    return replace(corrections, log_determinants=determinants, log_variances=variances)


def _calibrate_bars(pair: Deceptron, x: Tensor, y: Tensor) -> None:
    """One-shot error bars, about g(y) in the box."""
    calibration = pair.calibration
    family, noise_std = calibration.family, calibration.noise_std
    if family is None or noise_std is None:
        return
    few = max(1, int(SHARE_OF_ROWS * len(x)))

    def bars(rows: slice) -> Posterior:
        return Posterior.one_shot(pair, y[rows], prior=family, noise_std=noise_std)

    first, others = slice(None, few), slice(few, None)
    share = fit_prior_share(bars(first), x[first], samples=SHARE_SAMPLES)
    factor = fit_interval_factor(replace(bars(others), prior_share=share), x[others])
    pair.calibration = replace(calibration, prior_share=share, interval_factor=factor)


def _fit_corrected(pair: Deceptron, problem: Problem, x: Tensor, y: Tensor) -> None:
    """Guesses for rows like these, and what the bars of corrected answers are multiplied by."""
    before = pair.calibration
    assert before.corrections is not None
    fitted = fit_regression(pair, problem, x, y, batch=BATCH)
    if fitted is None:
        # Few rows need a correction, so solving all of them costs little.
        regression, rows = None, torch.arange(len(y))
        plain = solve(pair, y, forward=problem.simulate, history=False)
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
    return float((x - truth).square().flatten(1).mean(1).sqrt().mean())
