"""Beside the paper's figures: its errors, its protocol re-run, and what this library reaches."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from deceptron.report.figures.family import DIPG, Family
from deceptron.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    caption,
    legend_below,
    log_scale,
    models_used,
    trial_count,
)
from deceptron.report.figures.style import COLUMN, Series
from deceptron.report.published import paper_value
from deceptron.study.statistics import ORACLE, mean_interval


def against_paper(family: Family) -> Drawing:
    """RMSE of D-IPG as published, by the published protocol here, and by our own; and the rest."""
    paper, own = Family(family.query, "paper"), Family(family.query, "standard")
    theirs = {
        p: paper_value("Table 3", "rmse", problem=p, method="d-ipg").value
        for p in family.query.problems
    }
    problems = [p for p in theirs if theirs[p] == theirs[p] and _any(own, p) | _any(paper, p)]
    if not problems:
        raise NothingToDraw("no records of d-ipg on a problem of the paper")
    looks: list[tuple[str, Family, Series, str]] = [
        ("d-ipg, published protocol re-run", paper, DIPG, "o"),
        ("d-ipg, standard", own, DIPG, "s"),
    ]
    for series in own.pick("one-shot", "wiener", ORACLE):
        names = {"one-shot": "one-shot, standard", ORACLE: f"{ORACLE} (oracle)"}
        looks.append((names.get(series.label, series.label), own, series, series.marker))
    figure = Figure(figsize=(1.5 * COLUMN, 0.5 * len(problems) + 1.1), layout="constrained")
    axis = figure.subplots()
    for row, problem in enumerate(problems):
        label = "d-ipg, as published" if row == 0 else None
        look: dict[str, Any] = {"color": DIPG.color, "marker": "o", "mfc": "white"}
        axis.plot(theirs[problem], row - 0.36, linestyle="", label=label, **look)
        for place, (words, source, series, marker) in enumerate(looks, 1):
            mean = mean_interval(source.trials(problem, series).rows["rmse"])
            y = row - 0.36 + 0.72 * place / len(looks)
            axis.plot([mean.low, mean.high], [y, y], color=series.color, linewidth=0.8)
            label = words if row == 0 else None
            axis.plot(mean.value, y, linestyle="", label=label, color=series.color, marker=marker)
        axis.axhline(row + 0.5, color="0.85", linewidth=0.5)
    axis.set_yticks(range(len(problems)), problems)
    axis.set_ylim(len(problems) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.grid(False, axis="y")
    log_scale(axis, "x")
    axis.set_xlabel("mean RMSE on the test set")
    legend_below(figure, [axis], columns=2)
    network = own.pick("one-shot")
    return Drawing(
        figure,
        caption(
            "Mean RMSE with 95% bootstrap intervals. Problems other than heat-1d, heat-3d and",
            "allen-cahn-2d are this library's own definitions where the paper gives only words, so",
            "the published value is another problem's.",
            *(f"one-shot: {trial_count(own, own.problems(s), s)};" for s in network),
            f"re-run protocol: {trial_count(paper, paper.problems(DIPG), DIPG)}.",
            models_used(paper),
        ),
    )


def _any(family: Family, problem: str) -> bool:
    return len(family.trials(problem, DIPG)) > 0
