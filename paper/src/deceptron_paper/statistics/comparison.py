"""Two samples beside each other: paired differences, effect sizes, rank correlation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import permutation_test, spearmanr

from deceptron import ConfigError
from deceptron_paper.statistics.intervals import Interval, mean_interval

# All 2^n sign patterns are tried where they are no more than this, else so many random ones.
FLIPS = 9999
# A standard deviation below this share of the means is round-off.
LEAST_SPREAD = 1e-12


@dataclass(frozen=True)
class Paired:
    """Mean of a - b over shared instances, and the p of a two-sided sign-flip permutation test."""

    difference: Interval
    p: float


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of ``count`` pairs with its two-sided p (Student's t)."""

    rho: float
    p: float
    count: int


def paired_difference(a: ArrayLike, b: ArrayLike) -> Paired:
    """Compare two methods on the same instances; pairs with a NaN are left out.

    Under the null hypothesis each difference is as likely to have the other sign; p is the share
    of sign patterns whose mean is at least as far from zero.
    """
    first, second = _paired(a, b)
    change = first - second
    interval = mean_interval(change)
    if len(change) == 0 or not np.isfinite(interval.value):
        return Paired(interval, np.nan)
    tested = permutation_test(
        (change,),
        lambda flipped, axis: np.abs(flipped.mean(axis)),
        permutation_type="samples",
        vectorized=True,
        n_resamples=FLIPS,
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    return Paired(interval, float(tested.pvalue))


def cohens_d(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """(mean a - mean b) / pooled standard deviation, along the first axis; NaN is left out.

    With a trial a row and an iteration a column this is the separation by iteration. NaN where a
    group has fewer than two values or nothing varies beyond round-off.
    """
    first, second = (pd.DataFrame(np.asarray(v, dtype=np.float64)) for v in (a, b))
    n1, n2 = first.count(), second.count()
    square = first.var() * (n1 - 1) + second.var() * (n2 - 1)
    pooled = np.sqrt(square / (n1 + n2 - 2))
    varies = pooled > LEAST_SPREAD * np.maximum(first.mean().abs(), second.mean().abs())
    d = (first.mean() - second.mean()) / pooled.where(varies)
    return d.to_numpy()


def spearman(a: ArrayLike, b: ArrayLike) -> Correlation:
    """Rank correlation; NaN for fewer than three pairs or a constant side."""
    first, second = _paired(a, b)
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return Correlation(np.nan, np.nan, len(first))
    rho, p = spearmanr(first, second)
    return Correlation(float(rho), float(p), len(first))


def _paired(a: ArrayLike, b: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first, second = (np.asarray(v, dtype=np.float64).ravel() for v in (a, b))
    if first.shape != second.shape:
        raise ConfigError(f"a and b must have one length; got {len(first)} and {len(second)}")
    both = ~(np.isnan(first) | np.isnan(second))
    return first[both], second[both]
