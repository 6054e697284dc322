"""Figure 3 of the paper: success of every method on every problem, in the order of RJCP."""

from __future__ import annotations

import math

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deceptron.report.figures.family import DIPG, Family
from deceptron.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    caption,
    duration,
    fewest,
    models_used,
    trial_count,
)
from deceptron.report.figures.style import MISSING, PAGE, RATES, Series, short
from deceptron.report.words import rmse_rule


def reliability(family: Family) -> Drawing:
    """Methods against problems, mean success on the right, RJCP below."""
    problems = sorted(
        family.problems(DIPG), key=lambda p: _or_infinity(family.trials(p, DIPG).average("rjcp"))
    )
    if not problems:
        raise NothingToDraw(f"no records of d-ipg with the model {family.name}")
    shown = [s for s in family.series if any(p in problems for p in family.problems(s))]
    rates = np.array([[family.trials(p, s).rate_value() for p in problems] for s in shown])
    height = 0.27 * len(shown)
    figure = Figure(figsize=(PAGE, height + 1.1), layout="constrained")
    axes = figure.subplots(
        2, 2, width_ratios=[len(problems), 1.3], height_ratios=[height, 0.34], squeeze=False
    )
    matrix, margin, strip, corner = axes.flat
    _matrix(matrix, family, problems, shown, rates)
    _margin(margin, shown, rates)
    _strip(strip, [family.trials(p, DIPG).average("rjcp") for p in problems])
    corner.set_axis_off()
    return Drawing(
        figure,
        caption(
            "Share of instances that succeed and, below it, the time of an instance solved alone",
            "(median of a few). Problems from small to large mean RJCP at the answers of d-ipg,",
            "which the strip shows; on the right the mean over problems, * where some are lacking.",
            rmse_rule(family.query),
            f"d-ipg: {trial_count(family, problems, DIPG)}; {fewest(family, problems, shown)}.",
            models_used(family),
        ),
    )


def _matrix(
    axis: Axes, family: Family, problems: list[str], shown: list[Series], rates: np.ndarray
) -> None:
    colors = colormaps[RATES].with_extremes(bad=MISSING)
    axis.imshow(np.ma.masked_invalid(rates), cmap=colors, vmin=0, vmax=1, aspect="auto")
    for (row, column), rate in np.ndenumerate(rates):
        words = "–"
        if np.isfinite(rate):
            seconds = family.trials(problems[column], shown[row]).latency
            words = f"{100 * rate:.0f}%\n{duration(seconds)}"
        color = "white" if np.isfinite(rate) and rate < 0.55 else "black"
        axis.text(column, row, words, ha="center", va="center", color=color, fontsize=6)
    axis.set_xticks(range(len(problems)), [short(p) for p in problems])
    axis.set_yticks(range(len(shown)), [s.label for s in shown])
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    _separate(axis, *rates.shape)


def _margin(axis: Axes, shown: list[Series], rates: np.ndarray) -> None:
    for row, series in enumerate(shown):
        known = rates[row][np.isfinite(rates[row])]
        mean = float(known.mean())
        axis.barh(row, mean, height=0.7, color=series.color, alpha=1.0 if series.filled else 0.45)
        star = "*" if len(known) < rates.shape[1] else ""
        axis.text(mean + 0.04, row, f"{100 * mean:.0f}%{star}", va="center", fontsize=6)
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.set_xlim(0, 1.55)
    axis.set_xticks([0, 0.5, 1], ["0", "50", "100%"])
    axis.set_yticks([])
    axis.grid(False, axis="y")
    axis.set_title("mean", loc="center")


def _strip(axis: Axes, values: list[float]) -> None:
    shades = np.log10([v if v > 0 else math.nan for v in values])
    colors = colormaps["Greys"].with_extremes(bad="white")
    span = np.nanmax(shades) - np.nanmin(shades) if np.isfinite(shades).any() else 0.0
    low = np.nanmin(shades) if np.isfinite(shades).any() else 0.0
    # From white to mid grey, so that black digits stay readable.
    axis.imshow(
        np.ma.masked_invalid(shades[None, :]),
        cmap=colors,
        vmin=low,
        vmax=low + 2 * max(span, 0.1),
        aspect="auto",
    )
    for column, value in enumerate(values):
        words = f"{value:.3g}" if math.isfinite(value) else "–"
        axis.text(column, 0, words, ha="center", va="center", fontsize=6)
    axis.set_xticks([])
    axis.set_yticks([0], ["RJCP"])
    axis.tick_params(length=0)
    _separate(axis, 1, len(values))


def _separate(axis: Axes, rows: int, columns: int) -> None:
    axis.grid(False)
    axis.spines[:].set_visible(False)
    for edge in range(1, columns):
        axis.axvline(edge - 0.5, color="white", linewidth=1.5)
    for edge in range(1, rows):
        axis.axhline(edge - 0.5, color="white", linewidth=1.5)


def _or_infinity(value: float) -> float:
    return value if math.isfinite(value) else math.inf
