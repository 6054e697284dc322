"""Every figure of the paper and two of our own, from the records of a study alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context

from deceptron.core.files import make_folder
from deceptron.report.drawing import write_figure
from deceptron.report.figures.against_paper import against_paper
from deceptron.report.figures.family import FAMILIES, Family
from deceptron.report.figures.fields import reconstructions
from deceptron.report.figures.geometry import cosine_spectrum, reproducibility
from deceptron.report.figures.hyperparameters import hyperparameters
from deceptron.report.figures.mechanism import mechanism
from deceptron.report.figures.performance import profiles, representative
from deceptron.report.figures.reliability import reliability
from deceptron.report.figures.sheet import SMALL, Drawing, NothingToDraw, caption
from deceptron.report.figures.shift import shift
from deceptron.report.figures.style import COLUMN, RC
from deceptron.report.query import Query

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
    Plan("performance", "Representative performance (Figure 1)", representative),
    Plan("mechanism", "Mechanism on Allen-Cahn (Figure 2)", mechanism),
    Plan("reliability", "Reliability matrix (Figure 3)", reliability),
    Plan("profiles", "Profiles over all problems (Figure 4)", profiles),
    Plan("cosine", "Cosine spectrum (Figure 5)", cosine_spectrum),
    Plan("reproducibility", "Reproducibility (Figure 6)", reproducibility),
    Plan("hyperparameters", "Hyper-parameters on Allen-Cahn (Figure 7)", hyperparameters),
    Plan("reconstructions", "Reconstructions (Figure 8)", reconstructions),
    Plan("shift", "Off distribution", shift, ("standard",)),
    Plan("against-paper", "Published errors and ours", against_paper, ("standard",)),
)


def draw_all(query: Query, folder: str | os.PathLike[str], *, small: bool) -> list[Figure]:
    """Write every figure as SVG, PNG and PDF; ``small`` marks small samples as such."""
    target = Path(folder)
    make_folder(target)
    with rc_context(rc=RC):
        return [_drawn(plan, Family(query, name), target, small) for plan, name in _planned()]


def _planned() -> Iterator[tuple[Plan, str]]:
    for plan in PLANS:
        for family in plan.families:
            yield plan, family


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
    words = caption(
        drawing.caption,
        f"RMSE not a number in {lost} instances: failures, left out of means." if lost else None,
        SMALL if small else None,
    )
    return Figure(name, title, words, svg, narrow=figure.get_figwidth() < 2 * COLUMN)
