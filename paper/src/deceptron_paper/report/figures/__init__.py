"""Every figure of the paper and two of our own, from the records of a study alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context

from deceptron.plot import write_figure
from deceptron.work import make_folder
from deceptron_paper.report.captions import caption
from deceptron_paper.report.figures.allen_cahn import hyperparameters, mechanism
from deceptron_paper.report.figures.family import COLUMN, FAMILIES, STYLE, Family
from deceptron_paper.report.figures.fields import reconstructions
from deceptron_paper.report.figures.matrices import reliability, shift
from deceptron_paper.report.figures.profiles import profiles
from deceptron_paper.report.figures.reproducibility import reproducibility
from deceptron_paper.report.figures.rows import against_paper, cosine_spectrum
from deceptron_paper.report.figures.sheet import Drawing, NothingToDraw, models_used
from deceptron_paper.report.figures.trajectories import trajectories
from deceptron_paper.report.query import Query

__all__ = ["Figure", "draw_all"]

DPI = 150


@dataclass(frozen=True)
class Figure:
    """A figure on disk; ``missing`` says in a sentence why there is none."""

    name: str
    title: str
    caption: str
    svg: Path | None = None
    missing: str | None = None
    narrow: bool = False


@dataclass(frozen=True)
class Plan:
    """A figure to be drawn; ``families`` are the models it is drawn for, one picture each."""

    name: str
    title: str
    draw: Callable[[Family], Drawing]
    families: tuple[str, ...] = FAMILIES


PLANS = (
    Plan("performance", "Trajectories (Figure 1)", trajectories),
    Plan("mechanism", "Mechanism on Allen-Cahn (Figure 2)", mechanism, ("paper",)),
    Plan("reliability", "Reliability matrix (Figure 3)", reliability),
    Plan("profiles", "Profiles (Figures 1 and 4)", profiles, ("paper",)),
    Plan("cosine", "Cosine spectrum (Figure 5)", cosine_spectrum, ("paper",)),
    Plan("reproducibility", "Reproducibility (Figure 6)", reproducibility, ("paper",)),
    Plan("hyperparameters", "Hyper-parameters (Figure 7)", hyperparameters, ("paper",)),
    Plan("reconstructions", "Reconstructions (Figure 8)", reconstructions),
    Plan("shift", "Off distribution", shift, ("standard",)),
    Plan("against-paper", "Published errors and ours", against_paper, ("standard",)),
)


def draw_all(query: Query, folder: str | os.PathLike[str], *, small: bool) -> list[Figure]:
    """Write every figure as SVG, PNG and PDF; ``small`` marks small samples as such."""
    target = Path(folder)
    make_folder(target)
    with rc_context(fname=STYLE):
        return [
            _drawn(plan, Family(query, name), target, small)
            for plan in PLANS
            for name in plan.families
        ]


def _drawn(plan: Plan, family: Family, folder: Path, small: bool) -> Figure:
    several = len(plan.families) > 1
    name = f"{plan.name}-{family.name}" if several else plan.name
    title = f"{plan.title}, {family.name} models" if several else plan.title
    try:
        drawing = plan.draw(family)
    except NothingToDraw as reason:
        return Figure(name, title, "", missing=f"{title}: {reason}.")
    figure = drawing.figure
    if small:
        figure.suptitle("small sample", x=0.995, ha="right", fontsize=6, color="0.4")
    write_figure(figure, folder / f"{name}.png", dpi=DPI)
    figure.set_layout_engine("none")  # keeps the places it has found
    write_figure(figure, folder / f"{name}.pdf")
    svg = write_figure(figure, folder / f"{name}.svg", dpi=DPI)
    lost = family.lost()
    words = (
        caption(f"figure-{plan.name}", family.query, **drawing.facts),
        models_used(family),
        f"RMSE not a number in {lost} instances: failures, left out of means." if lost else "",
        "Small sample: too few instances to conclude anything from." if small else "",
    )
    narrow = figure.get_figwidth() < 2 * COLUMN
    return Figure(name, title, " ".join(filter(None, words)), svg, narrow=narrow)
