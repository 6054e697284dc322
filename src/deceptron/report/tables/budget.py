"""The error each method has reached when all have spent the same number of evaluations."""

from __future__ import annotations

import numpy as np
import pandas as pd

from deceptron.report.index import Index
from deceptron.report.tables.table import Cell, Column, Count, Table
from deceptron.report.tables.view import View
from deceptron.report.words import grounds, simulator_evaluations
from deceptron.study.names import STEP_SIZE_METHODS
from deceptron.study.statistics import mean_interval

BUDGETS = (10, 30, 100, 300, 1000)


def equal_evaluations(index: Index) -> Table:
    """RMSE within a budget of f, g, jvp and vjp evaluations, whatever they are spent on."""
    view = View(index)
    rows: list[tuple[Cell, ...]] = []
    for problem in index.problems:
        for method in view.planned(problem, "standard"):
            if method in STEP_SIZE_METHODS:
                continue
            found = view.instances(problem, "standard", method)
            steps = view.steps(problem, "standard", method)
            errors = [_spent(found, steps, budget) for budget in BUDGETS]
            cells = [mean_interval(values) if len(found) else None for values in errors]
            count = Count(len(found)) if len(found) else None
            rows.append((problem, method, count, *cells))
    return Table(
        "equal-evaluations",
        "Equal numbers of evaluations",
        "Mean RMSE when a method may spend so many evaluations, all kinds counted alike, on each "
        "instance: its last accepted point within the budget. A dash: the budget does not "
        f"reach the first point. {simulator_evaluations(index.methods)} {grounds(index.methods)} "
        f"Test set, model standard, seed {index.seed}; 95% bootstrap intervals (BCa); * marks "
        "fewer than 30 instances.",
        (
            Column("problem", "problem"),
            Column("method", "method"),
            Column("n", "n"),
            *(Column(f"rmse_{b}", str(b), "RMSE within evaluations") for b in BUDGETS),
        ),
        tuple(rows),
        view.notes(),
    )


def _spent(found: pd.DataFrame, steps: pd.DataFrame, budget: int) -> pd.Series:
    """RMSE of each instance at its last point within the budget; NaN for all if any has none."""
    within = steps[steps["evaluations"] <= budget].drop_duplicates("instance", keep="last")
    if len(within) < len(found):
        return pd.Series(np.nan, found.index)
    return within.set_index("instance")["rmse"]
