"""After how many solves the training of a pair has paid for itself, and at what error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from deceptron_paper.report.published import paper_value
from deceptron_paper.report.query import Query, Trials
from deceptron_paper.report.tables import case
from deceptron_paper.report.tables.beside_paper import PAPER_SETTINGS, TUNED
from deceptron_paper.report.tables.case import Case
from deceptron_paper.report.tables.table import Column, Value, table
from deceptron_paper.statistics import break_even

BASELINES = ("wiener", *PAPER_SETTINGS, *TUNED, "lm-true", "gn-prior")


@dataclass(frozen=True)
class Purchase(Case):
    """A trained pair that should save the cost of a baseline, the method."""

    @property
    def train_seconds(self) -> float:
        """NaN where not recorded."""
        row = self.query.models.get((self.problem, self.model, self.query.seed))
        return math.nan if row is None else float(row["train_seconds"])

    @property
    def d_ipg(self) -> Trials:
        """What is solved with instead."""
        return self.of("d-ipg")

    @property
    def alone(self) -> float:
        """Solves until training is paid for, an instance at a time."""
        return break_even(self.train_seconds, self.trials.latency, self.d_ipg.latency)

    @property
    def paper(self) -> float:
        """The paper's number, NaN for other models."""
        if self.model != "paper":
            return math.nan
        where = {"problem": self.problem, "method": self.method}
        return paper_value("Table 8", "break-even", **where).value

    @property
    def batched(self) -> float:
        """The same in a batch."""
        seconds = [trials.average("seconds") for trials in (self.trials, self.d_ipg)]
        return break_even(self.train_seconds, *seconds)


def _solves(number: float) -> Value:
    return "never" if number == math.inf else number


@table(
    "break-even",
    "Break-even",
    (
        case.PROBLEM,
        case.TRAINED_BY,
        Column("baseline", "baseline", value=lambda p: p.method),
        Column("train_seconds", "T_train, s", value=lambda p: p.train_seconds),
        Column("seconds_d_ipg", "D-IPG", "C alone, s", lambda p: p.d_ipg.latency),
        Column("seconds_baseline", "baseline", "C alone, s", lambda p: p.trials.latency),
        Column("n_paper", "paper", "N alone", lambda p: p.paper),
        Column("n_ours", "ours", "N alone", lambda p: _solves(p.alone)),
        Column(
            "n_difference",
            "difference",
            "N alone",
            lambda p: p.alone - p.paper if math.isfinite(p.alone) else None,
        ),
        Column("n_batched", "N in a batch", value=lambda p: _solves(p.batched)),
        Column("rmse_d_ipg", "D-IPG", "RMSE", lambda p: p.d_ipg.mean("rmse")),
        Column("rmse_baseline", "baseline", "RMSE", lambda p: p.trials.mean("rmse")),
    ),
    baselines=BASELINES,
)
def amortisation(query: Query) -> Iterator[Purchase]:
    """Table 8 of the paper, with the errors that the compared costs buy."""
    for problem in query.problems:
        for model in ("paper", "standard"):
            planned = query.planned_methods(problem, model)
            for baseline in BASELINES:
                if baseline in planned and "d-ipg" in planned:
                    yield Purchase(query, problem, model, baseline)
