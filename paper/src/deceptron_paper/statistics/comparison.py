"""Two samples beside each other: paired differences, effect sizes, rank correlation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr

from deceptron import ConfigError
from deceptron_paper.statistics.intervals import Interval, mean_interval

# Up to this many pairs all 2^n sign patterns are tried; beyond it, this many random ones.
EXACT_PAIRS = 12
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
    means = np.abs(_signs(len(change)) @ change) / len(change)
    return Paired(interval, float((means >= abs(interval.value) * (1 - 1e-12)).mean()))


def cohens_d(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """(mean a - mean b) / pooled standard deviation, along the first axis; NaN is left out.

    With a trial a row and an iteration a column this is the separation by iteration. NaN where a
    group has fewer than two values or nothing varies beyond round-off.
    """
    first, second = (np.asarray(v, dtype=np.float64) for v in (a, b))
    (n1, mean1, square1), (n2, mean2, square2) = moments(first), moments(second)
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = np.sqrt((square1 + square2) / (n1 + n2 - 2))
        d = (mean1 - mean2) / pooled
    varies = pooled > LEAST_SPREAD * np.maximum(np.abs(mean1), np.abs(mean2))
    return np.where((n1 > 1) & (n2 > 1) & varies, d, np.nan)


def spearman(a: ArrayLike, b: ArrayLike) -> Correlation:
    """Rank correlation; NaN for fewer than three pairs or a constant side."""
    first, second = _paired(a, b)
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return Correlation(np.nan, np.nan, len(first))
    rho, p = spearmanr(first, second)
    return Correlation(float(rho), float(p), len(first))


@lru_cache(maxsize=4)
def _signs(count: int) -> NDArray[np.float64]:
    """Sign patterns, the one that was observed (all plus) among them."""
    if count <= EXACT_PAIRS:
        return np.array(list(product((1.0, -1.0), repeat=count)))
    signs = 1.0 - 2.0 * np.random.default_rng(0).integers(2, size=(FLIPS, count))
    return np.concatenate([np.ones((1, count)), signs])


def _paired(a: ArrayLike, b: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first, second = (np.asarray(v, dtype=np.float64).ravel() for v in (a, b))
    if first.shape != second.shape:
        raise ConfigError(f"a and b must have one length; got {len(first)} and {len(second)}")
    both = ~(np.isnan(first) | np.isnan(second))
    return first[both], second[both]


def moments(
    values: NDArray[np.float64],
) -> tuple[NDArray[np.int_], NDArray[np.float64], NDArray[np.float64]]:
    """Count, mean and sum of squared deviations along the first axis, without the NaN."""
    known = ~np.isnan(values)
    count = known.sum(0)
    mean = np.where(known, values, 0).sum(0) / np.maximum(count, 1)
    square = np.where(known, (values - mean) ** 2, 0).sum(0)
    return count, mean, square
