"""The seven problems in a few lines each: paper, ours, difference, and the standard models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from deceptron.report.published import best_baseline, paper_value
from deceptron.report.query import WITHOUT_JCP, Query, Trials
from deceptron.report.tables.table import (
    Column,
    Exact,
    Line,
    Table,
    Value,
    count,
    differences,
    measured,
    paper_line,
)
from deceptron.report.words import rmse_rule

PAPER_SETTINGS = ("gd", "gn", "lm", "l-bfgs")
TUNED = ("gn-tuned", "lm-tuned", "l-bfgs-tuned")
# Classical methods on the surrogate that compete with D-IPG, by model.
CLASSICS = {"paper": PAPER_SETTINGS, "standard": PAPER_SETTINGS + TUNED}


@dataclass(frozen=True)
class Overview:
    """D-IPG with one model on one problem, and what it competes with."""

    query: Query
    problem: str
    model: str

    def of(self, method: str) -> Trials:
        """A method on the test set."""
        return self.query.trials(self.problem, self.model, method)

    @cached_property
    def with_jcp(self) -> Trials:
        """D-IPG."""
        return self.of("d-ipg")

    @cached_property
    def without_jcp(self) -> Trials:
        """The same on the pair that was trained without the penalty."""
        return self.query.trials(self.problem, WITHOUT_JCP[self.model], "d-ipg")

    @cached_property
    def best(self) -> str | None:
        """The classical method with the largest success rate, then the least RMSE."""
        planned = self.query.planned_methods(self.problem, self.model)
        found = {m: self.of(m) for m in CLASSICS[self.model] if m in planned}
        run = [method for method, trials in found.items() if len(trials)]
        return min(
            run, key=lambda m: (-found[m].rate_value(), found[m].average("rmse")), default=None
        )

    @property
    def best_trials(self) -> Trials:
        """Its trials, none where there is no such method."""
        return Trials(self.query.tables, []) if self.best is None else self.of(self.best)


def _table_3(quantity: str, model: str = "paper") -> Callable[[str], Value]:
    def look_up(problem: str) -> Value:
        method = "d-ipg"
        if quantity.startswith("best"):
            method = best_baseline("Table 3", problem) or ""
        return paper_value("Table 3", quantity, problem=problem, method=method, model=model).value

    return look_up


SUCCESS, RMSE = "success (rmse)", "RMSE"
COLUMNS = (
    Column("problem", "problem"),
    Column("source", "source"),
    Column("n", "n", value=lambda o: count(o.with_jcp)),
    Column(
        "success_jcp", "D-IPG +JCP", SUCCESS, lambda o: o.with_jcp.rate("rmse"), _table_3("success")
    ),
    Column(
        "success_plain",
        "D-IPG -JCP",
        SUCCESS,
        lambda o: o.without_jcp.rate("rmse"),
        _table_3("success", "paper-plain"),
    ),
    Column(
        "success_best",
        "best classic",
        SUCCESS,
        lambda o: o.best_trials.rate("rmse"),
        _table_3("best baseline success"),
    ),
    Column("success_one_shot", "one-shot", SUCCESS, lambda o: o.of("one-shot").rate("rmse")),
    Column("success_wiener", "wiener", SUCCESS, lambda o: o.of("wiener").rate("rmse")),
    Column(
        "best",
        "best classic",
        value=lambda o: o.best,
        paper=lambda problem: best_baseline("Table 3", problem),
    ),
    Column("rmse", "D-IPG +JCP", RMSE, lambda o: o.with_jcp.mean("rmse"), _table_3("rmse")),
    Column(
        "rmse_best",
        "best classic",
        RMSE,
        lambda o: o.best_trials.mean("rmse"),
        _table_3("best baseline rmse"),
    ),
    Column("rmse_one_shot", "one-shot", RMSE, lambda o: o.of("one-shot").mean("rmse")),
    Column("rmse_wiener", "wiener", RMSE, lambda o: o.of("wiener").mean("rmse")),
    Column(
        "iterations",
        "median iterations",
        value=lambda o: Exact(float(o.with_jcp.rows["iterations"].median())),
        paper=lambda problem: Exact(
            paper_value("Table 3", "iterations", problem=problem, method="d-ipg").value
        ),
    ),
    Column(
        "seconds",
        "seconds alone",
        value=lambda o: o.with_jcp.latency,
        paper=_table_3("seconds"),
    ),
)


def summary(query: Query) -> Table:
    """Table 3 of the paper, with one-shot and wiener beside it."""
    lines: list[Line] = []
    for problem in query.problems:
        paper = paper_line(COLUMNS, problem)
        ours = measured(COLUMNS, Overview(query, problem, "paper"))
        standard = measured(COLUMNS, Overview(query, problem, "standard"))
        lines += [
            {"problem": problem, "source": "paper, Table 3", **paper},
            {"problem": problem, "source": f"ours, {query.preset(problem, 'paper')}", **ours},
            {"problem": problem, "source": "difference", **differences(ours, paper)},
            {"problem": problem, "source": "ours, standard", **standard},
        ]
    return Table(
        "summary",
        "D-IPG on every problem, beside the paper",
        "D-IPG, the strongest classical method on the surrogate (by success, then RMSE; among the "
        "paper's settings, for standard also among the tuned ones), the network alone and the "
        f"linear estimate. Test set, seed {query.seed}. {rmse_rule(query)} The paper's seconds are "
        "of a GPU, ours of one CPU thread, an instance at a time.",
        COLUMNS,
        tuple(lines),
    )
