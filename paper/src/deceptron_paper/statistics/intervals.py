"""Confidence intervals of means, rates and ratios by a seeded bootstrap over instances.

The instances are the sample; the trained model is taken as given. Whoever wants the spread over
models looks at the seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from deceptron import ConfigError

RESAMPLES = 2000
LEVEL = 0.95
ENDS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)


@dataclass(frozen=True)
class Interval:
    """An estimate, the ends of its confidence interval and the number of instances behind it."""

    value: float
    low: float
    high: float
    count: int


def mean_interval(values: ArrayLike, *, resamples: int = RESAMPLES) -> Interval:
    """The mean with its BCa bootstrap interval (Efron 1987); NaN values are left out.

    Fewer than two values, or an infinite one, have no interval: its ends are NaN.
    """
    sample = without_nan(values)
    count = len(sample)
    value = float(sample.mean()) if count else np.nan
    if count < 2 or not np.isfinite(value):
        return Interval(value, np.nan, np.nan, count)
    if np.ptp(sample) == 0:
        return Interval(value, value, value, count)
    means = _shares(count, resamples, 0) @ sample
    # Bias: where the estimate lies among the resampled ones, ties counted half.
    below = 0.5 * ((means < value).mean() + (means <= value).mean())
    bias = ndtri(np.clip(below, 1 / (resamples + 1), resamples / (resamples + 1)))
    # Acceleration of a mean: its jackknife values differ from it by -(x - mean) / (n - 1).
    pull = sample - value
    acceleration = (pull**3).sum() / (6 * (pull**2).sum() ** 1.5)
    tails = ndtri(ENDS)
    shifted = bias + (bias + tails) / (1 - acceleration * (bias + tails))
    low, high = np.quantile(means, ndtr(shifted))
    return Interval(value, float(low), float(high), count)


def rate_interval(outcomes: ArrayLike) -> Interval:
    """The share of successes with its percentile bootstrap interval; NaN outcomes are left out.

    Where all outcomes agree every resample agrees too and the bootstrap has no width, so the exact
    (Clopper-Pearson) bound stands in: 80 of 80 is [0.955, 1], not [1, 1].
    """
    sample = without_nan(outcomes)
    count = len(sample)
    if count == 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    value = float(sample.mean())
    if value in (0.0, 1.0):
        certain = ENDS[0] ** (1 / count)
        low, high = (certain, 1.0) if value else (0.0, 1 - certain)
        return Interval(value, low, high, count)
    # Resampling outcomes with replacement draws a binomial number of successes.
    rates = np.random.default_rng(0).binomial(count, value, RESAMPLES) / count
    low, high = np.quantile(rates, ENDS)
    return Interval(value, float(low), float(high), count)


def ratio_interval(
    a: ArrayLike,
    b: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    resamples: int = RESAMPLES,
) -> Interval:
    """mean a / mean b with its percentile bootstrap interval; pairs with a NaN are left out.

    A resample takes an instance with both of its values, so what the two methods share cancels.
    With ``groups`` (the seed of each instance) instances are resampled within their group.
    """
    first, second = (np.asarray(values, dtype=np.float64).ravel() for values in (a, b))
    kinds = np.zeros(len(first)) if groups is None else np.asarray(groups).ravel()
    if not len(first) == len(second) == len(kinds):
        lengths = f"{len(first)}, {len(second)} and {len(kinds)}"
        raise ConfigError(f"a, b and groups must have one length; got {lengths}")
    both = ~(np.isnan(first) | np.isnan(second))
    pairs, kinds = np.stack([first, second], axis=1)[both], kinds[both]
    count = len(pairs)
    if count == 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(np.divide(*pairs.sum(0)))
        if count < 2 or not np.isfinite(value):
            return Interval(value, np.nan, np.nan, count)
        sums = np.zeros((resamples, 2))
        for number, kind in enumerate(np.unique(kinds)):
            own = pairs[kinds == kind]
            sums += len(own) * (_shares(len(own), resamples, number) @ own)
        ratios = sums[:, 0] / sums[:, 1]
    low, high = np.quantile(ratios, ENDS)
    return Interval(value, float(low), float(high), count)


@lru_cache(maxsize=8)
def _shares(count: int, resamples: int, seed: int) -> NDArray[np.float64]:
    """How much of each resample each instance makes up; samples of one size share them."""
    even = np.full(count, 1 / count)
    return np.random.default_rng(seed).multinomial(count, even, size=resamples) / count


def without_nan(values: ArrayLike) -> NDArray[np.float64]:
    """The values as one axis; infinite ones stay."""
    sample = np.asarray(values, dtype=np.float64).ravel()
    return sample[~np.isnan(sample)]
