"""Beside the paper's figures: every method in and off distribution, relative to one-shot."""

from __future__ import annotations

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
    log_scale,
    models_used,
    spread,
    trial_count,
)
from deceptron.report.figures.shelf import Shelf
from deceptron.report.figures.style import (
    ONE_SHOT,
    PAGE,
    PROBLEMS,
    SERIES,
    Series,
)
from deceptron.report.words import grounds
from deceptron.study.names import SETS
from deceptron.study.statistics import Interval, ratio_interval


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
            _row(axis, row, [ratio_to_one_shot(shelf, p, series, on) for p in problems], problems)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.grid(False, axis="y")
        axis.tick_params(axis="y", length=0)
        for edge in range(1, len(shown)):
            axis.axhline(edge - 0.5, color="0.9", linewidth=0.4)
        if not any(shelf.seeds(p, ONE_SHOT, on) for p in problems):
            axis.set_title(f"{on}: no records")
    axes[0].set_yticks(range(len(shown)), [s.label for s in shown])
    axes[0].set_ylim(len(shown) - 0.5, -0.5)
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
            "run on, with 95% percentile bootstrap intervals within seeds; the tall mark is the",
            "geometric mean over the problems shown in its row.",
            grounds([s.method for s in shown]),
            f"one-shot on test: {trial_count(shelf, problems, ONE_SHOT)};",
            f"{fewest(shelf, problems, shown)}.",
            models_used(shelf),
        ),
    )


def ratio_to_one_shot(shelf: Shelf, problem: str, series: Series, on: str) -> Interval | None:
    """Ratio of mean errors on shared trials; None where there are none."""
    errors = {
        "own": shelf.instances(problem, series, on)["rmse"],
        "reference": shelf.instances(problem, ONE_SHOT, on)["rmse"],
    }
    both = pd.concat(errors, axis=1, join="inner").replace(np.inf, np.nan)
    seeds = both.index.get_level_values("seed")
    ratio = ratio_interval(both["own"], both["reference"], groups=seeds)
    return ratio if ratio.count else None


def _row(axis: Axes, row: int, ratios: list[Interval | None], problems: list[str]) -> None:
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
