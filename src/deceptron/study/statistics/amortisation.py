"""When training pays: the number of solves after which it has been earned back."""

from __future__ import annotations

import math


def break_even(train_seconds: float, baseline_seconds: float, seconds: float) -> float:
    """N = T_train / (C_baseline - C): infinite ("never") where the baseline is no dearer.

    NaN in, NaN out.
    """
    saved = baseline_seconds - seconds
    if math.isnan(saved) or math.isnan(train_seconds):
        return math.nan
    return train_seconds / saved if saved > 0 else math.inf
