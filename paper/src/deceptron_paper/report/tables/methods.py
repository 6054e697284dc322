"""The methods of a study beside each other: in full, off distribution, per evaluation and step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd

from deceptron_paper.report.published import MAIN_PROBLEMS
from deceptron_paper.report.query import WITHOUT_JCP, Query
from deceptron_paper.report.tables import case
from deceptron_paper.report.tables.case import Case
from deceptron_paper.report.tables.table import Column, Count, Value, table
from deceptron_paper.statistics import mean_interval
from deceptron_paper.study.names import STEP_SIZE_METHODS
from deceptron_paper.study.records import MethodRecord

# Of the library's methods those that do not compete off distribution; a user's own always do.
LEFT_OUT = (
    *STEP_SIZE_METHODS,
    *("d-ipg-free", "gd", "gn", "lm", "l-bfgs", "gn-tuned", "l-bfgs-tuned"),
    *("guarded-prior", "gn-cold", "lm-cold", "l-bfgs-cold"),
)
BUDGETS = (10, 30, 100, 300, 1000)
COUNTERS = ("f", "g", "jvp", "vjp", "linear_steps", "evaluations")


def _trained_with_jcp(about: Case) -> str:
    if not about.query.methods[about.method].uses_reverse:
        return ""
    return "no" if about.model.endswith("-plain") else "yes"


@table(
    "methods",
    "Methods on the main problems",
    (
        case.PROBLEM,
        case.TRAINED_BY,
        Column("jcp", "JCP", value=_trained_with_jcp),
        case.METHOD,
        case.N,
        case.SUCCESS,
        case.STRICT,
        case.RMSE,
        case.MINUS_REFERENCE,
        case.P,
        case.OBJECTIVE_RESIDUAL,
        case.TRUE_RESIDUAL,
        case.ITERATIONS,
        case.EVALUATIONS,
        case.BATCHED,
        case.ALONE,
        case.RJCP,
    ),
)
def methods(query: Query) -> Iterator[Case]:
    """Every method on the problems of the main text, for the published protocol and ours."""
    for problem in [p for p in query.problems if p in MAIN_PROBLEMS] or query.problems:
        for model, plain in WITHOUT_JCP.items():
            planned = query.planned_methods(problem, model)
            reference = query.trials(problem, model, "d-ipg") if "d-ipg" in planned else None
            for method in planned:
                own = method == "d-ipg"
                yield Case(query, problem, model, method, reference=None if own else reference)
                if method in ("one-shot", "d-ipg") and (
                    method in query.planned_methods(problem, plain)
                ):
                    yield Case(query, problem, plain, method, reference=reference)


def competing(query: Query) -> list[str]:
    """Methods that one would choose between off distribution."""
    return [method for method in query.methods if method not in LEFT_OUT]


@table(
    "shift",
    "In distribution, shifted and extreme",
    (
        case.PROBLEM,
        case.SET,
        case.METHOD,
        case.N,
        case.RMSE,
        replace(case.MINUS_REFERENCE, key="rmse_minus_one_shot", title="RMSE - one-shot's"),
        case.P,
        replace(case.STRICT, title="success (strict)", group=""),
        replace(case.TRUE_RESIDUAL, title="simulator residual / noise", group=""),
        case.EVALUATIONS,
        replace(case.BATCHED, title="ms in a batch", group=""),
    ),
    competing=competing,
)
def shift(query: Query) -> Iterator[Case]:
    """The methods that compete off distribution, on every set of every problem."""
    for problem in query.problems:
        for set in query.sets:
            planned = query.planned_methods(problem, "standard", set=set)
            asked = "one-shot" in planned
            alone = query.trials(problem, "standard", "one-shot", set=set) if asked else None
            for method in planned:
                if method in competing(query):
                    reference = None if method == "one-shot" else alone
                    yield Case(query, problem, method=method, set=set, reference=reference)


def _within(budget: int, about: Case) -> Value:
    """Mean RMSE at the last point within the budget; a dash if any trial has none."""
    steps = about.trials.steps
    within = steps[steps["evaluations"] <= budget].drop_duplicates("instance", keep="last")
    reached = len(about.trials) and len(within) == len(about.trials)
    return mean_interval(within["rmse"]) if reached else None


@table(
    "equal-evaluations",
    "Equal numbers of evaluations",
    (
        case.PROBLEM,
        case.METHOD,
        case.N,
        *(
            Column(f"rmse_{most}", str(most), "RMSE within evaluations", partial(_within, most))
            for most in BUDGETS
        ),
    ),
)
def equal_evaluations(query: Query) -> Iterator[Case]:
    """RMSE within a budget of f, g, jvp and vjp evaluations, whatever they are spent on."""
    for problem in query.problems:
        for method in query.planned_methods(problem, "standard"):
            if method not in STEP_SIZE_METHODS:
                yield Case(query, problem, method=method)


@dataclass(frozen=True)
class Spent:
    """What a method has spent on all problems together."""

    method: MethodRecord
    rows: pd.DataFrame

    @property
    def steps(self) -> int | None:
        """Accepted ones; a direct method takes none."""
        return int(self.rows["iterations"].sum()) or None

    def per_step(self, counter: str) -> Value:
        """Of a direct method, per instance."""
        if not len(self.rows):
            return None
        return float(self.rows[counter].sum()) / (self.steps or len(self.rows))


@table(
    "operations",
    "Operations per iteration",
    (
        Column("method", "method", value=lambda s: s.method.name),
        Column("operation", "core operation", value=lambda s: s.method.operation),
        Column("n", "n", value=lambda s: Count(len(s.rows)) if len(s.rows) else None),
        Column("steps", "steps", value=lambda s: s.steps),
        *(
            Column(name, name.replace("_", " "), value=partial(Spent.per_step, counter=name))
            for name in COUNTERS
        ),
    ),
)
def operations(query: Query) -> Iterator[Spent]:
    """Table 5 of the paper with counts in the place of words."""
    for name, method in query.methods.items():
        if name in STEP_SIZE_METHODS:
            continue
        planned = [p for p in query.problems if name in query.planned_methods(p, "standard")]
        found = [query.trials(problem, "standard", name).rows for problem in planned]
        # An empty frame among others has no say in their types, and pandas warns of it.
        found = [rows for rows in found if len(rows)]
        yield Spent(method, pd.concat(found) if found else query.records.instances.iloc[:0])
