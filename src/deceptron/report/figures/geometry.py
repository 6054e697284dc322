"""Figures 5 and 6 of the paper: which way D-IPG steps, and what RJCP says about the outcome."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from deceptron.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    caption,
    log_scale,
    models_used,
    say,
    step_axis,
    trial_count,
)
from deceptron.report.figures.shelf import Shelf
from deceptron.report.figures.style import COLUMN, DIPG, PAGE, PLAIN, PROBLEMS, RATES, Series
from deceptron.report.published import published
from deceptron.report.tables.claims import BUNDLE, BUNDLE_STEP
from deceptron.report.tables.rjcp import between_models
from deceptron.report.tables.view import View
from deceptron.report.words import RMSE_RULE
from deceptron.study.statistics import (
    Correlation,
    bundle_width,
    mean_interval,
    spearman,
    succeeded,
)


def cosine_spectrum(shelf: Shelf) -> Drawing:
    """Cosine of the step with -grad per problem, coloured by success."""
    found = {}
    for problem in shelf.problems(DIPG):
        cosines = _cosines(shelf, problem, DIPG)
        if cosines.notna().any():
            found[problem] = cosines
    if not found:
        raise NothingToDraw(f"no cosines of d-ipg recorded with the model {shelf.family}")
    order = sorted(found, key=lambda problem: found[problem].mean())
    figure = Figure(figsize=(COLUMN, 0.27 * len(order) + 1.25), layout="constrained")
    axis = figure.subplots()
    colors = colormaps[RATES]
    for row, problem in enumerate(order):
        rate = succeeded(shelf.instances(problem, DIPG), "rmse").mean()
        interval = mean_interval(found[problem])
        error = np.abs([[interval.value - interval.low], [interval.high - interval.value]])
        axis.barh(row, interval.value, color=colors(rate), edgecolor="0.3", linewidth=0.5)
        axis.errorbar(interval.value, row, xerr=error, color="0.3", linewidth=0.8, capsize=1.5)
        plain = _cosines(shelf, problem, PLAIN).mean()
        axis.plot(plain, row, linestyle="", color=PLAIN.color, marker="o", mfc="white")
        paper = published("Table 4", "cosine", problem=problem, method="d-ipg").value
        axis.plot(paper, row, linestyle="", color="black", marker="|", markersize=9)
    axis.axvline(0, color="0.3", linewidth=0.6)
    axis.set_yticks(range(len(order)), order)
    axis.grid(False, axis="y")
    axis.set_xlim(min(0.0, axis.get_xlim()[0]), 1.03)
    axis.set_xlabel(r"mean cosine of the step with $-\nabla\Phi$")
    figure.colorbar(ScalarMappable(cmap=colors), ax=axis, label="success rate", pad=0.02)
    handles = [
        Line2D([], [], linestyle="", color=PLAIN.color, marker="o", mfc="white"),
        Line2D([], [], linestyle="", color="black", marker="|", markersize=9),
    ]
    names = ["without JCP", "paper (with JCP)"]
    figure.legend(handles, names, loc="outside lower center", ncols=2)
    return Drawing(
        figure,
        caption(
            "Bars: cosine between the accepted steps of d-ipg and the negative gradient, mean over",
            "the steps of a trial and then over trials, with its 95% bootstrap interval; colour is",
            "the success rate. Problems for which the paper gives no cosine have no black mark.",
            RMSE_RULE,
            f"d-ipg: {trial_count(shelf, order, DIPG)}.",
            models_used(shelf),
        ),
    )


def reproducibility(shelf: Shelf) -> Drawing:
    """RJCP against the spread of the error, and the width of the bundle of trajectories."""
    if not shelf.problems(DIPG):
        raise NothingToDraw(f"no records of d-ipg with the model {shelf.family}")
    points = between_models(View(shelf.index), shelf.models)
    points["jcp"] = points["model"] == shelf.family
    widths = {series.label: _width(shelf, series) for series in (DIPG, PLAIN)}
    figure = Figure(figsize=(PAGE, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    correlation = spearman(points["rjcp"], points["variation"])
    _association(left, points[(points["rjcp"] > 0) & (points["variation"] > 0)], correlation)
    note = _bundle(right, widths)
    named = [problem for problem in PROBLEMS if problem in set(points["problem"])]
    looks = [PROBLEMS[problem] for problem in named]
    handles = [Line2D([], [], linestyle="", color=color, marker=mark) for color, mark in looks]
    handles += [
        Line2D([], [], color=s.color, linestyle=s.line, marker="o", mfc=s.look()["markerfacecolor"])
        for s in (DIPG, PLAIN)
    ]
    names = [*named, "with JCP (filled)", "without JCP (open)"]
    figure.legend(handles, names, loc="outside lower center", ncols=5)
    return Drawing(
        figure,
        caption(
            "(a) Mean RJCP at the answers of d-ipg against the coefficient of variation of their",
            f"RMSE over trials, seed {shelf.index.seed}, as in the table rjcp; arrows lead from",
            f"without to with JCP. The paper has Spearman's rho {_paper('spearman')}, N 14.",
            f"(b) {BUNDLE}: standard deviation over trials of log(r_t / r_1), where at least 85%",
            "of the trials of both conditions are still running, mean over seeds.",
            note,
            f"{trial_count(shelf, shelf.problems(DIPG), DIPG)}.",
            models_used(shelf),
        ),
    )


def _cosines(shelf: Shelf, problem: str, series: Series) -> pd.Series:
    """Mean over the steps of each trial."""
    return shelf.paths(problem, series, "cosine").mean(axis=1)


def _association(axis: Axes, table: pd.DataFrame, correlation: Correlation) -> None:
    words = f"{correlation.count} points, too few to rank"
    if math.isfinite(correlation.rho):
        words = (
            rf"Spearman's $\rho = {correlation.rho:.2f}$, p = {correlation.p:.2g}, "
            f"N = {correlation.count}"
        )
    axis.set_title(f"(a) {words}")
    if table.empty:
        say(axis, "no pair has both an RJCP and two errors")
        return
    for problem, pair in table.groupby("problem"):
        color, marker = PROBLEMS[str(problem)]
        for jcp, face in ((False, "white"), (True, color)):
            half = pair[pair["jcp"] == jcp]
            (points,) = axis.plot(half["rjcp"], half["variation"], marker, color=color, zorder=3)
            points.set(markerfacecolor=face, markersize=5)
        if len(pair) == 2:
            start, end = (
                pair[pair["jcp"] == jcp][["rjcp", "variation"]].iloc[0] for jcp in (False, True)
            )
            axis.annotate(
                "",
                xy=tuple(end),
                xytext=tuple(start),
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
    axis.set_xlabel("mean RJCP at the answers")
    axis.set_ylabel("coefficient of variation of RMSE")


def _width(shelf: Shelf, series: Series) -> pd.Series:
    """Bundle width by iteration from 1, mean over seeds."""
    paths = shelf.paths(BUNDLE, series, "residual")
    paths = paths.drop(columns=0, errors="ignore")
    if paths.empty:
        return pd.Series(dtype=float)
    widths = [bundle_width(part) for _, part in paths.groupby("seed")]
    return pd.Series(np.mean(widths, axis=0), index=paths.columns)


def _bundle(axis: Axes, widths: dict[str, pd.Series]) -> str | None:
    """Draw the widths; the sentence that compares them, if both are there."""
    axis.set_title(f"(b) bundle width, {BUNDLE}")
    both = pd.DataFrame(widths).dropna()
    if len(both) < 2:
        say(axis, f"fewer than two iterations that 85% of the trials reach on {BUNDLE}")
        return None
    for series in (DIPG, PLAIN):
        axis.plot(both.index, both[series.label], **series.look(marker=True))
    axis.set_ylim(bottom=0)
    step_axis(axis)
    axis.set_ylabel(r"std over trials of $\log(r_t/r_1)$")
    at = min(BUNDLE_STEP, int(both.index[-1]))
    ratio = float((both[PLAIN.label] / both[DIPG.label]).loc[at])
    if not math.isfinite(ratio):
        return None
    word = "wider" if ratio >= 1 else "narrower"
    return (
        f"At iteration {at} the bundle without JCP is {abs(ratio - 1):.0%} {word} "
        f"(paper: {_paper('bundle ratio', BUNDLE) - 1:.0%} wider at iteration {BUNDLE_STEP})."
    )


def _paper(quantity: str, problem: str = "all problems") -> float:
    return published("Figure 6", quantity, problem=problem, method="d-ipg", model="").value
