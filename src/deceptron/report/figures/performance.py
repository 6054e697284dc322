"""Figures 1 and 4 of the paper: how fast the error falls, and who solves how much at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deceptron.report.figures.family import DIPG, Family
from deceptron.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    caption,
    legend_below,
    log_scale,
    models_used,
    trial_count,
)
from deceptron.report.figures.style import PAGE, RATES, Series
from deceptron.report.published import MAIN_PROBLEMS
from deceptron.report.trials import COSTS
from deceptron.report.words import RESIDUAL_RULE
from deceptron.study.statistics import data_profile, performance_profile

# The other forms of D-IPG would repeat it: stopping does not change when a residual is first
# reached; methods on the true simulator have another residual.
TRAJECTORIES = ("d-ipg", "d-ipg without JCP", "gd", "gn", "lm", "l-bfgs", "guarded")
REPEATS = ("d-ipg-free", "d-ipg-tuned")
WORDS = {"seconds": "time [s]", "step": "iterations", "evaluations": "evaluations of f, g, Jv, J'v"}
TERMS = (
    "A row per method: the colour is the share of instances that it has solved, the number the "
    "share at the right end. Time is an instance's share of its batch. Direct methods take part "
    "and count as one iteration, so a ratio of 1 is mostly theirs."
)


@dataclass(frozen=True)
class Pool:
    """Cost to tolerance: a trial a row, a series a column; only trials that all were run on."""

    costs: dict[str, pd.DataFrame]
    series: tuple[Series, ...]
    note: str

    def columns(self, cost: str) -> dict[str, np.ndarray]:
        """An array per series."""
        return {s.label: self.costs[cost][s.label].to_numpy() for s in self.series}

    def is_solved(self) -> bool:
        """Whether anybody solved anything."""
        return bool(np.isfinite(self.costs["seconds"].to_numpy()).any())


def representative(family: Family) -> Drawing:
    """Trajectories of the problems of the main text, above the profiles of all that they share."""
    problems = [
        p for p in family.problems(DIPG) if family.trials(p, DIPG).paths("rmse").shape[1] > 1
    ]
    problems = [p for p in MAIN_PROBLEMS if p in problems] or problems[:3]
    if not problems:
        raise NothingToDraw(f"no steps of d-ipg with the model {family.name}")
    pool = pooled(family, problems)
    strips: list[str] = ["seconds", "step"] if pool.is_solved() else []
    rows = 1 + bool(strips)
    height = 2.3 + (0.16 * len(pool.series) + 0.7 if strips else 0)
    figure = Figure(figsize=(PAGE, height), layout="constrained")
    parts = figure.subfigures(rows, 1, height_ratios=[2.1, height - 2.1][:rows], squeeze=False)
    axes = parts[0][0].subplots(1, len(problems), squeeze=False)[0]
    for axis, problem in zip(axes, problems, strict=True):
        axis.set_title(problem)
        _trajectories(family, axis, problem)
    axes[0].set_ylabel(r"mean $\mathrm{RMSE}_t\,/\,\mathrm{RMSE}_1$")
    legend_below(parts[0][0], axes, columns=5)
    if strips:
        below = parts[1][0].subplots(1, len(strips), sharey=True)
        for axis, cost in zip(below, strips, strict=True):
            _performance(axis, pool, cost)
    return Drawing(
        figure,
        caption(
            "Top: RMSE after t accepted steps over that after the first, per trial, then averaged;",
            "a trial that has ended keeps its last value.",
            "Horizontal lines: direct methods over the RMSE of d-ipg after its first step.",
            "Bottom: Dolan-Moré profiles on time and iterations." if strips else None,
            RESIDUAL_RULE,
            TERMS if strips else "No instance that all methods were run on was solved.",
            f"d-ipg: {trial_count(family, problems, DIPG)}. {pool.note}",
            models_used(family),
        ),
    )


def profiles(family: Family) -> Drawing:
    """Profiles over all problems, with a budget in evaluations beside that in seconds."""
    problems = family.problems(DIPG)
    if not problems:
        raise NothingToDraw(f"no records of d-ipg with the model {family.name}")
    pool = pooled(family, problems)
    if not pool.is_solved():
        raise NothingToDraw("no instance that all methods were run on was solved")
    figure = Figure(figsize=(PAGE, 2 * (0.16 * len(pool.series) + 0.62)), layout="constrained")
    axes = figure.subplots(2, 2, sharey=True)
    for axis, letter, draw, cost in (
        (axes[0][0], "a", _performance, "seconds"),
        (axes[0][1], "b", _performance, "step"),
        (axes[1][0], "c", _budget, "seconds"),
        (axes[1][1], "d", _budget, "evaluations"),
    ):
        draw(axis, pool, cost)
        axis.set_title(f"({letter}) {axis.get_title(loc='left')}")
    lacking = [problem for problem in family.query.problems if problem not in problems]
    return Drawing(
        figure,
        caption(
            "Dolan-Moré profiles on (a) time and (b) iterations, data profiles on (c) time and",
            "(d) evaluations, pooled over all problems.",
            RESIDUAL_RULE,
            TERMS,
            pool.note,
            f"No records on {', '.join(lacking)}." if lacking else None,
            models_used(family),
        ),
    )


def pooled(family: Family, problems: Sequence[str]) -> Pool:
    """Costs of every series that was run on all ``problems``, on the trials they share."""
    profiled = [
        s
        for s in family.series
        if s.method not in REPEATS and family.query.methods[s.method].physics == "surrogate"
    ]
    series = tuple(s for s in profiled if set(problems) <= set(family.problems(s)))
    dropped = [s.label for s in profiled if s not in series and family.problems(s)]
    parts = {}
    for problem in problems:
        start = family.trials(problem, DIPG).rows["residual_start"]
        spent = {s.label: family.trials(problem, s).costs(start) for s in series}
        parts[problem] = pd.concat(spent, axis=1).dropna()
    whole = pd.concat(parts, names=["problem"])
    costs = {cost: whole[[(s.label, cost) for s in series]] for cost in COSTS}
    for table in costs.values():
        table.columns = [s.label for s in series]
    table = costs["seconds"]
    counts = table.groupby("problem", sort=False).size()
    same = counts.nunique() == 1 and len(counts) == len(problems)
    words = (
        f"{counts.iloc[0]} instances per problem"
        if same
        else "instances: " + ", ".join(f"{p} {counts.get(p, 0)}" for p in problems)
    )
    note = f"Profiles: the {len(table)} instances that all methods were run on ({words})."
    if dropped:
        note += f" Left out, not run on every problem: {', '.join(dropped)}."
    return Pool(costs, series, note)


def _trajectories(family: Family, axis: Axes, problem: str) -> None:
    first = family.trials(problem, DIPG).paths("rmse").ffill(axis=1)[1]
    longest = 1
    for series in family.direct:
        level = (family.trials(problem, series).rows["rmse"] / first).mean()
        if np.isfinite(level):
            axis.axhline(level, **series.look())
    for series in family.pick(*TRAJECTORIES):
        paths = family.trials(problem, series).paths("rmse").ffill(axis=1)
        if paths.shape[1] < 2:
            continue
        mean = paths.iloc[:, 1:].div(paths[1], axis=0).mean()
        axis.plot(mean.index, mean, **series.look())
        longest = max(longest, int(mean.index[-1]))
    axis.set_xlim(1, max(longest, 7))
    log_scale(axis, "x")
    log_scale(axis, "y")
    axis.set_xlabel("accepted steps t")


def _performance(axis: Axes, pool: Pool, cost: str) -> None:
    table = pool.costs[cost]
    worst = table.replace(np.inf, np.nan).div(table.min(axis=1), axis=0).max().max()
    axis.set_title(f"performance, {'time' if cost == 'seconds' else WORDS[cost]}")
    ratios = np.geomspace(1, np.clip(2 * worst, 10, 1e4), 120)
    axis.set_xlabel(r"ratio $\tau$ to the best method")
    _strips(axis, pool, ratios, performance_profile(pool.columns(cost), ratios))


def _budget(axis: Axes, pool: Pool, cost: str) -> None:
    spent = pool.costs[cost].replace([np.inf, 0], np.nan)
    low, high = spent.min().min(), spent.max().max()
    axis.set_title(f"data, {'time' if cost == 'seconds' else 'evaluations'}")
    budgets = np.geomspace(low / 1.5, high * 1.5, 120)
    axis.set_xlabel(f"budget: {WORDS[cost]}")
    _strips(axis, pool, budgets, data_profile(pool.columns(cost), budgets))


def _strips(axis: Axes, pool: Pool, grid: np.ndarray, curves: dict[str, np.ndarray]) -> None:
    """A row per method instead of step lines, which would cover each other."""
    rows = np.array([curves[series.label] for series in pool.series])
    edges = np.arange(len(rows) + 1) - 0.5
    middles = np.sqrt(grid[1:] * grid[:-1])
    axis.pcolormesh(
        np.concatenate([grid[:1], middles, grid[-1:]]),
        edges,
        rows,
        cmap=colormaps[RATES],
        vmin=0,
        vmax=1,
        rasterized=True,
    )
    for row, share in enumerate(rows[:, -1]):
        place = axis.get_yaxis_transform()
        axis.text(1.01, row, f"{share:.0%}", transform=place, va="center", fontsize=6)
    for edge in edges[1:-1]:
        axis.axhline(edge, color="white", linewidth=1.5)
    axis.set_yticks(range(len(rows)), [series.label for series in pool.series])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.grid(False)
    axis.spines[:].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.set_xlim(grid[0], grid[-1])
    log_scale(axis, "x")
