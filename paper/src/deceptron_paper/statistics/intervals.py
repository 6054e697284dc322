"""Confidence intervals of means, rates and ratios by a seeded bootstrap over instances.

The instances are the sample; the trained model is taken as given. Whoever wants the spread over
models looks at the seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from deceptron import ConfigError

RESAMPLES = 2000
LEVEL = 0.95


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
    return Interval(value, *_ends((sample,), np.mean, resamples, "BCa"), count)


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
        exact = stats.binomtest(int(sample.sum()), count).proportion_ci(LEVEL, method="exact")
        return Interval(value, float(exact.low), float(exact.high), count)
    return Interval(value, *_ends((sample,), np.mean, RESAMPLES, "percentile"), count)


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
    pairs = pd.DataFrame({"a": first, "b": second, "kind": kinds}).dropna(ignore_index=True)
    count = len(pairs)
    if count == 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    first, second = pairs["a"].to_numpy(), pairs["b"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(first.sum() / second.sum())
        if count < 2 or not np.isfinite(value):
            return Interval(value, np.nan, np.nan, count)
        places = [part.index.to_numpy() for _, part in pairs.groupby("kind")]
        # An instance that is alone in its group is in every resample.
        alone = np.concatenate([[], *(rows for rows in places if len(rows) == 1)]).astype(int)
        several = [rows for rows in places if len(rows) > 1]
        fixed = first[alone].sum(), second[alone].sum()

        def ratio(*rows: NDArray[Any], axis: int) -> Any:
            drawn = np.concatenate(rows, axis=axis).astype(int)
            return (first[drawn].sum(axis) + fixed[0]) / (second[drawn].sum(axis) + fixed[1])

        low, high = _ends(several, ratio, resamples, "percentile") if several else (value, value)
    return Interval(value, low, high, count)


def without_nan(values: ArrayLike) -> NDArray[np.float64]:
    """The values as one axis; infinite ones stay."""
    sample = np.asarray(values, dtype=np.float64).ravel()
    return sample[~np.isnan(sample)]


def _ends(data: Any, statistic: Any, resamples: int, method: Any) -> tuple[float, float]:
    found = stats.bootstrap(
        data,
        statistic,
        n_resamples=resamples,
        confidence_level=LEVEL,
        vectorized=True,
        method=method,
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(found.low), float(found.high)
