"""In and out of distribution: where an iterative solver must earn its place over a network."""

from __future__ import annotations

from dataclasses import replace

from deceptron.report.query import Query
from deceptron.report.tables.methods import COLUMNS as METHOD_COLUMNS
from deceptron.report.tables.methods import Run
from deceptron.report.tables.table import Column, Line, Table, measured
from deceptron.report.words import INTERVALS, starts_and_objectives, strict_rule
from deceptron.study.names import STEP_SIZE_METHODS

NETWORK = "one-shot"
# Of the library's methods those that compete off distribution; a user's own are always shown.
LEFT_OUT = (
    *STEP_SIZE_METHODS,
    *("d-ipg-free", "gd", "gn", "lm", "l-bfgs", "gn-tuned", "l-bfgs-tuned"),
    *("guarded-prior", "gn-cold", "lm-cold", "l-bfgs-cold"),
)
_SAME = {column.key: column for column in METHOD_COLUMNS}
COLUMNS = (
    Column("problem", "problem"),
    Column("set", "set"),
    Column("method", "method"),
    _SAME["n"],
    _SAME["rmse"],
    replace(_SAME["rmse_minus_d_ipg"], key="rmse_minus_one_shot", title="RMSE - one-shot's"),
    _SAME["p"],
    replace(_SAME["success_strict"], title="success (strict)", group=""),
    replace(_SAME["true_residual"], title="simulator residual / noise", group=""),
    _SAME["evaluations"],
    replace(_SAME["batched_ms"], title="ms in a batch", group=""),
)


def shift(query: Query) -> Table:
    """The methods that compete off distribution, on every set of every problem."""
    shown = [method for method in query.methods if method not in LEFT_OUT]
    lines: list[Line] = []
    for problem in query.problems:
        for set in query.sets:
            alone = query.trials(problem, "standard", NETWORK, set=set)
            for method in query.planned_methods(problem, "standard", set=set):
                if method in shown:
                    trials = query.trials(problem, "standard", method, set=set)
                    run = Run(trials, None if method == NETWORK else alone)
                    label = {"problem": problem, "set": set, "method": method}
                    lines.append({**label, **measured(COLUMNS, run)})
    return Table(
        "shift",
        "In distribution, shifted and extreme",
        "The model standard, which has seen neither the shifted nor the extreme set. d-ipg stops "
        "at the paper's tolerance, -tuned methods at the noise level. Simulator residuals are in "
        f"units of the noise. {starts_and_objectives(query, shown)} Seed {query.seed}. "
        f"{strict_rule(query)} {INTERVALS}",
        COLUMNS,
        tuple(lines),
    )
