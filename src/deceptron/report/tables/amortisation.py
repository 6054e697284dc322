"""After how many solves the training of a pair has paid for itself, and at what error."""

from __future__ import annotations

import math
from dataclasses import dataclass

from deceptron.report.published import paper_value
from deceptron.report.query import Query, Trials
from deceptron.report.tables.summary import PAPER_SETTINGS, TUNED
from deceptron.report.tables.table import Column, Table, Value, measured
from deceptron.report.words import uncharged
from deceptron.study.statistics import break_even

BASELINES = ("wiener", *PAPER_SETTINGS, *TUNED, "lm-true", "gn-prior")


@dataclass(frozen=True)
class Purchase:
    """A trained pair, D-IPG on it, and a baseline that it should save the cost of."""

    query: Query
    problem: str
    model: str
    baseline: str

    @property
    def train_seconds(self) -> float:
        """NaN where not recorded."""
        row = self.query.model(self.problem, self.model)
        return math.nan if row is None else float(row["train_seconds"])

    def of(self, method: str) -> Trials:
        """A method with this model."""
        return self.query.trials(self.problem, self.model, method)

    @property
    def d_ipg(self) -> Trials:
        """D-IPG."""
        return self.of("d-ipg")

    @property
    def other(self) -> Trials:
        """The baseline."""
        return self.of(self.baseline)

    @property
    def alone(self) -> float:
        """Solves until training is paid for, an instance at a time."""
        return break_even(self.train_seconds, self.other.latency, self.d_ipg.latency)

    @property
    def paper(self) -> float:
        """The paper's number, NaN for other models."""
        if self.model != "paper":
            return math.nan
        where = {"problem": self.problem, "method": self.baseline}
        return paper_value("Table 8", "break-even", **where).value

    @property
    def batched(self) -> float:
        """The same in a batch."""
        seconds = [trials.average("seconds") for trials in (self.other, self.d_ipg)]
        return break_even(self.train_seconds, *seconds)


def _solves(number: float) -> Value:
    return "never" if number == math.inf else number


COLUMNS = (
    Column("problem", "problem", value=lambda p: p.problem),
    Column("model", "trained by", value=lambda p: p.query.preset(p.problem, p.model)),
    Column("baseline", "baseline", value=lambda p: p.baseline),
    Column("train_seconds", "T_train, s", value=lambda p: p.train_seconds),
    Column("seconds_d_ipg", "D-IPG", "C alone, s", lambda p: p.d_ipg.latency),
    Column("seconds_baseline", "baseline", "C alone, s", lambda p: p.other.latency),
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
    Column("rmse_baseline", "baseline", "RMSE", lambda p: p.other.mean("rmse")),
)


def amortisation(query: Query) -> Table:
    """Table 8 of the paper, with the errors that the compared costs buy."""
    lines = []
    for problem in query.problems:
        for model in ("paper", "standard"):
            planned = query.planned_methods(problem, model)
            lines += [
                measured(COLUMNS, Purchase(query, problem, model, baseline))
                for baseline in BASELINES
                if baseline in planned and "d-ipg" in planned
            ]
    return Table(
        "break-even",
        "Break-even",
        "N = T_train / (C_base - C_D-IPG) solves after which training is paid for; never where the "
        "baseline is no dearer. C is the median time of an instance solved alone, in a batch the "
        "mean share of the batch's time. The baselines on the surrogate need f too, so that N is "
        "an upper bound for them; wiener and the methods on the simulator need no training."
        f"{uncharged(query, BASELINES)} A "
        "cheaper answer is not always as good: the errors stand beside. The paper's values "
        "(Table 8) are of a GPU, ours of one CPU thread.",
        COLUMNS,
        tuple(lines),
    )
