"""The picture of the README and of the first page: what a network, and what a solve, makes of it.

``python -m tools.landing_picture`` draws it with the model that ships for navier-stokes-2d: the
first row of the test set and the first two of the shifted set. Nothing is picked by its result.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

import deceptron as dc
from deceptron.plot.files import write_figure
from deceptron.plot.planes import draw_field, plane_of

PROBLEM, SEED = "navier-stokes-2d", 7
SHOWN = (("like the training data", "test", 1), ("finer eddies", "shifted", 2))
OUT = Path(__file__).parents[1] / "docs" / "pictures" / "landing.png"


@dataclass(frozen=True)
class Line:
    """One observation and everything that is drawn of it."""

    title: str
    y: Tensor
    truth: Tensor
    network: Tensor
    answer: Tensor
    std: Tensor
    score: float

    @property
    def flag(self) -> str:
        return f"trust score {self.score:.1f}\n{'FLAGGED' if self.score > 1 else 'not flagged'}"


def lines(problem: dc.problems.Problem, pair: dc.Deceptron) -> list[Line]:
    data, found = problem.dataset(SEED), []
    for title, name, count in SHOWN:
        rows = getattr(data, name)
        truth, y = rows.x[:count], rows.y[:count]
        network = dc.solve(pair, y, method="one-shot").x
        solution = dc.solve(pair, y, forward=problem)
        for k in range(count):
            score = float(solution.trust.score[k])
            found.append(
                Line(title, y[k], truth[k], network[k], solution.x[k], solution.std[k], score)
            )
    return found


def draw(shown: list[Line], path: Path) -> Path:
    figure = Figure(figsize=(8.0, 1.9 * len(shown)), layout="constrained")
    axes = figure.subplots(len(shown), 5)
    from_zero = torch.tensor([0.0, max(float(line.std.max()) for line in shown)])
    for row, line in zip(axes, shown, strict=True):
        errors = [
            float((x - line.truth).square().mean().sqrt()) for x in (line.network, line.answer)
        ]
        pictures = (
            ("observed:\nflow, later", line.y, line.y),
            ("truth:\nflow at the start", line.truth, line.truth),
            (f"network alone,\nerror {errors[0]:.3f}", line.network, line.truth),
            (f"dc.solve,\nerror {errors[1]:.3f}", line.answer, line.truth),
            ("its error bar\n(std)", line.std, from_zero),
        )
        for axis, (title, value, scale) in zip(row, pictures, strict=True):
            is_bar = value is line.std
            draw_field(
                figure, axis, plane_of(value), [plane_of(scale)], signed=not is_bar, bar=is_bar
            )
            axis.set_title(title, fontsize=10)
        row[0].set_ylabel(f"{line.title}\n{line.flag}", fontsize=10)
    return write_figure(figure, path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    print(draw(lines(dc.problems.get(PROBLEM), dc.load(PROBLEM)), asked.out))
