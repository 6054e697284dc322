"""Two methods, or two models, on the instances that both were run on."""

from __future__ import annotations

from typing import TypeAlias

import pandas as pd

from deceptron.report.tables.table import Probability
from deceptron.study.statistics import Interval, Paired, paired_difference, succeeded

Change: TypeAlias = tuple[Interval | None, Probability | None]


def shared(first: pd.Series, second: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Both on the instances that both have."""
    one, other = first.align(second, join="inner")
    return one, other


def paired(first: pd.Series, second: pd.Series) -> Paired:
    """First minus second on shared instances, tested."""
    return paired_difference(*shared(first.astype(float), second.astype(float)))


def rmse_change(found: pd.DataFrame, reference: pd.DataFrame) -> Change:
    """Mean of RMSE - reference's over shared instances, and the p of the paired test."""
    return _change(found["rmse"], reference["rmse"])


def success_change(found: pd.DataFrame, reference: pd.DataFrame) -> Change:
    """The same of success by the rule rmse."""
    return _change(succeeded(found, "rmse"), succeeded(reference, "rmse"))


def _change(first: pd.Series, second: pd.Series) -> Change:
    if first.index.intersection(second.index).empty:
        return None, None
    found = paired(first, second)
    return found.difference, Probability(found.p)
