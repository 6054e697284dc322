"""Figure 7 of the paper: number of JCP probes and first step size, on Allen-Cahn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
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
from deceptron.report.figures.style import COLUMN, PAGE, Series
from deceptron.report.query import Trials
from deceptron.report.words import rmse_rule
from deceptron.study.names import PROBE_MODELS, STEP_SIZE_METHODS
from deceptron.study.statistics import mean_interval

PROBLEM = "allen-cahn-2d"
FLAT = 0.02
SIZES = {**STEP_SIZE_METHODS, DIPG.method: 1.0}


def hyperparameters(family: Family) -> Drawing:
    """Error and RJCP by probe count; trajectories and error by step size."""
    sizes = _sizes(family)
    counts = [k for k in PROBE_MODELS.values() if len(_probed(family, k))]
    columns: list[Callable[[Axes, Axes], None]] = []
    lacking = []
    tried: tuple[tuple[str, str, list[Trials], Callable[[Axes, Axes], None]], ...] = (
        (
            "(a, b)",
            "the probe count",
            [_probed(family, k) for k in counts],
            lambda top, bottom: _by_probes(top, bottom, family, counts),
        ),
        (
            "(c, d)",
            "the step size",
            [family.trials(PROBLEM, series) for _, series in sizes],
            lambda top, bottom: _by_step_size(top, bottom, family, sizes),
        ),
    )
    for letters, words, varied, draw in tried:
        if len(varied) < 2:
            lacking.append(f"{letters}: {words} was not varied with the model {family.name}.")
        elif _is_flat(varied):
            lacking.append(
                f"{letters} are left out: {words} changes errors by less than {FLAT:.0%}."
            )
        else:
            columns.append(draw)
    if not columns:
        raise NothingToDraw(" ".join(lacking).rstrip("."))
    figure = Figure(figsize=(PAGE if len(columns) > 1 else COLUMN, 4.2), layout="constrained")
    axes = figure.subplots(2, len(columns), squeeze=False)
    for draw, (top, bottom) in zip(columns, axes.T, strict=True):
        draw(top, bottom)
    legend_below(figure, axes.flat, columns=2 * len(columns))
    return Drawing(
        figure,
        caption(
            "Allen-Cahn in two dimensions. (a, b) d-ipg on pairs whose last stage used k probes",
            "for JCP; the dotted line is the pair without JCP, which has none. (c) Mean RMSE over",
            "that at the start (a trial that has ended keeps its last value) and (d) at the end,",
            "by the first step size a. Bars are 95% intervals of mean RMSE, percentages the share",
            "of instances that succeed.",
            *lacking,
            rmse_rule(family.query),
            f"d-ipg: {trial_count(family, [PROBLEM], DIPG)}.",
            models_used(family),
        ),
    )


def _is_flat(varied: list[Trials]) -> bool:
    """Whether a panel would be a level line."""
    errors = [trials.average("rmse") for trials in varied]
    composition = [trials.average("rjcp") for trials in varied]
    return all(np.ptp(v) <= FLAT * np.max(v) for v in (errors, composition) if np.isfinite(v).all())


def _sizes(family: Family) -> list[tuple[float, Series]]:
    """Step sizes that were tried, from small to large."""
    looks = {
        name: Series.of(method, 0) for name, method in family.query.methods.items() if name in SIZES
    }
    looks[DIPG.method] = DIPG
    made = [(SIZES[name], look) for name, look in looks.items()]
    return sorted((m for m in made if len(family.trials(PROBLEM, m[1]))), key=lambda m: m[0])


def _probed(family: Family, count: int) -> Trials:
    return family.query.recorded(PROBLEM, f"{family.name}-probes-{count}", DIPG.method)


def _by_probes(top: Axes, bottom: Axes, family: Family, counts: list[int]) -> None:
    top.set_title("(a) error by number of probes")
    bottom.set_title("(b) RJCP by number of probes")
    trials = [_probed(family, k) for k in counts]
    _errors(top, family, trials, [DIPG] * len(counts))
    bottom.plot(range(len(counts)), [t.average("rjcp") for t in trials], **DIPG.look(marker=True))
    plain = family.trials(PROBLEM, PLAIN).average("rjcp")
    if np.isfinite(plain):
        bottom.axhline(plain, **PLAIN.look())
    bottom.margins(y=0.15)
    bottom.set_ylabel("mean RJCP at the answers")
    for axis in (top, bottom):
        axis.set_xticks(range(len(counts)), [str(k) for k in counts])
        axis.set_xlim(-0.5, len(counts) - 0.5)
        axis.set_xlabel("probes k")


def _by_step_size(
    top: Axes, bottom: Axes, family: Family, sizes: list[tuple[float, Series]]
) -> None:
    top.set_title("(c) trajectories by step size")
    start = family.trials(PROBLEM, DIPG).rows["rmse_start"]
    for _, series in sizes:
        paths = family.trials(PROBLEM, series).paths("rmse").ffill(axis=1)
        if len(paths):
            mean = paths.div(paths[0], axis=0).mean()
            top.plot(mean.index, mean, **series.look())
    for series in family.direct:
        level = (family.trials(PROBLEM, series).rows["rmse"] / start).mean()
        if np.isfinite(level):
            top.axhline(level, **series.look())
    log_scale(top, "y")
    top.set_ylabel(r"mean $\mathrm{RMSE}_t\,/\,\mathrm{RMSE}_0$")
    step_axis(top)
    bottom.set_title("(d) error by step size")
    shown = [series for _, series in sizes]
    trials = [family.trials(PROBLEM, series) for series in shown]
    _errors(bottom, family, trials, shown)
    bottom.set_xticks(range(len(sizes)), [f"{size:g}" for size, _ in sizes])
    bottom.set_xlim(-0.5, len(sizes) - 0.5)
    bottom.set_xlabel("first step size a")


def _errors(
    axis: Axes,
    family: Family,
    trials: list[Trials],
    looks: list[Series],
) -> None:
    """Mean RMSE with its interval, the success rate above each point, and what needs neither."""
    for place, (own, series) in enumerate(zip(trials, looks, strict=True)):
        mean = mean_interval(own.rows["rmse"])
        ends = np.abs([[mean.value - mean.low], [mean.high - mean.value]])
        look = {**series.look(marker=True), "label": None, "linestyle": ""}
        axis.errorbar(place, mean.value, yerr=ends, capsize=2, elinewidth=0.8, **look)
        axis.annotate(
            f"{own.rate_value('rmse'):.0%}",
            (place, mean.value),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=6,
        )
    for series in (PLAIN, *family.direct):
        level = family.trials(PROBLEM, series).average("rmse")
        if np.isfinite(level):
            axis.axhline(level, **series.look())
    axis.grid(False, axis="x")
    axis.margins(y=0.15)
    axis.set_ylabel("mean RMSE")
