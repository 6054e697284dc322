"""What an iteration costs, from the counters of the solves."""

from __future__ import annotations

import pandas as pd

from deceptron.report.index import Index
from deceptron.report.tables.table import Cell, Column, Count, Table
from deceptron.report.tables.view import View
from deceptron.report.words import grounds, simulator_evaluations
from deceptron.study.methods import SOLVERS
from deceptron.study.names import STEP_SIZE_METHODS

COUNTERS = ("f", "g", "jvp", "vjp", "linear_steps", "evaluations")

# Words of the paper's Table 5, and their like for the methods it does not have.
_OPERATIONS = {
    "one-shot": "g(y*), once",
    "wiener": "K (y* - mean) + m, once",
    "d-ipg": "f(x), then g(f(x) - a r); Armijo slope",
    "gd": "J' r",
    "gn": "solve J'J d = -J' r",
    "lm": "solve (J'J + mu I) d = -J' r",
    "l-bfgs": "gradient, two-loop recursion",
    "guarded": "learned step or CG, whichever earns its cost",
    "gn-prior": "solve (J'J / s^2 + C^-1) d = -gradient",
}


def operations(index: Index) -> Table:
    """Table 5 of the paper with counts in the place of words."""
    view = View(index)
    rows: list[tuple[Cell, ...]] = []
    for method in index.methods:
        if method in STEP_SIZE_METHODS:
            continue
        found = _pooled(view, method)
        if found.empty:
            rows.append((method, _operation(method), *[None] * (2 + len(COUNTERS))))
            continue
        steps = int(found["iterations"].sum())
        per = steps or len(found)
        counts = [float(found[name].sum()) / per for name in COUNTERS]
        rows.append((method, _operation(method), Count(len(found)), steps or None, *counts))
    return Table(
        "operations",
        "Operations per iteration",
        "Counted by the solver, not derived: totals over the test sets of all problems (model "
        f"standard, seed {index.seed}) divided by accepted steps; rejected trials and the "
        "evaluation of the start are included; direct methods take no steps: their counts are per "
        f"instance. {simulator_evaluations(index.methods)} Linear steps are those of CG. "
        f"{grounds(index.methods)}",
        (
            Column("method", "method"),
            Column("operation", "core operation"),
            Column("n", "n"),
            Column("steps", "steps"),
            *(Column(name, name.replace("_", " ")) for name in COUNTERS),
        ),
        tuple(rows),
        view.notes(),
    )


def _pooled(view: View, method: str) -> pd.DataFrame:
    cells = [
        view.instances(problem, "standard", method)
        for problem in view.index.problems
        if method in view.planned(problem, "standard")
    ]
    cells = [cell for cell in cells if len(cell)]
    return pd.concat(cells) if cells else view.index.records.instances.iloc[:0]


def _operation(method: str) -> str:
    if method in _OPERATIONS:
        return _OPERATIONS[method]
    base = max((name for name in _OPERATIONS if method.startswith(name)), key=len, default="")
    return _OPERATIONS.get(base, "") + (", with the prior" if SOLVERS[method].prior else "")
