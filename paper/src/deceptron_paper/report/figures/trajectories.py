"""The upper row of Figure 1 of the paper: how fast the error falls."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deceptron_paper.report.figures.family import DIPG, PAGE, Family
from deceptron_paper.report.figures.sheet import (
    Drawing,
    NothingToDraw,
    legend_below,
    level_lines,
    log_scale,
    trial_count,
)
from deceptron_paper.report.published import MAIN_PROBLEMS

# The other forms of D-IPG would repeat it; methods on the true simulator have another residual.
SHOWN = ("d-ipg", "d-ipg without JCP", "gd", "gn", "lm", "l-bfgs", "guarded")


def trajectories(family: Family) -> Drawing:
    """How the error falls on the problems of the main text, step by step."""
    problems = [
        p for p in family.problems(DIPG) if family.trials(p, DIPG).paths("rmse").shape[1] > 1
    ]
    problems = [p for p in MAIN_PROBLEMS if p in problems] or problems[:3]
    if not problems:
        raise NothingToDraw(f"no steps of d-ipg with the model {family.name}")
    figure = Figure(figsize=(PAGE, 2.4), layout="constrained")
    axes = figure.subplots(1, len(problems), squeeze=False)[0]
    for axis, problem in zip(axes, problems, strict=True):
        axis.set_title(problem)
        _one_problem(family, axis, problem)
    axes[0].set_ylabel(r"mean $\mathrm{RMSE}_t\,/\,\mathrm{RMSE}_1$")
    legend_below(figure, axes, columns=5)
    return Drawing(figure, {"trials": trial_count(family, problems, DIPG)})


def _one_problem(family: Family, axis: Axes, problem: str) -> None:
    first = family.trials(problem, DIPG).paths("rmse").ffill(axis=1)[1]
    longest = 1
    direct = {s: (family.trials(problem, s).rows["rmse"] / first).mean() for s in family.direct}
    level_lines(axis, direct, direct.__getitem__)
    for series in family.pick(*SHOWN):
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
