"""What methods cost: profiles (Dolan and Moré 2002) over matched instances, and break-even."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deceptron import ConfigError


def performance_profile(
    costs: Mapping[str, ArrayLike], ratios: ArrayLike
) -> dict[str, NDArray[np.float64]]:
    """Share of instances each method solves within ``ratio`` times the cheapest method's cost.

    ``costs`` holds an entry per instance, in the same order for every method: infinite where it
    was not solved, NaN where it was not run. Instances that some method was not run on are left
    out; an instance that nobody solves counts against everybody.
    """
    table = _matched(costs)
    best = table.min(axis=0, initial=np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = table / best
    relative[(table == 0) & (best == 0)] = 1.0  # two free answers tie
    relative[~np.isfinite(table)] = np.inf
    return _shares(costs, relative, ratios)


def data_profile(
    costs: Mapping[str, ArrayLike], budgets: ArrayLike
) -> dict[str, NDArray[np.float64]]:
    """Share of instances each method solves within an absolute budget; ``costs`` as above."""
    return _shares(costs, _matched(costs), budgets)


def cost_to_tolerance(
    instances: pd.DataFrame, steps: pd.DataFrame, *, limit: float, cost: str
) -> pd.Series:
    """What each instance had spent when its relative residual first was at most ``limit``.

    ``cost`` is a column of ``steps``: ``step``, ``seconds`` or ``evaluations``. Both tables hold
    one cell of the records; the result is indexed by instance, infinite where the limit was not
    reached. An instance without rows in ``steps`` has only an answer: it costs what the whole solve
    did, and one iteration.
    """
    whole = instances[cost].astype(float) if cost != "step" else pd.Series(1.0, instances.index)
    spent = whole.where(instances["relative_residual"] <= limit, np.inf)
    ended = pd.Series(spent.to_numpy(), index=instances["instance"].to_numpy())
    below = steps[steps["relative_residual"] <= limit]
    first = below.sort_values("step").groupby("instance")[cost].first().astype(float)
    stepped = ended.index.isin(steps["instance"])
    reached = first.reindex(ended.index).fillna(np.inf)
    return ended.where(~stepped, reached)


def break_even(train_seconds: float, baseline_seconds: float, seconds: float) -> float:
    """N = T_train / (C_baseline - C): infinite ("never") where the baseline is no dearer.

    NaN in, NaN out.
    """
    saved = baseline_seconds - seconds
    if math.isnan(saved) or math.isnan(train_seconds):
        return math.nan
    return train_seconds / saved if saved > 0 else math.inf


def _matched(costs: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
    rows = [np.asarray(values, dtype=np.float64) for values in costs.values()]
    if not rows or any(row.shape != rows[0].shape for row in rows):
        raise ConfigError(
            "costs must hold at least one method and an entry per instance for each; got "
            + ", ".join(f"{name}: {np.shape(values)}" for name, values in costs.items())
        )
    table = np.stack(rows)
    return table[:, ~np.isnan(table).any(axis=0)]


def _shares(
    names: Mapping[str, ArrayLike], table: NDArray[np.float64], limits: ArrayLike
) -> dict[str, NDArray[np.float64]]:
    limits = np.asarray(limits, dtype=np.float64)
    count = table.shape[1]
    return {
        name: np.searchsorted(np.sort(row[np.isfinite(row)]), limits, side="right") / count
        if count
        else np.full(limits.shape, np.nan)
        for name, row in zip(names, table, strict=True)
    }
