"""Beside the paper's figures: every method in and off distribution, relative to one-shot."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from deceptron.report.figures.family import Family
from deceptron.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    caption,
    fewest,
    models_used,
    trial_count,
)
from deceptron.report.figures.style import MISSING, PAGE, Series, short
from deceptron.report.words import starts_and_objectives
from deceptron.study.statistics import Interval

NETWORK = "one-shot"
DOUBLE = 2.0  # ratios of 1/4 and 4 have the strongest colours


def shift(family: Family) -> Drawing:
    """Mean RMSE of each method over that of one-shot on the same instances, per set."""
    network = next(iter(family.pick(NETWORK)), None)
    sets = family.query.sets
    shown = [on for on in sets if network is not None and family.problems(network, on)]
    if network is None or not shown:
        raise NothingToDraw(f"no records of one-shot with the model {family.name}")
    methods = {
        on: [s for s in family.series if s is not network and family.problems(s, on)]
        for on in shown
    }
    shown = [on for on in shown if methods[on]]
    if not shown:
        raise NothingToDraw(f"no method beside one-shot with the model {family.name}")
    problems = [
        p for p in family.query.problems if any(p in family.problems(network, on) for on in shown)
    ]
    heights = [0.17 * len(methods[on]) + 0.2 for on in shown]
    width = min(PAGE, 1.9 + 0.62 * (len(problems) + 1))
    figure = Figure(figsize=(width, sum(heights) + 0.55), layout="constrained")
    axes = figure.subplots(len(shown), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axis, on in zip(axes, shown, strict=True):
        _matrix(axis, family, on, methods[on], problems)
    axes[0].set_xticks(range(len(problems) + 1), [*map(short, problems), "geometric\nmean"])
    axes[0].xaxis.tick_top()
    every = list(dict.fromkeys(s for on in shown for s in methods[on]))
    return Drawing(
        figure,
        caption(
            "Error of each method over that of one-shot on the test set and off distribution;",
            "below 1 (blue) is better. Ratios of means over the instances that both were run on,",
            "in bold where their 95% bootstrap interval excludes 1; on the right the geometric",
            "mean over the problems of the row.",
            starts_and_objectives(family.query, [s.method for s in every]),
            f"one-shot on test: {trial_count(family, family.problems(network), network)};",
            f"{fewest(family, problems, every)}.",
            models_used(family),
        ),
    )


def ratio_to_one_shot(family: Family, problem: str, series: Series, on: str) -> Interval | None:
    """Ratio of mean errors on shared trials; None where there are none."""
    (network,) = family.pick(NETWORK)
    return family.trials(problem, series, on).ratio(family.trials(problem, network, on))


def _matrix(
    axis: Axes,
    family: Family,
    on: str,
    methods: list[Series],
    problems: list[str],
) -> None:
    found = [[ratio_to_one_shot(family, p, s, on) for p in problems] for s in methods]
    values = np.array([[np.nan if r is None else r.value for r in row] for row in found])
    known = np.log(np.where(np.isfinite(values) & (values > 0), values, np.nan))
    means = [np.exp(np.nanmean(row)) if np.isfinite(row).any() else np.nan for row in known]
    table = np.column_stack([values, means])
    reach = DOUBLE * np.log(2)
    colors, scale = colormaps["RdBu_r"].with_extremes(bad=MISSING), Normalize(-reach, reach)
    with np.errstate(invalid="ignore", divide="ignore"):
        shades = 0.75 * np.log(table)
    axis.imshow(np.ma.masked_invalid(shades), cmap=colors, norm=scale, aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        interval = found[row][column] if column < len(problems) else None
        clear = interval is not None and (interval.low > 1 or interval.high < 1)
        strong = np.isfinite(value) and abs(0.75 * np.log(value)) > 0.62 * reach
        axis.text(
            column,
            row,
            f"{value:.2f}" if value < 10 else f"{value:.0f}" if np.isfinite(value) else "–",
            ha="center",
            va="center",
            fontsize=5.5,
            color="white" if strong else "black",
            fontweight="bold" if clear else "normal",
        )
    axis.set_yticks(range(len(methods)), [s.label for s in methods])
    axis.set_xticks([])
    axis.set_ylabel(on)
    axis.tick_params(length=0)
    axis.grid(False)
    axis.spines[:].set_visible(False)
    axis.axvline(len(problems) - 0.5, color="white", linewidth=3)
