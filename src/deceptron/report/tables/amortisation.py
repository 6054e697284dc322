"""After how many solves the training of a pair has paid for itself, and at what error."""

from __future__ import annotations

import math

from deceptron.report.index import Index
from deceptron.report.published import published
from deceptron.report.tables.table import Cell, Column, Table
from deceptron.report.tables.view import PAPER_SETTINGS, TUNED, View, mean
from deceptron.report.words import uncharged
from deceptron.study.statistics import break_even

BASELINES = ("wiener", *PAPER_SETTINGS, *TUNED, "lm-true", "gn-prior")


def amortisation(index: Index) -> Table:
    """Table 8 of the paper, with the errors that the compared costs buy."""
    view = View(index)
    rows: list[tuple[Cell, ...]] = []
    for problem in index.problems:
        for model in ("paper", "standard"):
            planned = view.planned(problem, model)
            rows += [
                _row(view, problem, model, baseline)
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
        f"{uncharged(BASELINES)} A "
        "cheaper answer is not always as good: the errors stand beside. The paper's values "
        "(Table 8) are of a GPU, ours of one CPU thread.",
        (
            Column("problem", "problem"),
            Column("model", "trained by"),
            Column("baseline", "baseline"),
            Column("train_seconds", "T_train, s"),
            Column("seconds_d_ipg", "D-IPG", "C alone, s"),
            Column("seconds_baseline", "baseline", "C alone, s"),
            Column("n_paper", "paper", "N alone"),
            Column("n_ours", "ours", "N alone"),
            Column("n_difference", "difference", "N alone"),
            Column("n_batched", "N in a batch"),
            Column("rmse_d_ipg", "D-IPG", "RMSE"),
            Column("rmse_baseline", "baseline", "RMSE"),
        ),
        tuple(rows),
        view.notes(),
    )


def _row(view: View, problem: str, model: str, baseline: str) -> tuple[Cell, ...]:
    found = {method: view.instances(problem, model, method) for method in ("d-ipg", baseline)}
    alone = {method: view.latency(problem, model, method) for method in found}
    batched = {method: float(rows["seconds"].mean()) for method, rows in found.items()}
    row = view.model(problem, model)
    train = math.nan if row is None else float(row["train_seconds"])
    theirs = math.nan
    if model == "paper":
        theirs = published("Table 8", "break-even", problem=problem, method=baseline).value
    ours = break_even(train, alone[baseline], alone["d-ipg"])
    return (
        problem,
        view.preset(problem, model),
        baseline,
        train,
        alone["d-ipg"],
        alone[baseline],
        theirs,
        _solves(ours),
        ours - theirs if math.isfinite(ours) else None,
        _solves(break_even(train, batched[baseline], batched["d-ipg"])),
        mean(found["d-ipg"], "rmse"),
        mean(found[baseline], "rmse"),
    )


def _solves(count: float) -> Cell:
    return "never" if count == math.inf else count
