"""Figure 2 of the paper: does JCP open the good basin, or speed up the way down?"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deceptron.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    caption,
    legend_below,
    log_scale,
    models_used,
    say,
    step_axis,
    trial_count,
)
from deceptron.report.figures.shelf import Shelf
from deceptron.report.figures.style import DIPG, DIRECT, PAGE, PAPER, PLAIN, Series, pick
from deceptron.study.statistics import GOOD_BASIN, basin_occupancy, cohens_d, rate_interval

PROBLEM = "allen-cahn-2d"
(GN,) = pick("gn")
COMPARED = (*PAPER, *pick("lm-tuned", "guarded"))


def mechanism(shelf: Shelf) -> Drawing:
    """Separation of the trials without JCP, basin occupancy, contraction given success."""
    plain = shelf.paths(PROBLEM, PLAIN, "rmse").ffill(axis=1)
    with_jcp = shelf.paths(PROBLEM, DIPG, "rmse").ffill(axis=1)
    if with_jcp.empty:
        raise NothingToDraw(f"no steps of d-ipg with the model {shelf.family} on {PROBLEM}")
    figure = Figure(figsize=(PAGE, 4.6), layout="constrained")
    axes = figure.subplot_mosaic("ac\nad\nbb", height_ratios=[3, 1.2, 4.4])
    axes["a"].set_title("(a) separation without JCP")
    axes["b"].set_title("(b) occupancy of the good basin")
    axes["c"].set_title("(c) contraction given success")
    _separation(axes["a"], plain)
    _occupancy(axes["b"], shelf)
    _contraction(axes["c"], axes["d"], shelf, with_jcp, plain)
    legend_below(figure, [axes["c"]], columns=5)
    return Drawing(
        figure,
        caption(
            f"Allen-Cahn in two dimensions; the good basin is min_t RMSE_t < {GOOD_BASIN}.",
            "(a) Cohen's d between the trials of d-ipg without JCP that miss the basin and those",
            "that reach it, by iteration; positive: those that miss have the larger error.",
            "(b) The smallest RMSE of each trial, and the share of trials in the basin.",
            "(c) Mean RMSE of d-ipg, gn, and the trials without JCP that reach the basin; below,",
            "the ratio of the last to d-ipg. A trial that has ended keeps its last value.",
            f"d-ipg: {trial_count(shelf, [PROBLEM], DIPG)}.",
            models_used(shelf),
        ),
    )


def _separation(axis: Axes, plain: pd.DataFrame) -> None:
    if plain.empty:
        say(axis, "no steps of d-ipg without JCP to compare with")
        return
    inside = basin_occupancy(plain)
    hits, misses = int(inside.sum()), int((~inside).sum())
    if min(hits, misses) < 2:
        say(
            axis,
            f"{hits} of {len(inside)} trials without JCP reach the basin: "
            "there are no two groups to compare",
        )
        return
    d = cohens_d(plain[~inside], plain[inside])
    axis.axhline(0, color="0.6", linewidth=0.6)
    axis.plot(plain.columns, d, **PLAIN.look(marker=True))
    step_axis(axis)
    axis.set_ylabel(f"Cohen's d ({misses} miss, {hits} reach)")


def _occupancy(axis: Axes, shelf: Shelf) -> None:
    shown = [s for s in COMPARED if len(shelf.instances(PROBLEM, s))]
    for row, series in enumerate(shown):
        best = _best(shelf, series)
        inside = basin_occupancy(best.to_numpy()[:, None])
        rate = rate_interval(inside)
        words = f"{rate.value:.0%} [{rate.low:.0%}, {rate.high:.0%}]"
        axis.text(1.01, row, words, transform=axis.get_yaxis_transform(), va="center", fontsize=6.5)
        jitter = np.random.default_rng(0).uniform(-0.28, 0.28, len(best))
        face = series.color if series.filled else "none"
        axis.scatter(
            best,
            row + jitter,
            s=5,
            marker=series.marker,
            facecolors=face,
            edgecolors=series.color,
            linewidths=0.4,
            alpha=0.8,
        )
    axis.axvline(GOOD_BASIN, color="0.3", linewidth=0.8)
    axis.set_yticks(range(len(shown)), [s.label for s in shown])
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.grid(False, axis="y")
    log_scale(axis, "x")
    axis.set_xlabel(r"$\min_t\ \mathrm{RMSE}_t$")


def _best(shelf: Shelf, series: Series) -> pd.Series:
    """The smallest error of each trial, its answer included."""
    last = shelf.instances(PROBLEM, series)["rmse"]
    paths = shelf.paths(PROBLEM, series, "rmse")
    return last if paths.empty else paths.min(axis=1).reindex(last.index).fillna(last)


def _contraction(
    axis: Axes, strip: Axes, shelf: Shelf, with_jcp: pd.DataFrame, plain: pd.DataFrame
) -> None:
    kept = plain[basin_occupancy(plain)] if len(plain) else plain
    gn = shelf.paths(PROBLEM, GN, "rmse").ffill(axis=1)
    last = int(max(with_jcp.columns[-1], kept.columns[-1] if len(kept) else 0))
    means = {}
    for series, paths in ((DIPG, with_jcp), (PLAIN, kept), (GN, gn)):
        if len(paths):
            # Beyond its longest trial a mean stays what it is.
            means[series] = paths.mean().reindex(range(last + 1)).ffill()
            axis.plot(means[series].index, means[series], **series.look(marker=True))
    for series in DIRECT:
        level = shelf.instances(PROBLEM, series)["rmse"].mean()
        if np.isfinite(level):
            axis.axhline(level, **series.look())
    log_scale(axis, "y")
    axis.set_ylabel("mean RMSE")
    if PLAIN not in means:
        step_axis(axis)
        say(strip, "no trial without JCP in the basin")
        return
    axis.tick_params(labelbottom=False)
    strip.sharex(axis)
    strip.axhline(1, color="0.6", linewidth=0.6)
    strip.plot(means[PLAIN].index, means[PLAIN] / means[DIPG], **PLAIN.look(marker=True))
    strip.set_ylabel("ratio")
    step_axis(strip)
