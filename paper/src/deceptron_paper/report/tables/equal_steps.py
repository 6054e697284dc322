"""What JCP changes after equal numbers of steps, where no stopping rule can take part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from deceptron import Status
from deceptron_paper.report.query import WITHOUT_JCP, Query
from deceptron_paper.report.tables.table import Column, Count, Line, Probability, measured, table
from deceptron_paper.report.trials import shared
from deceptron_paper.statistics import (
    Paired,
    at_step,
    mean_interval,
    paired_difference,
    rate_interval,
)

STEPS = (1, 2, 5, 10, 20)
TOLERANCE = "tolerance"


@dataclass(frozen=True)
class Errors:
    """Errors with and without JCP on shared trials, and the limit of the rule rmse."""

    jcp: pd.Series
    plain: pd.Series
    limit: float

    @property
    def successes(self) -> tuple[pd.Series, pd.Series]:
        """1 or 0 for each trial, with and without."""
        return (self.jcp <= self.limit) * 1.0, (self.plain <= self.limit) * 1.0

    @property
    def success_p(self) -> Probability:
        """Of the paired test of success."""
        return Probability(paired_difference(*self.successes).p)

    @cached_property
    def paired(self) -> Paired:
        """Error with minus without."""
        return paired_difference(self.jcp, self.plain)


EQUAL_STEPS = (
    Column("problem", "problem"),
    Column("model", "trained by"),
    Column("steps", "steps"),
    Column("n", "n", value=lambda e: Count(len(e.jcp))),
    Column("success_jcp", "+JCP", "success (rmse)", lambda e: rate_interval(e.successes[0])),
    Column("success_plain", "-JCP", "success (rmse)", lambda e: rate_interval(e.successes[1])),
    Column("success_p", "p", "success (rmse)", lambda e: e.success_p),
    Column("rmse_jcp", "+JCP", "RMSE", lambda e: mean_interval(e.jcp)),
    Column("rmse_plain", "-JCP", "RMSE", lambda e: mean_interval(e.plain)),
    Column("rmse_change", "change", "RMSE", lambda e: e.paired.difference),
    Column("rmse_p", "p", "RMSE", lambda e: Probability(e.paired.p)),
)


@table("equal-steps", "JCP after equal numbers of steps", EQUAL_STEPS)
def equal_steps(query: Query) -> Iterator[Line]:
    """Success and RMSE with and without JCP after k steps, and where the tolerance stops."""
    for problem in query.problems:
        for model in WITHOUT_JCP:
            if "d-ipg" not in query.planned_methods(problem, model):
                continue
            label = {"problem": problem, "model": query.preset(problem, model)}
            for steps, errors in errors_by_step(query, problem, model).items():
                if len(errors.jcp):
                    yield {**label, "steps": steps, **measured(EQUAL_STEPS, errors)}


def errors_by_step(query: Query, problem: str, model: str) -> dict[str, Errors]:
    """After each of ``STEPS`` that every instance could have taken, and at the tolerance."""
    models, limit = (model, WITHOUT_JCP[model]), query.limits[problem]
    free = [query.trials(problem, name, "d-ipg-free") for name in models]
    cells = pd.concat([trials.rows for trials in free])
    cut = cells.loc[cells["status"] == Status.STEP_LIMIT.name, "iterations"]
    paths = [trials.paths("rmse") for trials in free]
    found = {}
    for k in STEPS:
        if cut.empty or k <= cut.min():
            after = [at_step(p, k) if len(p) else pd.Series(dtype=float) for p in paths]
            found[str(k)] = Errors(*shared(*after), limit)
    ends = [query.trials(problem, name, "d-ipg").rows["rmse"] for name in models]
    return {**found, TOLERANCE: Errors(*shared(*ends), limit)}
