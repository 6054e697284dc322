"""Figures 5 and 6 of the paper: which way D-IPG steps, and what RJCP says about the outcome."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

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
from deceptron.report.published import paper_value
from deceptron.report.tables.claims import BUNDLE, BUNDLE_STEP
from deceptron.report.tables.rjcp import between_models
from deceptron.study.statistics import Correlation, bundle_width, mean_interval, spearman


def cosine_spectrum(family: Family) -> Drawing:
    """Cosine of the step with -grad per problem: trials, and means with and without JCP."""
    found = {}
    for problem in family.problems(DIPG):
        cosines = _cosines(family, problem, DIPG)
        if cosines.notna().any():
            found[problem] = cosines
    if not found:
        raise NothingToDraw(f"no cosines of d-ipg recorded with the model {family.name}")
    order = sorted(found, key=lambda problem: found[problem].mean())
    figure = Figure(figsize=(1.5 * COLUMN, 0.32 * len(order) + 0.95), layout="constrained")
    axis = figure.subplots()
    for row, problem in enumerate(order):
        own, plain = found[problem], _cosines(family, problem, PLAIN)
        jitter = np.random.default_rng(0).uniform(-0.16, 0.16, len(own))
        axis.scatter(own, row + jitter, s=3, color=DIPG.color, alpha=0.25, linewidths=0)
        for values, series, place in ((own, DIPG, row - 0.27), (plain, PLAIN, row + 0.27)):
            mean = mean_interval(values)
            look = {**series.look(marker=True), "linestyle": "", "label": None, "markersize": 4}
            axis.plot([mean.low, mean.high], [place, place], color=series.color, linewidth=0.8)
            axis.plot(mean.value, place, **look)
        paper = paper_value("Table 4", "cosine", problem=problem, method="d-ipg").value
        axis.plot(paper, row, linestyle="", color="black", marker="|", markersize=12)
    axis.axvline(0, color="0.3", linewidth=0.6)
    axis.set_yticks(range(len(order)), order)
    axis.set_ylim(-0.6, len(order) - 0.4)
    axis.grid(False, axis="y")
    axis.set_xlabel(r"cosine of the step with $-\nabla\Phi$")
    means = [s for s in (DIPG, PLAIN) if any(len(family.trials(p, s)) for p in order)]
    handles = [
        *(Line2D([], [], **{**series.look(marker=True), "linestyle": ""}) for series in means),
        Line2D([], [], linestyle="", color="black", marker="|", markersize=9),
    ]
    names = [*(f"{series.label}, mean" for series in means), "paper, with JCP"]
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return Drawing(
        figure,
        caption(
            "Cosine between the accepted steps of d-ipg and the negative gradient: points are the",
            "means of trials, markers the means over trials with their 95% bootstrap intervals.",
            "Problems for which the paper gives no cosine have no black mark.",
            f"d-ipg: {trial_count(family, order, DIPG)}.",
            models_used(family),
        ),
    )


def reproducibility(family: Family) -> Drawing:
    """RJCP against the spread of the error, and the width of the bundle of trajectories.

    A panel that the records cannot fill is left out, and the caption says why.
    """
    points = between_models(family.query.fresh(), family.models)
    points["jcp"] = points["model"] == family.name
    drawn = points[(points["rjcp"] > 0) & (points["variation"] > 0)]
    widths = pd.DataFrame({s.label: _width(family, s) for s in (DIPG, PLAIN)}).dropna()
    panels: list[Callable[[Axes], None]] = []
    notes: list[str | None] = []
    if len(drawn) >= 2:
        correlation = spearman(points["rjcp"], points["variation"])
        panels.append(lambda axis: _association(axis, family, drawn, correlation))
        notes += [
            "(a) Mean RJCP at the answers of d-ipg against the coefficient of variation of their",
            f"RMSE over trials, seed {family.query.seed}, as in the table rjcp; arrows lead from",
            f"without to with JCP. The paper has Spearman's rho {_paper('spearman')}, N 14.",
        ]
    else:
        notes.append("(a) is left out: no two pairs have both an RJCP and two errors.")
    if len(widths) >= 2:
        panels.append(lambda axis: _bundle(axis, widths))
        notes += [
            f"(b) {BUNDLE}: standard deviation over trials of log(r_t / r_1), where at least 85%",
            "of the trials of both conditions are still running, mean over seeds.",
            _compared(widths),
        ]
    else:
        notes.append(
            f"(b) is left out: fewer than two iterations that 85% of the trials reach on {BUNDLE}."
        )
    if not panels:
        raise NothingToDraw(f"too few records of d-ipg with the model {family.name}")
    figure = Figure(figsize=(PAGE if len(panels) > 1 else COLUMN, 2.9), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for draw, axis in zip(panels, axes, strict=True):
        draw(axis)
    legend_below(figure, axes, columns=5 if len(panels) > 1 else 2)
    return Drawing(
        figure,
        caption(
            *notes,
            f"{trial_count(family, family.problems(DIPG), DIPG)}.",
            models_used(family),
        ),
    )


def _cosines(family: Family, problem: str, series: Series) -> pd.Series:
    """Mean over the steps of each trial."""
    return family.trials(problem, series).paths("cosine").mean(axis=1)


def _association(axis: Axes, family: Family, table: pd.DataFrame, correlation: Correlation) -> None:
    words = f"{correlation.count} points, too few to rank"
    if math.isfinite(correlation.rho):
        words = (
            rf"Spearman's $\rho = {correlation.rho:.2f}$, p = {correlation.p:.2g}, "
            f"N = {correlation.count}"
        )
    axis.set_title(f"(a) {words}")
    looks = family.looks()
    for problem, pair in table.groupby("problem", sort=False):
        color, marker = looks[str(problem)]
        ends = {}
        for jcp, face in ((False, "white"), (True, color)):
            half = pair[pair["jcp"] == jcp]
            (drawn,) = axis.plot(half["rjcp"], half["variation"], marker, color=color, zorder=3)
            drawn.set(markerfacecolor=face, markersize=5, label=problem if jcp else None)
            ends[jcp] = half[["rjcp", "variation"]].to_numpy()
        if all(map(len, ends.values())):
            axis.annotate(
                "",
                xy=tuple(ends[True][0]),
                xytext=tuple(ends[False][0]),
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": color,
                    "linewidth": 0.8,
                    "shrinkA": 4,
                    "shrinkB": 4,
                    "mutation_scale": 6,
                },
            )
    axis.margins(0.08)
    log_scale(axis, "x")
    log_scale(axis, "y")
    axis.set_xlabel("mean RJCP at the answers (open: without JCP)")
    axis.set_ylabel("coefficient of variation of RMSE")


def _width(family: Family, series: Series) -> pd.Series:
    """Bundle width by iteration from 1, mean over seeds."""
    paths = family.trials(BUNDLE, series).paths("residual")
    paths = paths.drop(columns=0, errors="ignore")
    if paths.empty:
        return pd.Series(dtype=float)
    widths = [bundle_width(part) for _, part in paths.groupby(level=0)]
    return pd.Series(np.mean(widths, axis=0), index=paths.columns)


def _bundle(axis: Axes, widths: pd.DataFrame) -> None:
    axis.set_title(f"(b) bundle width, {BUNDLE}")
    for series in (DIPG, PLAIN):
        axis.plot(widths.index, widths[series.label], **series.look(marker=True))
    axis.set_ylim(bottom=0)
    step_axis(axis)
    axis.set_ylabel(r"std over trials of $\log(r_t/r_1)$")


def _compared(widths: pd.DataFrame) -> str | None:
    at = min(BUNDLE_STEP, int(widths.index[-1]))
    ratio = float((widths[PLAIN.label] / widths[DIPG.label]).loc[at])
    if not math.isfinite(ratio):
        return None
    word = "wider" if ratio >= 1 else "narrower"
    return (
        f"At iteration {at} the bundle without JCP is {abs(ratio - 1):.0%} {word} "
        f"(paper: {_paper('bundle ratio', BUNDLE) - 1:.0%} wider at iteration {BUNDLE_STEP})."
    )


def _paper(quantity: str, problem: str = "all problems") -> float:
    return paper_value("Figure 6", quantity, problem=problem, method="d-ipg", model="").value
