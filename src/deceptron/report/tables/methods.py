"""Every method on the three problems of the paper's main text: in full, and beside Table 2."""

from __future__ import annotations

import numpy as np
import pandas as pd

from deceptron.report.index import WITHOUT_JCP, Index
from deceptron.report.published import MAIN_PROBLEMS, published
from deceptron.report.tables.paired import rmse_change
from deceptron.report.tables.table import Cell, Column, Count, Exact, Table, difference
from deceptron.report.tables.view import PAPER_SETTINGS, View, in_noise, mean
from deceptron.report.words import INTERVALS, RMSE_RULE, grounds, strict_rule
from deceptron.study.methods import SOLVERS

COLUMNS = (
    Column("problem", "problem"),
    Column("model", "trained by"),
    Column("jcp", "JCP"),
    Column("method", "method"),
    Column("n", "n"),
    Column("success_rmse", "rmse", "success"),
    Column("success_strict", "strict", "success"),
    Column("rmse", "RMSE"),
    Column("rmse_minus_d_ipg", "RMSE - D-IPG's", "paired"),
    Column("p", "p", "paired"),
    Column("surrogate_residual", "objective", "residual / noise"),
    Column("true_residual", "simulator", "residual / noise"),
    Column("iterations", "median iterations"),
    Column("evaluations", "evaluations"),
    Column("batched_ms", "in a batch", "ms an instance"),
    Column("latency_ms", "alone", "ms an instance"),
    Column("rjcp", "RJCP"),
)


def methods(index: Index) -> Table:
    """Our results in full, for the published protocol and for ``standard``."""
    view = View(index)
    rows = [
        row
        for problem in MAIN_PROBLEMS
        for model in WITHOUT_JCP
        for row in _block(view, problem, model)
    ]
    return Table(
        "methods",
        "Methods on the three main problems",
        "Test set, noise as defined. gd, gn, lm and l-bfgs have the paper's settings, -tuned this "
        f"library's with a stop at the noise level. {grounds(index.methods)} One evaluation is one "
        f"f, g, jvp or vjp. {RMSE_RULE} {strict_rule(index)} {INTERVALS}",
        COLUMNS,
        tuple(rows),
        view.notes(),
    )


def _block(view: View, problem: str, model: str) -> list[tuple[Cell, ...]]:
    reference = view.instances(problem, model, "d-ipg")
    plain = WITHOUT_JCP[model]
    rows = []
    for method in view.planned(problem, model):
        rows.append(_row(view, problem, model, method, reference))
        if method in ("one-shot", "d-ipg") and method in view.planned(problem, plain):
            rows.append(_row(view, problem, plain, method, reference))
    return rows


def _row(
    view: View, problem: str, model: str, method: str, reference: pd.DataFrame
) -> tuple[Cell, ...]:
    found = view.instances(problem, model, method)
    jcp = "no" if model.endswith("-plain") else "yes"
    uses_jcp = jcp if SOLVERS[method].uses_reverse else ""
    label: tuple[Cell, ...] = (problem, view.preset(problem, model), uses_jcp, method)
    if found.empty:
        return (*label, *[None] * (len(COLUMNS) - len(label)))
    is_reference = method == "d-ipg" and not model.endswith("-plain")
    change, p = (None, None) if is_reference else rmse_change(found, reference)
    return (
        *label,
        Count(len(found)),
        view.rate(found, "rmse"),
        view.rate(found, "strict"),
        mean(found, "rmse"),
        change,
        p,
        in_noise(found, "residual"),
        in_noise(found, "true_residual"),
        Exact(float(found["iterations"].median())),
        float(found["evaluations"].mean()),
        1e3 * float(found["seconds"].mean()),
        1e3 * view.latency(problem, model, method),
        float(found["rjcp"].mean()),
    )


def methods_beside_paper(index: Index) -> Table:
    """Table 2 of the paper: paper, ours, difference."""
    view = View(index)
    quantities = (
        ("success", "success (rmse)"),
        ("iterations", "median iterations"),
        ("rmse", "RMSE"),
        ("seconds", "seconds alone"),
        ("rjcp", "RJCP"),
    )
    columns = [
        Column("problem", "problem"),
        Column("model", "trained by"),
        Column("method", "method"),
    ]
    for key, title in quantities:
        columns += [
            Column(f"{key}_paper", "paper", title),
            Column(f"{key}_ours", "ours", title),
            Column(f"{key}_difference", "difference", title),
        ]
    rows: list[tuple[Cell, ...]] = []
    for problem in MAIN_PROBLEMS:
        for model, method in _published_rows(problem):
            found = view.instances(problem, model, method)
            ours = _quantities(view, found, problem, model, method)
            label = f"{method} ({'-' if model.endswith('-plain') else '+'}JCP)"
            row: list[Cell] = [
                problem,
                view.preset(problem, model),
                label if method == "d-ipg" else method,
            ]
            for key, _ in quantities:
                where = {"problem": problem, "model": model, "method": method}
                theirs = published("Table 2", key, **where).value
                pair = (theirs, ours[key])
                shown = tuple(map(Exact, pair)) if key == "iterations" else pair
                row += [*shown, difference(shown[1], shown[0])]
            rows.append(tuple(row))
    return Table(
        "methods-paper",
        "Methods on the three main problems, beside the paper",
        "The paper's Table 2 and the same cells of this study; the published protocol, seed "
        f"{index.seed}. {RMSE_RULE} The paper's seconds are of a GPU (NVIDIA T4), ours of one CPU "
        "thread, an instance at a time.",
        tuple(columns),
        tuple(rows),
        view.notes(),
    )


def _published_rows(problem: str) -> list[tuple[str, str]]:
    rows = [("paper", "d-ipg"), ("paper-plain", "d-ipg")]
    for method in PAPER_SETTINGS:
        known = published("Table 2", "success", problem=problem, method=method).value
        rows += [] if np.isnan(known) else [("paper", method)]
    return rows


def _quantities(
    view: View, found: pd.DataFrame, problem: str, model: str, method: str
) -> dict[str, float]:
    return {
        "success": view.rate(found, "rmse").value,
        "iterations": float(found["iterations"].median()),
        "rmse": float(found["rmse"].mean()),
        "seconds": view.latency(problem, model, method),
        "rjcp": float(found["rjcp"].mean()),
    }
