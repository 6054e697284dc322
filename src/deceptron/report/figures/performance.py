"""Figures 1 and 4 of the paper: how fast the error falls, and who solves how much at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deceptron.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    caption,
    legend_below,
    log_scale,
    models_used,
    say,
    trial_count,
)
from deceptron.report.figures.shelf import COSTS, Shelf
from deceptron.report.figures.style import (
    DIPG,
    DIRECT,
    PAGE,
    PAPER,
    Series,
    pick,
)
from deceptron.report.published import MAIN_PROBLEMS
from deceptron.report.words import RESIDUAL_RULE
from deceptron.study.names import PROBLEMS
from deceptron.study.statistics import data_profile, performance_profile

# Stopping does not change when a residual is first reached, so the other forms of D-IPG would
# repeat it; methods on the true simulator have another residual.
PROFILED = (
    *PAPER,
    *pick("gn-tuned", "lm-tuned", "l-bfgs-tuned", "guarded"),
)
WORDS = {"seconds": "time [s]", "step": "iterations", "evaluations": "evaluations of f, g, Jv, J'v"}
UNSOLVED = "no instance that all methods were run on was solved"
TERMS = (
    "Time is an instance's share of its batch. one-shot and wiener take part and count as one "
    "iteration, so a ratio of 1 is mostly theirs. Where lines coincide, dashed ones are on top."
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


def representative(shelf: Shelf) -> Drawing:
    """Trajectories of the three problems of the main text, above their pooled profiles."""
    problems = [p for p in MAIN_PROBLEMS if p in shelf.problems(DIPG)]
    if not problems:
        raise NothingToDraw(
            f"no records of d-ipg with the model {shelf.family} on {', '.join(MAIN_PROBLEMS)}"
        )
    figure = Figure(figsize=(PAGE, 4.4), layout="constrained")
    axes = figure.subplots(2, 3)
    for axis, problem in zip(axes[0], MAIN_PROBLEMS, strict=True):
        axis.set_title(problem)
        _trajectories(shelf, axis, problem)
    drawn = axes[0][MAIN_PROBLEMS.index(problems[0])]
    drawn.set_ylabel(r"mean $\mathrm{RMSE}_t\,/\,\mathrm{RMSE}_1$")
    pool = pooled(shelf, problems)
    _performance(axes[1][0], pool, "seconds")
    _performance(axes[1][1], pool, "step")
    _budget(axes[1][2], pool, "seconds")
    axes[1][0].set_ylabel("share of instances solved")
    legend_below(figure, axes.flat, columns=6)
    return Drawing(
        figure,
        caption(
            "Top: RMSE after t accepted steps over that after the first, per trial, then averaged;",
            "a trial that has ended keeps its last value.",
            "Horizontal lines: one-shot and wiener over the RMSE of d-ipg after its first step.",
            "Bottom: Dolan-Moré profiles on time and iterations and a data profile on time.",
            RESIDUAL_RULE,
            TERMS,
            f"d-ipg: {trial_count(shelf, problems, DIPG)}. {pool.note}",
            models_used(shelf),
        ),
    )


def profiles(shelf: Shelf) -> Drawing:
    """Profiles over all problems, with a budget in evaluations beside that in seconds."""
    problems = shelf.problems(DIPG)
    if not problems:
        raise NothingToDraw(f"no records of d-ipg with the model {shelf.family}")
    pool = pooled(shelf, problems)
    figure = Figure(figsize=(PAGE, 4.4), layout="constrained")
    axes = figure.subplots(2, 2)
    for axis, letter, draw, cost in (
        (axes[0][0], "a", _performance, "seconds"),
        (axes[0][1], "b", _performance, "step"),
        (axes[1][0], "c", _budget, "seconds"),
        (axes[1][1], "d", _budget, "evaluations"),
    ):
        draw(axis, pool, cost)
        axis.set_title(f"({letter}) {axis.get_title(loc='left')}")
    for axis in axes[:, 0]:
        axis.set_ylabel("share of instances solved")
    legend_below(figure, axes.flat, columns=6)
    lacking = [problem for problem in PROBLEMS if problem not in problems]
    return Drawing(
        figure,
        caption(
            "Dolan-Moré profiles on (a) time and (b) iterations, data profiles on (c) time and",
            "(d) evaluations, pooled over all problems.",
            RESIDUAL_RULE,
            TERMS,
            pool.note,
            f"No records on {', '.join(lacking)}." if lacking else None,
            models_used(shelf),
        ),
    )


def pooled(shelf: Shelf, problems: Sequence[str]) -> Pool:
    """Costs of every series that was run on all ``problems``, on the trials they share."""
    series = tuple(s for s in PROFILED if set(problems) <= set(shelf.problems(s)))
    dropped = [s.label for s in PROFILED if s not in series and shelf.problems(s)]
    parts = {}
    for problem in problems:
        start = shelf.instances(problem, DIPG)["residual_start"]
        spent = {s.label: shelf.costs(problem, s, start) for s in series}
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


def _trajectories(shelf: Shelf, axis: Axes, problem: str) -> None:
    own = shelf.paths(problem, DIPG, "rmse")
    if own.shape[1] < 2:
        say(axis, f"no steps of d-ipg on {problem}")
        return
    first = own.ffill(axis=1)[1]
    longest = 1
    for series in PROFILED:
        if series in DIRECT:
            level = (shelf.instances(problem, series)["rmse"] / first).mean()
            if np.isfinite(level):
                axis.axhline(level, **series.look())
            continue
        paths = shelf.paths(problem, series, "rmse").ffill(axis=1)
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
    if not np.isfinite(worst):
        say(axis, UNSOLVED)
        return
    ratios = np.geomspace(1, np.clip(2 * worst, 10, 1e4), 300)
    curves = performance_profile(pool.columns(cost), ratios)
    axis.set_xlabel(r"ratio $\tau$ to the best method")
    _curves(axis, pool, ratios, curves)


def _budget(axis: Axes, pool: Pool, cost: str) -> None:
    spent = pool.costs[cost].replace([np.inf, 0], np.nan)
    low, high = spent.min().min(), spent.max().max()
    axis.set_title(f"data, {'time' if cost == 'seconds' else 'evaluations'}")
    if not np.isfinite(low):
        say(axis, UNSOLVED)
        return
    budgets = np.geomspace(low / 1.5, high * 1.5, 300)
    axis.set_xlabel(f"budget: {WORDS[cost]}")
    _curves(axis, pool, budgets, data_profile(pool.columns(cost), budgets))


def _curves(axis: Axes, pool: Pool, grid: np.ndarray, curves: dict[str, np.ndarray]) -> None:
    for series in pool.series:
        axis.plot(grid, curves[series.label], drawstyle="steps-post", **series.look())
    axis.set_xlim(grid[0], grid[-1])
    axis.set_ylim(-0.03, 1.03)
    log_scale(axis, "x")
