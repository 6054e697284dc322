"""Figures 2 and 7 of the paper: what JCP, its probes and the step size do on Allen-Cahn."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deceptron_paper.report.figures.family import DIPG, PAGE, PLAIN, Family, Series
from deceptron_paper.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    legend_below,
    level_lines,
    log_scale,
    named_rows,
    scattered,
    step_axis,
    trial_count,
)
from deceptron_paper.report.published import ALLEN_CAHN
from deceptron_paper.report.query import Trials
from deceptron_paper.statistics import (
    GOOD_BASIN,
    basin_occupancy,
    cohens_d,
    mean_interval,
    rate_interval,
)
from deceptron_paper.study.names import PROBE_MODELS, STEP_SIZE_METHODS

IN_BASIN = ("gd", "gn", "lm", "l-bfgs", "lm-tuned", "guarded")


def mechanism(family: Family) -> Drawing:
    """Separation of the trials without JCP, basin occupancy, contraction given success."""
    shown = _shown(family)
    paths = {s: _paths(family, s) for s in (DIPG, PLAIN, *family.pick("gn"))}
    plain = paths[PLAIN]
    inside = basin_occupancy(plain) if len(plain) else np.zeros(0, dtype=bool)
    reach, miss = int(inside.sum()), int((~inside).sum())
    paths[PLAIN] = plain[inside]
    height = 0.17 * len(shown) + 0.6
    figure = Figure(figsize=(PAGE, 1.9 + height), layout="constrained")
    ((left, right),) = figure.subfigures(1, 2, width_ratios=[1.15, 1], squeeze=False)
    if separable := min(reach, miss) >= 2:
        top, bottom = left.subplots(2, 1, height_ratios=[1.5, height])
        top.set_title("(a) separation without JCP")
        top.axhline(0, color="0.6", linewidth=0.6)
        distance = cohens_d(plain[~inside], plain[inside])
        top.plot(plain.columns, distance, **PLAIN.look(marker=True))
        step_axis(top)
        top.set_ylabel("Cohen's d")
    else:
        bottom = left.subplots()
    bottom.set_title("(b) occupancy of the good basin")
    _occupancy(bottom, family, shown)
    ratios = [3, 1] if reach else [1]
    axes = right.subplots(len(ratios), 1, height_ratios=ratios, squeeze=False)[:, 0]
    _contraction(list(axes), family, paths)
    legend_below(right, right.axes, columns=2)
    facts = {"separable": separable, "reach": reach, "miss": miss}
    return Drawing(figure, {**facts, "trials": trial_count(family, [ALLEN_CAHN], DIPG)})


def _shown(family: Family) -> list[Series]:
    methods = (*family.direct, DIPG, PLAIN, *family.pick(*IN_BASIN))
    shown = [s for s in methods if len(family.trials(ALLEN_CAHN, s))]
    if DIPG not in shown:
        raise NothingToDraw(f"no records of d-ipg with the model {family.name} on {ALLEN_CAHN}")
    return shown


def _paths(family: Family, series: Series) -> pd.DataFrame:
    """Errors by step; a trial that has ended keeps its last."""
    return family.trials(ALLEN_CAHN, series).paths("rmse").ffill(axis=1)


def _contraction(axes: list[Axes], family: Family, paths: dict[Series, pd.DataFrame]) -> None:
    """Mean errors by step, and below the ratio of the two forms of D-IPG."""
    last = max((int(paths[s].columns[-1]) for s in (DIPG, PLAIN) if len(paths[s])), default=0)
    # Beyond its longest trial a mean stays what it is.
    means = {s: own.mean().reindex(range(last + 1)).ffill() for s, own in paths.items() if len(own)}
    axes[0].set_title("(c) contraction given success")
    for series, mean in means.items():
        axes[0].plot(mean.index, mean, **series.look(marker=True))
    level_lines(axes[0], family.direct, lambda s: family.trials(ALLEN_CAHN, s).average("rmse"))
    log_scale(axes[0], "y")
    axes[0].set_ylabel("mean RMSE")
    step_axis(axes[0])
    for strip in axes[1:]:
        ratio = means[PLAIN] / means[DIPG]
        strip.axhline(1, color="0.6", linewidth=0.6)
        strip.plot(ratio.index, ratio, color=PLAIN.color)
        strip.set_ylabel("without / with")
        step_axis(strip)


def _occupancy(axis: Axes, family: Family, shown: list[Series]) -> None:
    for row, series in enumerate(shown):
        best = _smallest(family, series)
        rate = rate_interval(basin_occupancy(best.to_numpy()[:, None]))
        words = f"{rate.value:.0%} [{rate.low:.0%}, {rate.high:.0%}]"
        axis.text(1.01, row, words, transform=axis.get_yaxis_transform(), va="center", fontsize=6.5)
        face = series.color if series.filled else "none"
        look = {"facecolors": face, "edgecolors": series.color, "linewidths": 0.4, "alpha": 0.8}
        scattered(axis, best, row, 0.28, s=5, marker=series.marker, **look)
    axis.axvline(GOOD_BASIN, color="0.3", linewidth=0.8)
    named_rows(axis, [s.label for s in shown])
    log_scale(axis, "x")
    axis.set_xlabel(r"$\min_t\ \mathrm{RMSE}_t$")


def _smallest(family: Family, series: Series) -> pd.Series:
    """The smallest error of each trial, its answer included."""
    trials = family.trials(ALLEN_CAHN, series)
    last, paths = trials.rows["rmse"], trials.paths("rmse")
    return last if paths.empty else paths.min(axis=1).reindex(last.index).fillna(last)


def hyperparameters(family: Family) -> Drawing:
    """Error and RJCP by number of probes; trajectories and error by step size."""
    asked = {k: f"{family.name}-probes-{k}" for k in PROBE_MODELS.values()}
    probed = {
        k: trials
        for k, model in asked.items()
        if len(trials := family.query.recorded(ALLEN_CAHN, model, DIPG.method))
    }
    methods = family.query.methods
    tried = {a: Series.of(methods[m], 0) for m, a in STEP_SIZE_METHODS.items() if m in methods}
    tried = {a: s for a, s in tried.items() if len(family.trials(ALLEN_CAHN, s))}
    sizes = dict(sorted({**tried, 1.0: DIPG}.items()))
    if len(probed) < 2 or not tried or not len(family.trials(ALLEN_CAHN, DIPG)):
        raise NothingToDraw(f"probes and step size were not varied with the model {family.name}")
    figure = Figure(figsize=(PAGE, 4.2), layout="constrained")
    axes = figure.subplots(2, 2)
    axes[0, 0].set_title("(a) error by number of probes")
    _errors(axes[0, 0], family, list(probed.values()), [DIPG] * len(probed))
    axes[1, 0].set_title("(b) RJCP by number of probes")
    rjcp = [trials.average("rjcp") for trials in probed.values()]
    axes[1, 0].plot(range(len(rjcp)), rjcp, **DIPG.look(marker=True))
    level_lines(axes[1, 0], [PLAIN], lambda s: family.trials(ALLEN_CAHN, s).average("rjcp"))
    axes[1, 0].set_xlim(-0.5, len(rjcp) - 0.5)
    axes[1, 0].set_ylim(0, 1.15 * axes[1, 0].get_ylim()[1])
    axes[1, 0].set_ylabel("mean RJCP at the answers")
    axes[0, 1].set_title("(c) trajectories by step size")
    for series in sizes.values():
        paths = _paths(family, series)
        mean = paths.div(paths[0], axis=0).mean()
        axes[0, 1].plot(mean.index, mean, **series.look())
    start = family.trials(ALLEN_CAHN, DIPG).rows["rmse_start"]
    direct = {s: (family.trials(ALLEN_CAHN, s).rows["rmse"] / start).mean() for s in family.direct}
    level_lines(axes[0, 1], direct, direct.__getitem__)
    log_scale(axes[0, 1], "y")
    axes[0, 1].set_ylabel(r"mean $\mathrm{RMSE}_t\,/\,\mathrm{RMSE}_0$")
    step_axis(axes[0, 1])
    axes[1, 1].set_title("(d) error by step size")
    ended = [family.trials(ALLEN_CAHN, series) for series in sizes.values()]
    _errors(axes[1, 1], family, ended, list(sizes.values()))
    for axis in axes[:, 0]:
        axis.set_xticks(range(len(probed)), [str(k) for k in probed])
        axis.set_xlabel("probes k")
    axes[1, 1].set_xticks(range(len(sizes)), [f"{size:g}" for size in sizes])
    axes[1, 1].set_xlabel("first step size a")
    legend_below(figure, axes.flat, columns=4)
    return Drawing(figure, {"trials": trial_count(family, [ALLEN_CAHN], DIPG)})


def _errors(axis: Axes, family: Family, varied: list[Trials], looks: list[Series]) -> None:
    """Mean RMSE with its interval, the success rate beside it, and what has no such setting."""
    for place, (own, series) in enumerate(zip(varied, looks, strict=True)):
        mean = mean_interval(own.rows["rmse"])
        axis.plot([place, place], [mean.low, mean.high], color=series.color, linewidth=0.8)
        axis.plot(place, mean.value, marker=series.marker, color=series.color)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        words = f"{own.rate_value():.0%}"
        axis.text(place + 0.08, mean.value, words, va="center", fontsize=6, bbox=box)
    others = (PLAIN, *family.direct)
    level_lines(axis, others, lambda s: family.trials(ALLEN_CAHN, s).average("rmse"))
    axis.set_xlim(-0.5, len(varied) - 0.5)
    axis.grid(False, axis="x")
    axis.margins(y=0.15)
    axis.set_ylabel("mean RMSE")
