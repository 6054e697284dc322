"""Figure 6 of the paper: RJCP beside the spread of errors, and the width of trajectories."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deceptron_paper.report.figures.family import COLUMN, DIPG, PAGE, PLAIN, Family
from deceptron_paper.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    legend_below,
    log_scale,
    step_axis,
    trial_count,
)
from deceptron_paper.report.published import paper_value
from deceptron_paper.report.tables.claims import BUNDLE, BUNDLE_STEP
from deceptron_paper.report.tables.rjcp import between_models
from deceptron_paper.statistics import spearman

ARROW = {"arrowstyle": "-|>", "linewidth": 0.8, "shrinkA": 4, "shrinkB": 4, "mutation_scale": 6}


def reproducibility(family: Family) -> Drawing:
    """RJCP against the variation of errors, both forms of a pair; bundle width by iteration."""
    points = between_models(family.query.fresh(), family.models)
    drawn = points[(points["rjcp"] > 0) & (points["variation"] > 0)]
    found = {s.label: family.trials(BUNDLE, s).bundle_widths() for s in (DIPG, PLAIN)}
    widths = pd.DataFrame(found).dropna()
    if len(drawn) < 3:
        raise NothingToDraw(f"too few records of d-ipg with the model {family.name}")
    bundled = len(widths) >= 2
    figure = Figure(figsize=(PAGE if bundled else COLUMN, 2.9), layout="constrained")
    axes = figure.subplots(1, 1 + bundled, squeeze=False)[0]
    ranks = spearman(points["rjcp"], points["variation"])
    words = rf"Spearman's $\rho = {ranks.rho:.2f}$, p = {ranks.p:.2g}, N = {ranks.count}"
    axes[0].set_title(f"(a) {words}")
    _association(axes[0], family, drawn)
    if bundled:
        axes[-1].set_title(f"(b) bundle width, {BUNDLE}")
        for series in (DIPG, PLAIN):
            axes[-1].plot(widths.index, widths[series.label], **series.look(marker=True))
        axes[-1].set_ylim(bottom=0)
        step_axis(axes[-1])
        axes[-1].set_ylabel(r"std over trials of $\log(r_t/r_1)$")
    legend_below(figure, axes, columns=5 if bundled else 2)
    at = min(BUNDLE_STEP, int(widths.index[-1])) if bundled else 0
    wider = float(widths[PLAIN.label][at] / widths[DIPG.label][at]) if bundled else math.nan
    paper = {
        key: paper_value("Figure 6", key, problem=where, method="d-ipg", model="").value
        for key, where in (("spearman", "all problems"), ("bundle ratio", BUNDLE))
    }
    facts = {"paper": paper, "bundle": BUNDLE, "at": at, "wider": wider}
    trials = trial_count(family, family.problems(DIPG), DIPG)
    return Drawing(figure, {**facts, "paper_at": BUNDLE_STEP, "trials": trials})


def _association(axis: Axes, family: Family, points: pd.DataFrame) -> None:
    looks = family.problem_looks()
    for problem, pair in points.groupby("problem", sort=False):
        color, marker = looks[str(problem)]
        ends = {}
        for model, face in zip(family.models, (color, "white"), strict=True):
            for _, (x, y) in pair.loc[pair["model"] == model, ["rjcp", "variation"]].iterrows():
                (mark,) = axis.plot(x, y, marker, color=color, markerfacecolor=face, zorder=3)
                mark.set(markersize=5, label=problem if face == color else None)
                ends[face] = (x, y)
        if len(ends) == 2:
            arrow = {**ARROW, "color": color}
            axis.annotate("", xy=ends[color], xytext=ends["white"], arrowprops=arrow)
    axis.margins(0.08)
    log_scale(axis, "x")
    log_scale(axis, "y")
    axis.set_xlabel("mean RJCP at the answers (open: without JCP)")
    axis.set_ylabel("coefficient of variation of RMSE")
