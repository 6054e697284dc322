"""Every method on every problem as a cell of colour: success (Figure 3), error off distribution."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deceptron_paper.report.figures.family import DIPG, PAGE, RATES, Family, Series, short
from deceptron_paper.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    coloured_cells,
    duration,
    named_rows,
    trial_count,
)
from deceptron_paper.statistics import Interval

NETWORK = "one-shot"
# Ratios of so many times, and their inverse, have the strongest colours.
STRONGEST = 6.0


def reliability(family: Family) -> Drawing:
    """Success of methods against problems, its mean on the right, RJCP below."""
    rjcp = {p: family.trials(p, DIPG).average("rjcp") for p in family.problems(DIPG)}
    problems = sorted(rjcp, key=lambda p: rjcp[p] if math.isfinite(rjcp[p]) else math.inf)
    if not problems:
        raise NothingToDraw(f"no records of d-ipg with the model {family.name}")
    shown = [s for s in family.series if any(p in problems for p in family.problems(s))]
    trials = [[family.trials(p, s) for p in problems] for s in shown]
    rates = np.array([[own.rate_value() for own in row] for row in trials])
    words = np.array(
        [
            [
                f"{100 * own.rate_value():.0f}%\n{duration(own.latency)}" if len(own) else "–"
                for own in row
            ]
            for row in trials
        ]
    )
    height = 0.27 * len(shown)
    figure = Figure(figsize=(PAGE, height + 1.1), layout="constrained")
    axes = figure.subplots(
        2, 2, width_ratios=[len(problems), 1.3], height_ratios=[height, 0.34], squeeze=False
    )
    matrix, margin, strip, corner = axes.flat
    coloured_cells(matrix, rates, words, colors=RATES, ends=(0, 1))
    matrix.set_xticks(range(len(problems)), [short(p) for p in problems])
    matrix.set_yticks(range(len(shown)), [s.label for s in shown])
    matrix.xaxis.tick_top()
    _margin(margin, shown, rates)
    _strip(strip, np.array([[rjcp[p] for p in problems]]))
    corner.set_axis_off()
    return Drawing(figure, {"trials": trial_count(family, problems, DIPG)})


def _margin(axis: Axes, shown: list[Series], rates: np.ndarray) -> None:
    for row, series in enumerate(shown):
        known = rates[row][np.isfinite(rates[row])]
        mean = float(known.mean())
        axis.barh(row, mean, height=0.7, color=series.color, alpha=1.0 if series.filled else 0.45)
        star = "*" if len(known) < rates.shape[1] else ""
        axis.text(mean + 0.04, row, f"{100 * mean:.0f}%{star}", va="center", fontsize=6)
    named_rows(axis, [""] * len(shown))
    axis.set_xlim(0, 1.55)
    axis.set_xticks([0, 0.5, 1], ["0", "50", "100%"])
    axis.set_title("mean", loc="center")


def _strip(axis: Axes, values: np.ndarray) -> None:
    shades = np.log10(np.where(values > 0, values, np.nan))
    known = shades[np.isfinite(shades)]
    low = known.min(initial=math.inf) if known.size else 0.0
    words = np.array([[f"{v:.3g}" if math.isfinite(v) else "–" for v in values[0]]])
    # From white to mid grey only.
    reach = 2 * max(np.ptp(known) if known.size else 0.0, 0.1)
    coloured_cells(axis, shades, words, colors="Greys", ends=(low, low + reach))
    axis.set_yticks([0], ["RJCP"])


def shift(family: Family) -> Drawing:
    """Mean RMSE of each method over that of one-shot on the same instances, per set."""
    network = next(iter(family.pick(NETWORK)), None)
    if network is None:
        raise NothingToDraw(f"no records of one-shot with the model {family.name}")
    methods: dict[str, list[Series]] = {}
    for on in family.query.sets:
        beside = [s for s in family.series if s is not network and family.problems(s, on)]
        if beside and family.problems(network, on):
            methods[on] = beside
    if not methods:
        raise NothingToDraw(f"no method beside one-shot with the model {family.name}")
    problems = [
        p for p in family.query.problems if any(p in family.problems(network, on) for on in methods)
    ]
    heights = [0.17 * len(shown) + 0.2 for shown in methods.values()]
    width = min(PAGE, 1.9 + 0.62 * (len(problems) + 1))
    figure = Figure(figsize=(width, sum(heights) + 0.55), layout="constrained")
    axes = figure.subplots(len(methods), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axis, (on, shown) in zip(axes, methods.items(), strict=True):
        _ratios(axis, family, on, shown, problems)
    axes[0].set_xticks(range(len(problems) + 1), [*map(short, problems), "geometric\nmean"])
    axes[0].xaxis.tick_top()
    every = list(dict.fromkeys(s for shown in methods.values() for s in shown))
    trials = trial_count(family, family.problems(network), network)
    return Drawing(figure, {"shown": [s.method for s in every], "trials": trials})


def ratio_to_one_shot(family: Family, problem: str, series: Series, on: str) -> Interval | None:
    """Ratio of mean errors on shared trials; None where there are none."""
    (network,) = family.pick(NETWORK)
    return family.trials(problem, series, on).ratio(family.trials(problem, network, on))


def _ratios(
    axis: Axes, family: Family, on: str, methods: list[Series], problems: list[str]
) -> None:
    found = [[ratio_to_one_shot(family, p, s, on) for p in problems] for s in methods]
    values = np.array([[np.nan if r is None else r.value for r in row] for row in found])
    logs = np.log(np.where(values > 0, values, np.nan))
    known = np.isfinite(logs)
    means = np.where(known, logs, 0.0).sum(1) / np.maximum(known.sum(1), 1)
    means[~known.any(1)] = np.nan
    logs = np.column_stack([logs, means])
    words = np.vectorize(_ratio_words)(np.exp(logs))
    clear = [[r is not None and (r.low > 1 or r.high < 1) for r in row] + [False] for row in found]
    reach = math.log(STRONGEST)
    coloured_cells(axis, logs, words, colors="RdBu_r", ends=(-reach, reach), bold=np.array(clear))
    axis.set_yticks(range(len(methods)), [s.label for s in methods])
    axis.set_ylabel(on)
    axis.axvline(len(problems) - 0.5, color="white", linewidth=3)


def _ratio_words(ratio: float) -> str:
    if not math.isfinite(ratio):
        return "–"
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
