"""Figure 2 of the paper: does JCP open the good basin, or speed up the way down?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deceptron.report.figures.family import DIPG, PLAIN, Family
from deceptron.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    caption,
    legend_below,
    log_scale,
    models_used,
    step_axis,
    trial_count,
)
from deceptron.report.figures.style import PAGE, Series
from deceptron.study.statistics import GOOD_BASIN, basin_occupancy, cohens_d, rate_interval

PROBLEM = "allen-cahn-2d"
CLASSICS = ("gd", "gn", "lm", "l-bfgs", "lm-tuned", "guarded")


def mechanism(family: Family) -> Drawing:
    """Separation of the trials without JCP, basin occupancy, contraction given success.

    A panel that the records cannot fill is left out, and the caption says why.
    """
    plain = family.trials(PROBLEM, PLAIN).paths("rmse").ffill(axis=1)
    with_jcp = family.trials(PROBLEM, DIPG).paths("rmse").ffill(axis=1)
    if with_jcp.empty:
        raise NothingToDraw(f"no steps of d-ipg with the model {family.name} on {PROBLEM}")
    top: list[Callable[[Axes], None]] = []
    lacking = _no_separation(plain)
    if lacking is None:
        top.append(lambda axis: _separation(axis, plain))
    top.append(lambda axis: _contraction(axis, family, with_jcp, plain))
    shown = [
        s
        for s in (*family.direct, DIPG, PLAIN, *family.pick(*CLASSICS))
        if len(family.trials(PROBLEM, s))
    ]
    height = 0.22 * len(shown) + 0.5
    figure = Figure(figsize=(PAGE, 2.4 + height), layout="constrained")
    (above,), (below,) = figure.subfigures(2, 1, height_ratios=[2.4, height], squeeze=False)
    axes = above.subplots(1, len(top), squeeze=False)[0]
    for axis, draw in zip(axes, top, strict=True):
        draw(axis)
    _occupancy(below.subplots(), family, shown)
    legend_below(above, axes, columns=5)
    return Drawing(
        figure,
        caption(
            f"Allen-Cahn in two dimensions; the good basin is min_t RMSE_t < {GOOD_BASIN}.",
            "(a) Cohen's d between the trials of d-ipg without JCP that miss the basin and those",
            "that reach it, by iteration; positive: those that miss have the larger error."
            if lacking is None
            else f"is left out: {lacking}.",
            "(b) Mean RMSE of d-ipg, gn, and the trials without JCP that reach the basin; a trial",
            "that has ended keeps its last value.",
            "(c) The smallest RMSE of each trial, and the share of trials in the basin.",
            f"d-ipg: {trial_count(family, [PROBLEM], DIPG)}.",
            models_used(family),
        ),
    )


def _no_separation(plain: pd.DataFrame) -> str | None:
    if plain.empty:
        return "no steps of d-ipg without JCP to compare with"
    inside = basin_occupancy(plain)
    if min(inside.sum(), (~inside).sum()) < 2:
        return (
            f"{inside.sum()} of {len(inside)} trials without JCP reach the basin, so there are no "
            "two groups to compare"
        )
    return None


def _separation(axis: Axes, plain: pd.DataFrame) -> None:
    inside = basin_occupancy(plain)
    axis.set_title("(a) separation without JCP")
    axis.axhline(0, color="0.6", linewidth=0.6)
    axis.plot(plain.columns, cohens_d(plain[~inside], plain[inside]), **PLAIN.look(marker=True))
    step_axis(axis)
    axis.set_ylabel(f"Cohen's d ({(~inside).sum()} miss, {inside.sum()} reach)")


def _contraction(axis: Axes, family: Family, with_jcp: pd.DataFrame, plain: pd.DataFrame) -> None:
    kept = plain[basin_occupancy(plain)] if len(plain) else plain
    last = int(max(with_jcp.columns[-1], kept.columns[-1] if len(kept) else 0))
    lines: list[tuple[Series, pd.DataFrame]] = [(DIPG, with_jcp), (PLAIN, kept)]
    lines += [(s, family.trials(PROBLEM, s).paths("rmse").ffill(axis=1)) for s in family.pick("gn")]
    axis.set_title("(b) contraction given success")
    for series, paths in lines:
        if len(paths):
            # Beyond its longest trial a mean stays what it is.
            mean = paths.mean().reindex(range(last + 1)).ffill()
            axis.plot(mean.index, mean, **series.look(marker=True))
    for series in family.direct:
        level = family.trials(PROBLEM, series).average("rmse")
        if np.isfinite(level):
            axis.axhline(level, **series.look())
    log_scale(axis, "y")
    axis.set_ylabel("mean RMSE")
    step_axis(axis)


def _occupancy(axis: Axes, family: Family, shown: list[Series]) -> None:
    axis.set_title("(c) occupancy of the good basin")
    for row, series in enumerate(shown):
        best = _best(family, series)
        rate = rate_interval(basin_occupancy(best.to_numpy()[:, None]))
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
            rasterized=True,
        )
    axis.axvline(GOOD_BASIN, color="0.3", linewidth=0.8)
    axis.set_yticks(range(len(shown)), [s.label for s in shown])
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.grid(False, axis="y")
    log_scale(axis, "x")
    axis.set_xlabel(r"$\min_t\ \mathrm{RMSE}_t$")


def _best(family: Family, series: Series) -> pd.Series:
    """The smallest error of each trial, its answer included."""
    trials = family.trials(PROBLEM, series)
    last, paths = trials.rows["rmse"], trials.paths("rmse")
    return last if paths.empty else paths.min(axis=1).reindex(last.index).fillna(last)
