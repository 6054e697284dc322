"""Beside the paper's figures: every method off distribution, and the published errors with ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from deceptron.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    caption,
    fewest,
    legend_below,
    log_scale,
    models_used,
    spread,
    trial_count,
)
from deceptron.report.figures.shelf import Shelf
from deceptron.report.figures.style import (
    BLUE,
    COLUMN,
    DIPG,
    ONE_SHOT,
    PAGE,
    PROBLEMS,
    SERIES,
    WIENER,
    Series,
    pick,
)
from deceptron.report.published import published
from deceptron.study.names import SETS
from deceptron.study.statistics import mean_interval

RESAMPLES = 1000
(ORACLE,) = pick("gn-prior")


def shift(shelf: Shelf) -> Drawing:
    """Mean RMSE of each method over that of one-shot on the same instances, per set."""
    problems = [p for p in PROBLEMS if any(shelf.seeds(p, ONE_SHOT, on) for on in SETS)]
    if not problems:
        raise NothingToDraw(f"no records of one-shot with the model {shelf.family}")
    shown = [s for s in SERIES[1:] if any(shelf.problems(s, on) for on in SETS)]
    figure = Figure(figsize=(PAGE, 0.34 * len(shown) + 1.2), layout="constrained")
    axes = figure.subplots(1, len(SETS), sharey=True, sharex=True)
    for axis, on in zip(axes, SETS, strict=True):
        axis.set_title(on)
        for row, series in enumerate(shown):
            _row(axis, row, [_ratio(shelf, p, series, on) for p in problems], problems)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.grid(False, axis="y")
        for edge in range(1, len(shown)):
            axis.axhline(edge - 0.5, color="0.9", linewidth=0.4)
        if not any(shelf.seeds(p, ONE_SHOT, on) for p in problems):
            axis.set_title(f"{on}: no records")
    axes[0].set_yticks(range(len(shown)), [s.label for s in shown])
    axes[0].set_ylim(len(shown) - 0.5, -0.5)
    axes[0].tick_params(axis="y", length=0)
    log_scale(axes[0], "x")
    axes[1].set_xlabel("mean RMSE / mean RMSE of one-shot")
    handles = [
        Line2D([], [], linestyle="", color=PROBLEMS[p][0], marker=PROBLEMS[p][1]) for p in problems
    ]
    handles.append(Line2D([], [], linestyle="", color="black", marker="|", markersize=9))
    figure.legend(handles, [*problems, "geometric mean"], loc="outside lower center", ncols=4)
    return Drawing(
        figure,
        caption(
            "Error of each method relative to one-shot (1, black line) on the test set and off",
            "distribution; left of 1 is better. Ratios of means over the instances that both were",
            "run on, with 95% percentile bootstrap intervals; the tall mark is the geometric mean",
            "over the problems shown in its row.",
            "lm-true, guarded-true and gn-prior (the oracle) call the true simulator.",
            f"one-shot on test: {trial_count(shelf, problems, ONE_SHOT)};",
            f"{fewest(shelf, problems, shown)}.",
            models_used(shelf),
        ),
    )


@dataclass(frozen=True)
class _Ratio:
    value: float
    low: float
    high: float


def _ratio(shelf: Shelf, problem: str, series: Series, on: str) -> _Ratio | None:
    """Ratio of mean errors on shared trials; both means are resampled together."""
    table = (
        pd.concat(
            {
                "own": shelf.instances(problem, series, on)["rmse"],
                "reference": shelf.instances(problem, ONE_SHOT, on)["rmse"],
            },
            axis=1,
            join="inner",
        )
        .replace(np.inf, np.nan)
        .dropna()
    )
    if table.empty:
        return None
    values = table.to_numpy()
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    means = values[drawn].mean(axis=1)
    low, high = np.quantile(means[:, 0] / means[:, 1], [0.025, 0.975])
    own, reference = values.mean(axis=0)
    return _Ratio(own / reference, low, high)


def _row(axis: Axes, row: int, ratios: list[_Ratio | None], problems: list[str]) -> None:
    known = [ratio.value for ratio in ratios if ratio is not None]
    if not known:
        return
    mean = float(np.exp(np.mean(np.log(known))))
    axis.plot(mean, row, color="black", marker="|", markersize=13, markeredgewidth=1.2)
    for place, (problem, ratio) in enumerate(zip(problems, ratios, strict=True)):
        if ratio is None:
            continue
        color, marker = PROBLEMS[problem]
        y = row + spread(place, len(problems), 0.62)
        axis.plot([ratio.low, ratio.high], [y, y], color=color, linewidth=0.8)
        axis.plot(ratio.value, y, color=color, marker=marker, markersize=2.8)


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
            f"re-run protocol: {trial_count(paper, paper.problems(DIPG), DIPG)}."
            if paper.problems(DIPG)
            else "re-run protocol: no records.",
            models_used(paper),
        ),
    )
