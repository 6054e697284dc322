"""In and out of distribution: where an iterative solver must earn its place over a network."""

from __future__ import annotations

import pandas as pd

from deceptron.report.index import Index
from deceptron.report.tables.paired import rmse_change
from deceptron.report.tables.table import Cell, Column, Count, Table
from deceptron.report.tables.view import View, in_noise, mean
from deceptron.report.words import INTERVALS, grounds, strict_rule
from deceptron.study.names import SETS

SHOWN = (
    "one-shot",
    "wiener",
    "d-ipg",
    "d-ipg-tuned",
    "lm-tuned",
    "guarded",
    "lm-true",
    "guarded-true",
    "gn-prior",
)


def shift(index: Index) -> Table:
    """The methods of ``SHOWN`` on the three sets of every problem."""
    view = View(index)
    shown = [method for method in SHOWN if method in index.methods]
    rows: list[tuple[Cell, ...]] = []
    for problem in index.problems:
        for set in SETS:
            alone = view.instances(problem, "standard", "one-shot", set=set)
            planned = view.planned(problem, "standard", set=set)
            rows += [_row(view, problem, set, m, alone) for m in shown if m in planned]
    return Table(
        "shift",
        "In distribution, shifted and extreme",
        "The model standard, which has seen neither the shifted nor the extreme set. d-ipg stops "
        "at the paper's tolerance, -tuned methods at the noise level. Simulator residuals are in "
        f"units of the noise. {grounds(shown)} Seed {index.seed}. {strict_rule(index)} {INTERVALS}",
        (
            Column("problem", "problem"),
            Column("set", "set"),
            Column("method", "method"),
            Column("n", "n"),
            Column("rmse", "RMSE"),
            Column("rmse_minus_one_shot", "RMSE - one-shot's", "paired"),
            Column("p", "p", "paired"),
            Column("success_strict", "success (strict)"),
            Column("true_residual", "simulator residual / noise"),
            Column("evaluations", "evaluations"),
            Column("batched_ms", "ms in a batch"),
        ),
        tuple(rows),
        view.notes(),
    )


def _row(view: View, problem: str, set: str, method: str, alone: pd.DataFrame) -> tuple[Cell, ...]:
    found = view.instances(problem, "standard", method, set=set)
    label: tuple[Cell, ...] = (problem, set, method)
    if found.empty:
        return (*label, *[None] * 8)
    return (
        *label,
        Count(len(found)),
        mean(found, "rmse"),
        *((None, None) if method == "one-shot" else rmse_change(found, alone)),
        view.rate(found, "strict"),
        in_noise(found, "true_residual"),
        float(found["evaluations"].mean()),
        1e3 * float(found["seconds"].mean()),
    )
