"""When an instance counts as solved: three rules, always named where a rate is shown.

``rmse``
    RMSE at most the limit of the problem's entry: 0.10, on heat-1d 0.20. The paper uses
    task-specific thresholds and publishes only that of allen-cahn-2d (0.10); the others are this
    library's.
``strict``
    RMSE at most 1.25 times the oracle's mean RMSE on the same set. The oracle is the best
    classical method on the true simulator with the prior.
``residual``
    Residual at most 0.30 of the first one, the paper's rule for profiles.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from deceptron.core import unknown_name

RULES = ("rmse", "strict", "residual")
ORACLE = "gn-prior"
STRICT_FACTOR = 1.25
RESIDUAL_LIMIT = 0.30
GOOD_BASIN = 0.095  # min_t RMSE_t below this on allen-cahn-2d is the paper's good basin


def oracle_rmse(instances: pd.DataFrame) -> pd.Series:
    """Mean RMSE of the oracle, indexed by problem and set; empty while no oracle was run."""
    oracle = instances[instances["method"] == ORACLE]
    return oracle.groupby(["problem", "set"])["rmse"].mean()


def succeeded(
    instances: pd.DataFrame,
    rule: str,
    *,
    limits: Mapping[str, float] | None = None,
    oracle: pd.Series | None = None,
) -> pd.Series:
    """1.0 where an instance succeeds, 0.0 where not, NaN where the rule has no threshold.

    ``limits`` are those of the rule ``rmse`` by problem; ``oracle`` is what ``oracle_rmse`` gives
    for all records, by default taken from ``instances`` themselves.
    """
    if rule == "residual":
        return _below(instances["relative_residual"], RESIDUAL_LIMIT)
    if rule == "rmse":
        return _below(instances["rmse"], instances["problem"].map(limits or {}))
    if rule == "strict":
        oracle = oracle_rmse(instances) if oracle is None else oracle
        best = oracle.reindex(pd.MultiIndex.from_frame(instances[["problem", "set"]]))
        return _below(instances["rmse"], STRICT_FACTOR * best.set_axis(instances.index))
    raise unknown_name("success rule", rule, RULES)


def _below(values: pd.Series, limit: pd.Series | float) -> pd.Series:
    """An error that is not a number is a failure; a missing threshold is no verdict."""
    limits = pd.Series(limit, index=values.index, dtype=float)
    return (values <= limits).astype(float).where(limits.notna(), np.nan)
