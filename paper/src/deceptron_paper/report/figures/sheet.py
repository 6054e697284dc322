"""What every figure shares: axes in plain numbers, cells of colour, rows by name, sample sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from deceptron_paper.report.figures.family import MISSING, Family, Series
from deceptron_paper.statistics import Interval

# Where to put ticks in a decade, for axes of up to so many decades.
LOG_TICKS = (
    (0.8, (1, 1.5, 2, 3, 5, 7)),
    (1.6, (1, 2, 5)),
    (2.4, (1, 3)),
    (math.inf, (1,)),
)


class NothingToDraw(Exception):
    """The sentence that stands where the figure would."""


@dataclass(frozen=True)
class Drawing:
    """A picture, and what its caption in ``captions.jinja`` needs to know."""

    figure: Figure
    facts: dict[str, Any] = field(default_factory=dict)


def legend_below(figure: FigureBase, axes: Iterable[Axes], *, columns: int) -> None:
    """One legend for all axes, outside of the data; each label once."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns)


def log_scale(axes: Axes, name: Literal["x", "y"]) -> None:
    """Logarithmic, with ticks in plain numbers and room for at least one of them."""
    axes.set(**{f"{name}scale": "log"})
    low, high = axes.get_xlim() if name == "x" else axes.get_ylim()
    if high < 3 * low:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(3), middle * math.sqrt(3)
        axes.set(**{f"{name}lim": (low, high)})
    decades = math.log10(high / low)
    steps = next(steps for reach, steps in LOG_TICKS if decades < reach)
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=steps, numticks=7 if decades > 2.4 else 12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def step_axis(axis: Axes) -> None:
    """Accepted steps along x."""
    low, high = axis.get_xlim()
    if high - low < 1:  # a single point
        axis.set_xlim(low - 0.5, high + 0.5)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    axis.set_xlabel("accepted steps t")


def level_lines(axis: Axes, shown: Iterable[Series], level: Callable[[Series], float]) -> None:
    """A line across for each that has a level."""
    for series in shown:
        if np.isfinite(height := level(series)):
            axis.axhline(height, **series.look())


def named_rows(axis: Axes, names: Sequence[str]) -> None:
    """A row for each name, from the top."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.grid(False, axis="y")


def mean_mark(axis: Axes, mean: Interval, row: float, look: dict[str, Any]) -> None:
    """A mean across a row, with its interval."""
    axis.plot([mean.low, mean.high], [row, row], color=look["color"], linewidth=0.8)
    axis.plot(mean.value, row, **{**look, "linestyle": ""})


def scattered(axis: Axes, values: Iterable[float], row: float, height: float, **look: Any) -> None:
    """Points along a row, apart from each other."""
    points = np.asarray(list(values))
    places = row + np.random.default_rng(0).uniform(-height, height, len(points))
    axis.scatter(points, places, **{"linewidths": 0, "rasterized": True, **look})


def coloured_cells(
    axis: Axes,
    shades: np.ndarray,
    words: np.ndarray,
    *,
    colors: str,
    ends: tuple[float, float],
    bold: np.ndarray | None = None,
) -> None:
    """A cell for each number: ``shades`` choose its colour, ``words`` are written on it."""
    paint, scale = colormaps[colors].with_extremes(bad=MISSING), Normalize(*ends)
    masked = np.ma.masked_invalid(shades)
    axis.imshow(masked, cmap=paint, norm=scale, aspect="auto")
    luminance = paint(scale(masked))[..., :3] @ np.array([0.299, 0.587, 0.114])
    for (row, column), text in np.ndenumerate(words):
        axis.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            fontsize=6,
            color="white" if luminance[row, column] < 0.5 else "black",
            fontweight="bold" if bold is not None and bold[row, column] else "normal",
        )
    rows, columns = shades.shape
    for edge in range(1, columns):
        axis.axvline(edge - 0.5, color="white", linewidth=1.5)
    for edge in range(1, rows):
        axis.axhline(edge - 0.5, color="white", linewidth=1.5)
    axis.set_xticks([])
    axis.tick_params(length=0)
    axis.grid(False)
    axis.spines[:].set_visible(False)


def plain(value: float) -> str:
    """From 0.001 to below 10000 in digits, beyond as a power of ten."""
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:g}"
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    digit = value / 10**exponent
    head = "" if abs(digit - 1) < 1e-6 else rf"{digit:.2g}\times"
    return rf"${head}10^{{{exponent}}}$"


def duration(seconds: float) -> str:
    """A time in two digits and its unit."""
    if not math.isfinite(seconds):
        return "–"
    units = [("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)]
    unit, scale = next((one for one in units if seconds >= 0.995 * one[1]), units[-1])
    value = seconds / scale
    return f"{value:.0f} {unit}" if value >= 9.95 else f"{value:.1f} {unit}"


def trial_count(family: Family, problems: Sequence[str], series: Series) -> str:
    """How much stands behind a series, such as ``80 instances per problem, seed 7``."""
    if not problems:
        return "no records"
    counts = {p: len(family.trials(p, series)) for p in problems}
    words = "instances: " + ", ".join(f"{name} {count}" for name, count in counts.items())
    if len(set(counts.values())) == 1:
        words = f"{counts[problems[0]]} instances{' per problem' if len(counts) > 1 else ''}"
    seeds = sorted({seed for p in problems for seed in family.trials(p, series).seeds})
    return f"{words}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def models_used(family: Family) -> str:
    """Which presets trained the pairs with and without JCP, in a sentence."""
    models = family.query.records.models
    words = []
    for name in family.models:
        rows = models[models["model"] == name]
        presets = {str(preset): set(part["problem"]) for preset, part in rows.groupby("preset")}
        if len(presets) == 1:
            words.append(f"{name} (preset {next(iter(presets))})")
        elif presets:
            each = (f"{preset} on {', '.join(sorted(on))}" for preset, on in presets.items())
            words.append(f"{name} (presets {'; '.join(each)})")
    sentence = f"Models: {', '.join(words) or family.name}."
    without = family.models[1]
    mismatched = family.query.mismatched
    left_out = sorted({problem for problem, model, _ in mismatched if model == without})
    if left_out:
        sentence += f" Left out, trained by another preset: {without} on {', '.join(left_out)}."
    return sentence
