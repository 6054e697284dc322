"""Figure 7 of the paper: number of JCP probes and first step size, on Allen-Cahn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
from deceptron.report.figures.shelf import Shelf
from deceptron.report.figures.style import BLUE, COLUMN, DIPG, DIRECT, PAGE, PLAIN, Series
from deceptron.report.words import RMSE_RULE
from deceptron.study.names import PROBE_MODELS, STEP_SIZE_METHODS
from deceptron.study.statistics import Interval, rate_interval, succeeded

PROBLEM = "allen-cahn-2d"
# All are d-ipg, so all are blue, the darker the longer the step; step size 1 is d-ipg itself.
SHADES = ("#9DC3E6", "#5F86A8", BLUE, "#03305A")
SIZES = {DIPG.method: 1.0, **STEP_SIZE_METHODS}
STEPS: tuple[Series, ...] = tuple(
    DIPG if name == DIPG.method else replace(DIPG, label=name, method=name, color=color, width=1.2)
    for name, color in zip(sorted(SIZES, key=SIZES.__getitem__), SHADES, strict=True)
)


def hyperparameters(shelf: Shelf) -> Drawing:
    """Success and RJCP by probe count; trajectories and success by step size."""
    sizes = [s for s in STEPS if len(shelf.instances(PROBLEM, s))]
    counts = [k for k in PROBE_MODELS.values() if len(_probed(shelf, k).instances(PROBLEM, DIPG))]
    columns: list[Callable[[Axes, Axes], None]] = []
    lacking = []
    if counts:
        columns.append(lambda top, bottom: _by_probes(top, bottom, shelf, counts))
    else:
        lacking.append(f"(a, b): the probe count was not varied with the model {shelf.family}.")
    if len(sizes) > 1:
        columns.append(lambda top, bottom: _by_step_size(top, bottom, shelf, sizes))
    else:
        lacking.append(f"(c, d): the step size was not varied with the model {shelf.family}.")
    if not columns:
        raise NothingToDraw(
            f"neither probe count nor step size was varied with the model {shelf.family}"
        )
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
            "that at the start (a trial that has ended keeps its last value) and (d) success, by",
            "the first step size a. Bars are 95% intervals.",
            *lacking,
            RMSE_RULE,
            f"d-ipg: {trial_count(shelf, [PROBLEM], DIPG)}.",
            models_used(shelf),
        ),
    )


def _by_probes(top: Axes, bottom: Axes, shelf: Shelf, counts: list[int]) -> None:
    top.set_title("(a) success by number of probes")
    bottom.set_title("(b) RJCP by number of probes")
    _probe_success(top, shelf, counts)
    _probe_rjcp(bottom, shelf, counts)


def _by_step_size(top: Axes, bottom: Axes, shelf: Shelf, sizes: list[Series]) -> None:
    top.set_title("(c) trajectories by step size")
    bottom.set_title("(d) success by step size")
    _step_paths(top, shelf, sizes)
    _step_success(bottom, shelf, sizes)


def _probed(shelf: Shelf, count: int) -> Shelf:
    return shelf.turn(f"{shelf.family}-probes-{count}")


def _success(shelf: Shelf, series: Series) -> Interval:
    return rate_interval(succeeded(shelf.instances(PROBLEM, series), "rmse"))


def _levels(axis: Axes, shelf: Shelf, series: tuple[Series, ...]) -> None:
    """Success rates that do not depend on what the panel varies."""
    for one in series:
        rate = _success(shelf, one)
        if rate.count:
            axis.axhline(rate.value, **one.look())


def _rates(axis: Axes) -> None:
    axis.set_ylim(-0.04, 1.04)
    axis.set_ylabel("success rate")


def _probe_success(axis: Axes, shelf: Shelf, counts: list[int]) -> None:
    rates = [_success(_probed(shelf, k), DIPG) for k in counts]
    values = np.array([rate.value for rate in rates])
    ends = np.abs([[r.value - r.low, r.high - r.value] for r in rates]).T
    axis.errorbar(counts, values, yerr=ends, capsize=2, elinewidth=0.8, **DIPG.look(marker=True))
    _levels(axis, shelf, (PLAIN, *DIRECT))
    _rates(axis)
    _probe_axis(axis, counts)


def _probe_rjcp(axis: Axes, shelf: Shelf, counts: list[int]) -> None:
    values = [_probed(shelf, k).rjcp(PROBLEM, DIPG) for k in counts]
    axis.plot(counts, values, **DIPG.look(marker=True))
    plain = shelf.rjcp(PROBLEM, PLAIN)
    if np.isfinite(plain):
        axis.axhline(plain, **PLAIN.look())
    axis.set_ylim(0, 1.15 * float(np.nanmax([*values, plain, 1e-3])))
    axis.set_ylabel("mean RJCP at the answers")
    _probe_axis(axis, counts)


def _probe_axis(axis: Axes, counts: list[int]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, [str(k) for k in counts])
    axis.set_xlabel("probes k")


def _step_paths(axis: Axes, shelf: Shelf, shown: list[Series]) -> None:
    start = shelf.instances(PROBLEM, DIPG)["rmse_start"]
    for series in shown:
        paths = shelf.paths(PROBLEM, series, "rmse").ffill(axis=1)
        if len(paths):
            mean = paths.div(paths[0], axis=0).mean()
            axis.plot(mean.index, mean, **series.look())
    for series in DIRECT:
        level = (shelf.instances(PROBLEM, series)["rmse"] / start).mean()
        if np.isfinite(level):
            axis.axhline(level, **series.look())
    log_scale(axis, "y")
    axis.set_ylabel(r"mean $\mathrm{RMSE}_t\,/\,\mathrm{RMSE}_0$")
    step_axis(axis)


def _step_success(axis: Axes, shelf: Shelf, shown: list[Series]) -> None:
    for place, series in enumerate(shown):
        rate = _success(shelf, series)
        ends = np.abs([[rate.value - rate.low], [rate.high - rate.value]])
        look = {**series.look(marker=True), "label": None, "linestyle": ""}
        axis.errorbar(place, rate.value, yerr=ends, capsize=2, elinewidth=0.8, **look)
    _levels(axis, shelf, DIRECT)
    axis.set_xticks(range(len(shown)), [f"{SIZES[s.method]:g}" for s in shown])
    axis.set_xlim(-0.5, len(shown) - 0.5)
    axis.set_xlabel("first step size a")
    axis.grid(False, axis="x")
    _rates(axis)
