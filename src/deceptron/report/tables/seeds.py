"""How far the conclusions depend on the seed of data and weights."""

from __future__ import annotations

import numpy as np

from deceptron.report.index import WITHOUT_JCP, Index
from deceptron.report.published import best_baseline, published
from deceptron.report.tables.table import Cell, Column, Spread, Table, difference
from deceptron.report.tables.view import CLASSICS, View
from deceptron.report.words import RMSE_RULE


def seeds(index: Index) -> Table:
    """Table 6 of the paper: mean and standard deviation over seeds."""
    view = View(index)
    rows: list[tuple[Cell, ...]] = []
    for problem in index.problems:
        paper = None if best_baseline("Table 6", problem) is None else _paper(problem)
        if paper is not None:
            rows.append((problem, "paper, Table 6", "3", *paper))
        for model in WITHOUT_JCP:
            trained = _seeds_of(view, problem, model)
            if not trained:
                continue
            label = ", ".join(map(str, trained))
            ours = _ours(view, problem, model, trained)
            rows.append((problem, f"ours, {view.preset(problem, model)}", label, *ours))
            if paper is not None and model == "paper":
                rows.append((problem, "difference", "", *map(difference, ours, paper)))
    return Table(
        "seeds",
        "Three seeds",
        "Mean ± standard deviation over seeds, each with its own data and weights; one seed has no "
        "spread. The best classic has the largest mean success, then the least RMSE, of those run "
        f"on every seed. Test set. {RMSE_RULE} The paper's seconds are of a GPU, ours of one CPU "
        "thread, an instance at a time.",
        (
            Column("problem", "problem"),
            Column("source", "source"),
            Column("seeds", "seeds"),
            Column("success_jcp", "D-IPG +JCP", "success (rmse)"),
            Column("success_plain", "D-IPG -JCP", "success (rmse)"),
            Column("success_best", "best classic", "success (rmse)"),
            Column("best", "best classic"),
            Column("rmse_d_ipg", "D-IPG +JCP", "RMSE"),
            Column("rmse_one_shot", "one-shot", "RMSE"),
            Column("rmse_wiener", "wiener", "RMSE"),
            Column("seconds", "D-IPG seconds alone"),
        ),
        tuple(rows),
        view.notes(),
    )


def _seeds_of(view: View, problem: str, model: str) -> list[int]:
    return [
        seed
        for seed in view.index.seeds
        if (problem, "test", model, seed, "d-ipg") in view.index.planned
    ]


def _paper(problem: str) -> tuple[Cell, ...]:
    best = best_baseline("Table 6", problem)

    def value(quantity: str, method: str = "d-ipg", model: str = "paper") -> Spread:
        found = published("Table 6", quantity, problem=problem, method=method, model=model)
        return Spread(found.value, found.spread)

    return (
        value("success"),
        value("success", model="paper-plain"),
        value("best baseline success", best or ""),
        best,
        None,
        None,
        None,
        value("seconds"),
    )


def _ours(view: View, problem: str, model: str, trained: list[int]) -> tuple[Cell, ...]:
    plain = WITHOUT_JCP[model]

    def success(name: str, method: str = "d-ipg") -> Spread:
        found = [view.instances(problem, name, method, seed=seed) for seed in trained]
        return _spread([view.rate(rows, "rmse").value for rows in found])

    def rmse(method: str) -> Spread:
        found = [view.instances(problem, model, method, seed=seed) for seed in trained]
        return _spread([float(rows["rmse"].mean()) for rows in found])

    planned = view.index.planned
    classics = {
        method: success(model, method)
        for method in CLASSICS[model]
        if all((problem, "test", model, seed, method) in planned for seed in trained)
    }
    run = [method for method, rate in classics.items() if not np.isnan(rate.mean)]
    best = max(run, key=lambda name: (classics[name].mean, -rmse(name).mean), default=None)
    return (
        success(model),
        success(plain),
        None if best is None else classics[best],
        best,
        rmse("d-ipg"),
        rmse("one-shot"),
        rmse("wiener"),
        _spread([view.latency(problem, model, "d-ipg", seed=seed) for seed in trained]),
    )


def _spread(values: list[float]) -> Spread:
    known = [value for value in values if not np.isnan(value)]
    if not known:
        return Spread(np.nan, np.nan)
    return Spread(float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else np.nan)
