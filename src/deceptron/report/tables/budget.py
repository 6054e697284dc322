"""The error each method has reached when all have spent the same number of evaluations."""

from __future__ import annotations

from functools import partial

from deceptron.report.query import Query, Trials
from deceptron.report.tables.table import Column, Table, Value, count, measured
from deceptron.report.words import simulator_evaluations, starts_and_objectives
from deceptron.study.names import STEP_SIZE_METHODS
from deceptron.study.statistics import mean_interval

BUDGETS = (10, 30, 100, 300, 1000)


def _within(budget: int, trials: Trials) -> Value:
    """Mean RMSE at the last point within the budget; a dash if any trial has none."""
    steps = trials.steps
    within = steps[steps["evaluations"] <= budget].drop_duplicates("instance", keep="last")
    reached = len(trials) and len(within) == len(trials)
    return mean_interval(within["rmse"]) if reached else None


COLUMNS = (
    Column("problem", "problem"),
    Column("method", "method"),
    Column("n", "n", value=count),
    *(
        Column(f"rmse_{budget}", str(budget), "RMSE within evaluations", partial(_within, budget))
        for budget in BUDGETS
    ),
)


def equal_evaluations(query: Query) -> Table:
    """RMSE within a budget of f, g, jvp and vjp evaluations, whatever they are spent on."""
    lines = [
        {
            "problem": problem,
            "method": method,
            **measured(COLUMNS, query.trials(problem, "standard", method)),
        }
        for problem in query.problems
        for method in query.planned_methods(problem, "standard")
        if method not in STEP_SIZE_METHODS
    ]
    return Table(
        "equal-evaluations",
        "Equal numbers of evaluations",
        "Mean RMSE when a method may spend so many evaluations, all kinds counted alike, on each "
        "instance: its last accepted point within the budget. A dash: the budget does not "
        f"reach the first point. {simulator_evaluations(query)} "
        f"{starts_and_objectives(query, query.methods)} "
        f"Test set, model standard, seed {query.seed}; 95% bootstrap intervals (BCa); * marks "
        "fewer than 30 instances.",
        COLUMNS,
        tuple(lines),
    )
