"""The best linear guess of truths like the training data, fitted to validation rows.

The evidence corrects g(y) without knowing that g has let noise through, and that the family varies
less in some directions than a correction errs. A regression of the truth on the start and on the
correction, in coordinates in which both are nearly independent, knows: see ``core/corrections.py``.
Which correction it starts from, one member and one size for all rows, is tried on rows left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.arrays import rms
from deceptron.core.bases import GridBasis
from deceptron.core.corrections import FINENESS, SIZES, Corrections, Regression
from deceptron.core.solution import Solution
from deceptron.geometry.bars import NORMAL_90
from deceptron.geometry.posterior import conformal
from deceptron.maps import Deceptron
from deceptron.problems import Problem
from deceptron.solve import solve
from deceptron.solve.first_fits import first_fits

# Fewer rows that need a correction tell nothing.
FEWEST = 32
# Share of the error that must be gained on rows left out: a guess costs a row an evaluation.
WORTH = 0.05
SHARE_LEFT_OUT = 0.25
# Pulls the two coefficients towards those of the correction alone where rows are few.
RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class Fitted:
    """A regression, if it pays, and the solution of the rows ``left_out`` without it."""

    regression: Regression | None
    left_out: Int[Tensor, " k"]
    plain: Solution


def fit_regression(
    pair: Deceptron, problem: Problem, x: Tensor, y: Tensor, *, batch: int
) -> Fitted | None:
    """A regression that lowers the error of solving rows left out by the share ``WORTH``.

    None if too few rows need a correction to tell.
    """
    corrections = pair.calibration.corrections
    assert corrections is not None
    found = [
        first_fits(pair, part, forward=problem.simulate, first=place)
        for place, part in zip(range(0, len(y), batch), y.split(batch), strict=True)
    ]
    rows = torch.cat([part.rows for part in found])
    if len(rows) < FEWEST:
        return None
    start = torch.cat([part.start for part in found]).double()
    truth = x[rows].flatten(1).double()
    seen = int((1 - SHARE_LEFT_OUT) * len(rows))
    best: tuple[float, int, int] | None = None
    for number in range(len(corrections.members)):
        for place in range(0, len(SIZES), FINENESS):
            corrected = start + torch.cat([part.fit(number, place) for part in found])
            made = _fitted(corrections, number, place, corrected[:seen], start[:seen], truth[:seen])
            error = rmse(_guess(corrections, made, corrected, start)[seen:], truth[seen:])
            if best is None or error < best[0]:
                best = error, number, place
    assert best is not None
    _, number, place = best
    corrected = start + torch.cat([part.fit(number, place) for part in found])
    trial = _fitted(corrections, number, place, corrected[:seen], start[:seen], truth[:seen])
    plain, guessed = (
        solved_with(replace(corrections, regression=chosen), pair, y[rows[seen:]], problem)
        for chosen in (None, trial)
    )
    errors = [rmse(s.x.flatten(1).double(), truth[seen:]) for s in (plain, guessed)]
    if errors[1] > (1 - WORTH) * errors[0]:
        return Fitted(None, rows[seen:], plain)
    made = _fitted(corrections, number, place, corrected, start, truth)
    factor = bar_factor(_guess(corrections, made, corrected, start) - truth, made.std)
    return Fitted(replace(made, factor=factor), rows[seen:], plain)


def solved_with(
    corrections: Corrections, pair: Deceptron, y: Tensor, forward: Problem | None
) -> Solution:
    """What the pair would answer if these were its corrections; it stays as it is."""
    before = pair.calibration
    try:
        pair.calibration = replace(before, corrections=corrections)
        return solve(pair, y, forward=forward, history=False)
    finally:
        pair.calibration = before


def _fitted(
    corrections: Corrections,
    number: int,
    place: int,
    corrected: Float[Tensor, "N n"],
    start: Float[Tensor, "N n"],
    truth: Float[Tensor, "N n"],
) -> Regression:
    """Least squares for the two coefficients of each group of coordinates."""
    basis = corrections.members[number].basis
    mean = truth.mean(0)
    a, b, t = (basis.forward(rows - mean) for rows in (corrected, start, truth))
    groups = _groups(corrections, number)
    aa, bb, ab, at, bt = (
        _sums((u * v).sum(0), groups) for u, v in ((a, a), (b, b), (a, b), (a, t), (b, t))
    )
    # Ridge about own = 1, start = 0.
    pull = RIDGE * (aa + bb) + 1e-300
    aa, bb, at = aa + pull, bb + pull, at + pull
    determinant = aa * bb - ab.square()
    own, first = (at * bb - bt * ab) / determinant, (bt * aa - at * ab) / determinant
    made = Regression(
        member=number,
        size=SIZES[place],
        mean=mean,
        own=own,
        start=first,
        std=torch.ones_like(mean),
        factor=1.0,
    )
    error = _guess(corrections, made, corrected, start) - truth
    return replace(made, std=error.square().mean(0).sqrt())


def _guess(
    corrections: Corrections, made: Regression, corrected: Tensor, start: Tensor
) -> Float[Tensor, "N n"]:
    basis = corrections.members[made.member].basis
    a, b = (basis.forward(rows - made.mean) for rows in (corrected, start))
    return made.mean + basis.back(made.own * a + made.start * b)


def _groups(corrections: Corrections, number: int) -> Int[Tensor, " n"]:
    """Coordinates that share their coefficients: waves of one length, else four in a row."""
    basis = corrections.members[number].basis
    if isinstance(basis, GridBasis):
        return torch.unique(basis.wavenumbers.square().round(), return_inverse=True)[1]
    return torch.arange(len(corrections.members[number].spectrum)) // 4


def _sums(values: Float[Tensor, " n"], groups: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    groups = groups.to(values.device)
    return values.new_zeros(int(groups.max()) + 1).index_add(0, groups, values)[groups]


def rmse(x: Tensor, truth: Tensor) -> float:
    """Mean over rows of their root mean square error."""
    return float(rms(x - truth).mean())


def bar_factor(error: Float[Tensor, "N *x"], std: Tensor) -> float:
    """What makes 90% intervals of these deviations hold 90% of the errors."""
    return conformal(error.abs() / std) / NORMAL_90
