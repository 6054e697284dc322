"""How far the conclusions depend on the seed of data and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deceptron.report.published import best_baseline, paper_value
from deceptron.report.query import WITHOUT_JCP, Query, Trials
from deceptron.report.tables.summary import CLASSICS
from deceptron.report.tables.table import (
    Column,
    Line,
    Spread,
    Table,
    Value,
    differences,
    measured,
    paper_line,
)
from deceptron.report.words import rmse_rule


@dataclass(frozen=True)
class Seeds:
    """One model of one problem, trained from several seeds."""

    query: Query
    problem: str
    model: str

    @cached_property
    def trained(self) -> list[int]:
        """The seeds that D-IPG was to be run on."""
        return self.query.planned_seeds(self.problem, self.model, "d-ipg")

    def spread(
        self, measure: Callable[[Trials], float], method: str = "d-ipg", model: str | None = None
    ) -> Spread:
        """Mean and standard deviation over seeds; one seed has no spread."""
        found = [
            self.query.trials(self.problem, model or self.model, method, seed=seed)
            for seed in self.trained
        ]
        known = [value for value in map(measure, found) if not np.isnan(value)]
        deviation = float(np.std(known, ddof=1)) if len(known) > 1 else np.nan
        return Spread(float(np.mean(known)) if known else np.nan, deviation)

    def success(self, method: str = "d-ipg", model: str | None = None) -> Spread:
        """By the rule rmse."""
        return self.spread(lambda trials: trials.rate_value("rmse"), method, model)

    def rmse(self, method: str) -> Spread:
        """Of the answers."""
        return self.spread(lambda trials: trials.average("rmse"), method)

    @cached_property
    def best(self) -> str | None:
        """The classical method that was run on every seed and succeeds most, then errs least."""
        classics = {
            method: self.success(method).mean
            for method in CLASSICS[self.model]
            if self.query.planned_seeds(self.problem, self.model, method) == self.trained
        }
        run = [method for method, rate in classics.items() if not np.isnan(rate)]
        return max(run, key=lambda m: (classics[m], -self.rmse(m).mean), default=None)


def _table_6(quantity: str, model: str = "paper") -> Callable[[str], Value]:
    def look_up(problem: str) -> Value:
        best = best_baseline("Table 6", problem) or ""
        method = best if quantity.startswith("best") else "d-ipg"
        found = paper_value("Table 6", quantity, problem=problem, method=method, model=model)
        return Spread(found.value, found.spread)

    return look_up


SUCCESS, RMSE = "success (rmse)", "RMSE"
COLUMNS = (
    Column("problem", "problem"),
    Column("source", "source"),
    Column("seeds", "seeds"),
    Column("success_jcp", "D-IPG +JCP", SUCCESS, lambda s: s.success(), _table_6("success")),
    Column(
        "success_plain",
        "D-IPG -JCP",
        SUCCESS,
        lambda s: s.success(model=WITHOUT_JCP[s.model]),
        _table_6("success", "paper-plain"),
    ),
    Column(
        "success_best",
        "best classic",
        SUCCESS,
        lambda s: None if s.best is None else s.success(s.best),
        _table_6("best baseline success"),
    ),
    Column(
        "best",
        "best classic",
        value=lambda s: s.best,
        paper=lambda problem: best_baseline("Table 6", problem),
    ),
    Column("rmse_d_ipg", "D-IPG +JCP", RMSE, lambda s: s.rmse("d-ipg")),
    Column("rmse_one_shot", "one-shot", RMSE, lambda s: s.rmse("one-shot")),
    Column("rmse_wiener", "wiener", RMSE, lambda s: s.rmse("wiener")),
    Column(
        "seconds",
        "D-IPG seconds alone",
        value=lambda s: s.spread(lambda trials: trials.latency),
        paper=_table_6("seconds"),
    ),
)


def seeds(query: Query) -> Table:
    """Table 6 of the paper: mean and standard deviation over seeds."""
    lines: list[Line] = []
    for problem in query.problems:
        paper: Line = {}
        if best_baseline("Table 6", problem) is not None:
            paper = paper_line(COLUMNS, problem)
            lines.append({"problem": problem, "source": "paper, Table 6", "seeds": "3", **paper})
        for model in WITHOUT_JCP:
            found = Seeds(query, problem, model)
            if not found.trained:
                continue
            ours = measured(COLUMNS, found)
            source = f"ours, {query.preset(problem, model)}"
            named = ", ".join(map(str, found.trained))
            lines.append({"problem": problem, "source": source, "seeds": named, **ours})
            if paper and model == "paper":
                beside = differences(ours, paper)
                lines.append({"problem": problem, "source": "difference", "seeds": "", **beside})
    return Table(
        "seeds",
        "Three seeds",
        "Mean ± standard deviation over seeds, each with its own data and weights; one seed has no "
        "spread. The best classic has the largest mean success, then the least RMSE, of those run "
        f"on every seed. Test set. {rmse_rule(query)} The paper's seconds are of a GPU, ours of "
        "one CPU thread, an instance at a time.",
        COLUMNS,
        tuple(lines),
    )
