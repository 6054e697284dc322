"""Statistics over whole trajectories: a trial is a row, an iteration a column."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deceptron_paper.statistics.intervals import without_nan
from deceptron_paper.statistics.success import GOOD_BASIN

SUPPORT = 0.85  # share of the trials that tell how wide a bundle is


def at_step(paths: pd.DataFrame, step: int) -> pd.Series:
    """The value each trial had after ``step`` steps; a trial that ended before keeps its last."""
    return paths.loc[:, :step].ffill(axis=1).iloc[:, -1]


def bundle_width(residuals: ArrayLike) -> NDArray[np.float64]:
    """Standard deviation over trials of log(r_t / r_1), by iteration from t = 1.

    The first column is r_1. NaN at iterations that too few of the trials reach, where the spread
    would be that of the slow ones only.
    """
    paths = np.asarray(residuals, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(paths / paths[:, :1])
    known = pd.DataFrame(np.where(np.isfinite(logs), logs, np.nan))
    return known.std().where(known.count() >= SUPPORT * len(paths)).to_numpy()


def coefficient_of_variation(values: ArrayLike) -> float:
    """Sample standard deviation over mean; NaN is left out."""
    sample = without_nan(values)
    if len(sample) < 2 or not np.isfinite(sample).all() or sample.mean() == 0:
        return np.nan
    return float(sample.std(ddof=1) / sample.mean())


def basin_occupancy(rmse: ArrayLike) -> NDArray[np.bool_]:
    """Whether each trial's RMSE was ever in the good basin; its mean is the occupancy."""
    paths = pd.DataFrame(np.asarray(rmse, dtype=np.float64))
    return (paths.min(axis=1) < GOOD_BASIN).to_numpy()
