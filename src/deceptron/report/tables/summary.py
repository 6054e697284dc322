"""The seven problems in a few lines each: paper, ours, difference, and the standard models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deceptron.report.index import WITHOUT_JCP, Index
from deceptron.report.published import best_baseline, published
from deceptron.report.tables.table import Cell, Column, Count, Exact, Table, difference
from deceptron.report.tables.view import CLASSICS, View, mean
from deceptron.report.words import RMSE_RULE
from deceptron.study.statistics import Interval


@dataclass(frozen=True)
class Best:
    """The strongest classical method by success (rule rmse), then by RMSE."""

    method: str
    success: Interval
    rmse: Interval


def strongest(view: View, problem: str, model: str) -> Best | None:
    """The best of the classical methods that were run on this model's surrogate."""
    planned = [m for m in CLASSICS[model] if m in view.planned(problem, model)]
    found = []
    for method in planned:
        rows = view.instances(problem, model, method)
        if len(rows):
            found.append(Best(method, view.rate(rows, "rmse"), mean(rows, "rmse")))
    return min(found, key=lambda best: (-best.success.value, best.rmse.value), default=None)


COLUMNS = (
    Column("problem", "problem"),
    Column("source", "source"),
    Column("n", "n"),
    Column("success_jcp", "D-IPG +JCP", "success (rmse)"),
    Column("success_plain", "D-IPG -JCP", "success (rmse)"),
    Column("success_best", "best classic", "success (rmse)"),
    Column("success_one_shot", "one-shot", "success (rmse)"),
    Column("success_wiener", "wiener", "success (rmse)"),
    Column("best", "best classic"),
    Column("rmse", "D-IPG +JCP", "RMSE"),
    Column("rmse_best", "best classic", "RMSE"),
    Column("rmse_one_shot", "one-shot", "RMSE"),
    Column("rmse_wiener", "wiener", "RMSE"),
    Column("iterations", "median iterations"),
    Column("seconds", "seconds alone"),
)


def summary(index: Index) -> Table:
    """Table 3 of the paper, with one-shot and wiener beside it."""
    view = View(index)
    rows: list[tuple[Cell, ...]] = []
    for problem in index.problems:
        paper = _paper(problem)
        ours = _ours(view, problem, "paper")
        rows += [
            (problem, "paper, Table 3", None, *paper),
            (problem, f"ours, {view.preset(problem, 'paper')}", *ours),
            (problem, "difference", None, *map(difference, ours[1:], paper)),
            (problem, "ours, standard", *_ours(view, problem, "standard")),
        ]
    return Table(
        "summary",
        "Seven problems",
        "D-IPG, the strongest classical method on the surrogate (by success, then RMSE; among the "
        "paper's settings, for standard also among the tuned ones), the network alone and the "
        f"linear estimate. Test set, seed {index.seed}. {RMSE_RULE} The paper's seconds are of a "
        "GPU, ours of one CPU thread, an instance at a time.",
        COLUMNS,
        tuple(rows),
        view.notes(),
    )


def _paper(problem: str) -> tuple[Cell, ...]:
    best = best_baseline("Table 3", problem)

    def value(quantity: str, method: str = "d-ipg", model: str = "paper") -> float:
        return published("Table 3", quantity, problem=problem, method=method, model=model).value

    return (
        value("success"),
        value("success", model="paper-plain"),
        value("best baseline success", best or ""),
        None,
        None,
        best,
        value("rmse"),
        value("best baseline rmse", best or ""),
        None,
        None,
        Exact(value("iterations")),
        value("seconds"),
    )


def _ours(view: View, problem: str, model: str) -> tuple[Cell, ...]:
    cells = {
        "with": view.instances(problem, model, "d-ipg"),
        "without": view.instances(problem, WITHOUT_JCP[model], "d-ipg"),
        "one-shot": view.instances(problem, model, "one-shot"),
        "wiener": view.instances(problem, model, "wiener"),
    }
    rates = {name: view.rate(rows, "rmse") for name, rows in cells.items()}
    means = {name: mean(rows, "rmse") for name, rows in cells.items()}
    best = strongest(view, problem, model)
    median = float(cells["with"]["iterations"].median()) if len(cells["with"]) else np.nan
    return (
        Count(len(cells["with"])) if len(cells["with"]) else None,
        rates["with"],
        rates["without"],
        best.success if best else None,
        rates["one-shot"],
        rates["wiener"],
        best.method if best else None,
        means["with"],
        best.rmse if best else None,
        means["one-shot"],
        means["wiener"],
        Exact(median),
        view.latency(problem, model, "d-ipg"),
    )
