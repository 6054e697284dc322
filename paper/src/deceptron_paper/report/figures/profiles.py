"""The lower row of Figure 1 and Figure 4 of the paper: who solves how much at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deceptron_paper.report.figures.family import DIPG, PAGE, RATES, Family, Series
from deceptron_paper.report.figures.sheet import Drawing, NothingToDraw, log_scale, named_rows
from deceptron_paper.report.published import MAIN_PROBLEMS
from deceptron_paper.statistics import data_profile, performance_profile

# Stopping does not change when a residual is first reached.
REPEATS = ("d-ipg-free", "d-ipg-tuned")


@dataclass(frozen=True)
class Pool:
    """Costs until solved, a trial a row and a series a column; only trials all were run on."""

    seconds: pd.DataFrame
    steps: pd.DataFrame
    series: tuple[Series, ...]
    dropped: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Trials by problem."""
        sizes = self.seconds.groupby(level=0, sort=False).size()
        return {str(problem): int(count) for problem, count in sizes.items()}


def profiles(family: Family) -> Drawing:
    """Profiles of the problems of the main text, and below of all problems."""
    every = family.problems(DIPG)
    main = [problem for problem in MAIN_PROBLEMS if problem in every]
    asked = {"main text": main, "all problems": every}
    if not main or len(main) == len(every):
        del asked["main text"]
    pools = {name: pooled(family, problems) for name, problems in asked.items() if problems}
    pools = {n: p for n, p in pools.items() if np.isfinite(p.seconds[p.seconds > 0]).any(axis=None)}
    if not pools:
        raise NothingToDraw(f"nothing solved that all methods of the model {family.name} have")
    heights = [0.16 * len(pool.series) + 0.62 for pool in pools.values()]
    figure = Figure(figsize=(PAGE, sum(heights)), layout="constrained")
    grid = figure.subplots(len(pools), 3, sharey="row", squeeze=False, height_ratios=heights)
    for axes, (name, pool) in zip(grid, pools.items(), strict=True):
        _performance(axes[0], pool, pool.seconds)
        _performance(axes[1], pool, pool.steps)
        _budget(axes[2], pool)
        axes[0].set_ylabel(name)
    titles = ("(a) performance, time", "(b) performance, iterations", "(c) data, time")
    for axis, title in zip(grid[0], titles, strict=True):
        axis.set_title(title)
    return Drawing(figure, {"pools": pools})


def pooled(family: Family, problems: Sequence[str]) -> Pool:
    """Costs of every series that was run on all ``problems``, on the trials they share."""
    profiled = [
        s
        for s in family.series
        if s.method not in REPEATS and family.query.methods[s.method].physics == "surrogate"
    ]
    series = tuple(s for s in profiled if set(problems) <= set(family.problems(s)))
    dropped = tuple(s.label for s in profiled if s not in series and family.problems(s))
    parts = {}
    for problem in problems:
        start = family.trials(problem, DIPG).rows["residual_start"]
        spent = {s.label: family.trials(problem, s).costs(start) for s in series}
        parts[problem] = pd.concat(spent, axis=1).dropna()
    whole = pd.concat(parts)
    seconds, steps = (whole.loc[:, (slice(None), cost)] for cost in ("seconds", "step"))
    return Pool(seconds.droplevel(1, axis=1), steps.droplevel(1, axis=1), series, dropped)


def _performance(axis: Axes, pool: Pool, costs: pd.DataFrame) -> None:
    spent = costs.to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = spent / spent.min(axis=1, keepdims=True)
    worst = np.max(relative[np.isfinite(relative)], initial=1.0)
    ratios = np.geomspace(1, np.clip(2 * worst, 10, 1e4), 120)
    _strips(axis, pool, ratios, performance_profile(_arrays(costs), ratios))
    axis.set_xlabel(r"ratio $\tau$ to the best method")


def _budget(axis: Axes, pool: Pool) -> None:
    spent = pool.seconds.to_numpy()
    known = spent[np.isfinite(spent) & (spent > 0)]
    budgets = np.geomspace(known.min() / 1.5, 1.5 * known.max(), 120)
    _strips(axis, pool, budgets, data_profile(_arrays(pool.seconds), budgets))
    axis.set_xlabel("budget [s]")


def _arrays(costs: pd.DataFrame) -> dict[str, np.ndarray]:
    return {str(label): column.to_numpy() for label, column in costs.items()}


def _strips(axis: Axes, pool: Pool, grid: np.ndarray, curves: dict[str, np.ndarray]) -> None:
    """A row of colour per method instead of step lines, which would cover each other."""
    rows = np.array([curves[series.label] for series in pool.series])
    across = np.concatenate([grid[:1], np.sqrt(grid[1:] * grid[:-1]), grid[-1:]])
    edges = np.arange(len(rows) + 1) - 0.5
    axis.pcolormesh(across, edges, rows, cmap=RATES, vmin=0, vmax=1, rasterized=True)
    for row, share in enumerate(rows[:, -1]):
        place = axis.get_yaxis_transform()
        axis.text(1.01, row, f"{share:.0%}", transform=place, va="center", fontsize=6)
    for edge in edges[1:-1]:
        axis.axhline(edge, color="white", linewidth=1.5)
    named_rows(axis, [series.label for series in pool.series])
    axis.grid(False)
    axis.spines[:].set_visible(False)
    axis.set_xlim(grid[0], grid[-1])
    log_scale(axis, "x")
