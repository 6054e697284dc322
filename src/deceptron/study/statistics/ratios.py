"""How many times the error of another method: ratios of means over the same instances."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from deceptron.core.errors import ConfigError
from deceptron.study.statistics.intervals import ENDS, RESAMPLES, Interval, shares


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
            sums += len(own) * (shares(len(own), resamples, number) @ own)
        ratios = sums[:, 0] / sums[:, 1]
    low, high = np.quantile(ratios, ENDS)
    return Interval(value, float(low), float(high), count)
