"""What the lines of most tables are about, and the columns that several of them share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from deceptron_paper.report.query import Query, Trials
from deceptron_paper.report.tables.table import Column, Count, Exact, change, p_value
from deceptron_paper.statistics import Paired


@dataclass(frozen=True)
class Case:
    """A method with a model on one set of a problem: of the first seed, or all seeds pooled.

    ``reference`` are the trials that its errors are compared with; None if it is that itself.
    """

    query: Query
    problem: str
    model: str = "standard"
    method: str = "d-ipg"
    set: str = "test"
    pooled: bool = False
    reference: Trials | None = None

    def of(self, method: str) -> Trials:
        """Another method in the same place."""
        ask = self.query.pooled if self.pooled else self.query.trials
        return ask(self.problem, self.model, method, set=self.set)

    @cached_property
    def trials(self) -> Trials:
        """Its own."""
        return self.of(self.method)

    @cached_property
    def paired(self) -> Paired | None:
        """Error minus that of the reference."""
        return None if self.reference is None else self.trials.against(self.reference)


def median_iterations(trials: Trials) -> float:
    """NaN for none."""
    return float(trials.rows["iterations"].median())


PROBLEM = Column("problem", "problem", value=lambda c: c.problem)
SET = Column("set", "set", value=lambda c: c.set)
METHOD = Column("method", "method", value=lambda c: c.method)
TRAINED_BY = Column("model", "trained by", value=lambda c: c.query.preset(c.problem, c.model))
N = Column("n", "n", value=lambda c: Count(len(c.trials)) if len(c.trials) else None)
RMSE = Column("rmse", "RMSE", value=lambda c: c.trials.mean("rmse"))
P = Column("p", "p", "paired", lambda c: p_value(c.paired))
MINUS_REFERENCE = Column("rmse_minus_d_ipg", "RMSE - D-IPG's", "paired", lambda c: change(c.paired))
SUCCESS = Column("success_rmse", "rmse", "success", lambda c: c.trials.rate("rmse"))
STRICT = Column("success_strict", "strict", "success", lambda c: c.trials.rate("strict"))
OBJECTIVE_RESIDUAL = Column(
    "surrogate_residual", "objective", "residual / noise", lambda c: c.trials.in_noise("residual")
)
TRUE_RESIDUAL = Column(
    "true_residual", "simulator", "residual / noise", lambda c: c.trials.in_noise("true_residual")
)
ITERATIONS = Column(
    "iterations", "median iterations", value=lambda c: Exact(median_iterations(c.trials))
)
EVALUATIONS = Column("evaluations", "evaluations", value=lambda c: c.trials.average("evaluations"))
BATCHED = Column(
    "batched_ms", "in a batch", "ms an instance", lambda c: 1e3 * c.trials.average("seconds")
)
ALONE = Column("latency_ms", "alone", "ms an instance", lambda c: 1e3 * c.trials.latency)
RJCP = Column("rjcp", "RJCP", value=lambda c: c.trials.average("rjcp"))
