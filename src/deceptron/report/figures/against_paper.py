"""Beside the paper's figures: its errors, its protocol re-run, and what this library reaches."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from deceptron.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    caption,
    legend_below,
    log_scale,
    models_used,
    trial_count,
)
from deceptron.report.figures.shelf import Shelf
from deceptron.report.figures.style import (
    BLUE,
    COLUMN,
    DIPG,
    ONE_SHOT,
    PROBLEMS,
    WIENER,
    Series,
    pick,
)
from deceptron.report.published import published
from deceptron.study.statistics import ORACLE as ORACLE_METHOD
from deceptron.study.statistics import mean_interval

(ORACLE,) = pick(ORACLE_METHOD)


def against_paper(shelf: Shelf) -> Drawing:
    """RMSE of D-IPG as published, by the published protocol here, and by our own; and the rest."""
    paper, own = shelf.turn("paper"), shelf.turn("standard")
    looks: list[tuple[str, Shelf, Series, dict[str, Any]]] = [
        ("d-ipg, published protocol re-run", paper, DIPG, {"color": BLUE, "marker": "o"}),
        ("d-ipg, standard", own, DIPG, {"color": BLUE, "marker": "s"}),
        ("one-shot, standard", own, ONE_SHOT, {"color": ONE_SHOT.color, "marker": "D"}),
        ("wiener", own, WIENER, {"color": WIENER.color, "marker": "d"}),
        ("gn-prior (oracle)", own, ORACLE, {"color": ORACLE.color, "marker": "X"}),
    ]
    problems = [p for p in PROBLEMS if own.seeds(p, DIPG) or paper.seeds(p, DIPG)]
    if not problems:
        raise NothingToDraw("no records of d-ipg with the models standard or paper")
    figure = Figure(figsize=(COLUMN, 0.42 * len(problems) + 1.3), layout="constrained")
    axis = figure.subplots()
    for row, problem in enumerate(problems):
        value = published("Table 3", "rmse", problem=problem, method="d-ipg").value
        axis.plot(
            value,
            row - 0.3,
            linestyle="",
            color=BLUE,
            marker="o",
            mfc="white",
            label="d-ipg, as published" if row == 0 else None,
        )
        for place, (label, source, series, look) in enumerate(looks, 1):
            interval = mean_interval(source.instances(problem, series)["rmse"])
            y = row - 0.3 + 0.6 * place / len(looks)
            axis.plot([interval.low, interval.high], [y, y], color=look["color"], linewidth=0.8)
            axis.plot(interval.value, y, linestyle="", label=label if row == 0 else None, **look)
        axis.axhline(row + 0.5, color="0.9", linewidth=0.4)
    axis.set_yticks(range(len(problems)), problems)
    axis.set_ylim(len(problems) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.grid(False, axis="y")
    log_scale(axis, "x")
    axis.set_xlabel("mean RMSE on the test set")
    legend_below(figure, [axis], columns=2)
    return Drawing(
        figure,
        caption(
            "Mean RMSE with 95% bootstrap intervals. Problems other than heat-1d, heat-3d and",
            "allen-cahn-2d are this library's own definitions where the paper gives only words, so",
            "the published value is another problem's.",
            f"one-shot: {trial_count(own, own.problems(ONE_SHOT), ONE_SHOT)};",
            f"re-run protocol: {trial_count(paper, paper.problems(DIPG), DIPG)}.",
            models_used(paper),
        ),
    )
