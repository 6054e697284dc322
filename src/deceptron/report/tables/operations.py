"""What an iteration costs, from the counters of the solves."""

from __future__ import annotations

from functools import partial

import pandas as pd

from deceptron.report.query import Query
from deceptron.report.tables.table import Column, Table, Value, count, measured
from deceptron.report.words import simulator_evaluations, starts_and_objectives
from deceptron.study.names import STEP_SIZE_METHODS

COUNTERS = ("f", "g", "jvp", "vjp", "linear_steps", "evaluations")


def _steps(rows: pd.DataFrame) -> int | None:
    return int(rows["iterations"].sum()) or None


def _per_step(counter: str, rows: pd.DataFrame) -> Value:
    """A direct method takes no steps: its counts are per instance."""
    return float(rows[counter].sum()) / (_steps(rows) or len(rows)) if len(rows) else None


COLUMNS = (
    Column("method", "method"),
    Column("operation", "core operation"),
    Column("n", "n", value=count),
    Column("steps", "steps", value=_steps),
    *(Column(name, name.replace("_", " "), value=partial(_per_step, name)) for name in COUNTERS),
)


def operations(query: Query) -> Table:
    """Table 5 of the paper with counts in the place of words."""
    lines = []
    for method, entry in query.methods.items():
        if method in STEP_SIZE_METHODS:
            continue
        planned = [p for p in query.problems if method in query.planned_methods(p, "standard")]
        found = [query.trials(problem, "standard", method).rows for problem in planned]
        # An empty frame among others has no say in their types, and pandas warns of it.
        found = [rows for rows in found if len(rows)]
        rows = pd.concat(found) if found else query.records.instances.iloc[:0]
        label = {"method": method, "operation": entry.operation}
        lines.append({**label, **measured(COLUMNS, rows)})
    return Table(
        "operations",
        "Operations per iteration",
        "Counted by the solver, not derived: totals over the test sets of all problems (model "
        f"standard, seed {query.seed}) divided by accepted steps; rejected trials and the "
        "evaluation of the start are included; direct methods take no steps: their counts are per "
        f"instance. {simulator_evaluations(query)} Linear steps are those of CG. "
        f"{starts_and_objectives(query, query.methods)}",
        COLUMNS,
        tuple(lines),
    )
