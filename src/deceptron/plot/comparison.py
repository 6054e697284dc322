"""The answers of several methods to the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from deceptron.core.solution import Solution
from deceptron.plot.picture import TRUTH, Picture, as_numpy, drawn_rows, panels, picture
from deceptron.plot.planes import Array, draw_field, is_signed, parts
from deceptron.plot.solution import POINTS

SHOWN = 4


def plot_comparison(
    solutions: Mapping[str, Solution], *, truth: Tensor | None, rows: Any = None
) -> Picture:
    """Lines of all methods in one panel a row; of fields, a column a method."""
    count = len(next(iter(solutions.values())))
    index = drawn_rows(rows, count, first=SHOWN)
    answers = {} if truth is None else {"truth": as_numpy(truth[index.to(truth.device)])}
    answers |= {name: as_numpy(s.x[index.to(s.x.device)]) for name, s in solutions.items()}
    first = next(iter(answers.values()))
    draw = _lines if parts(first[0])[0][1].ndim == 1 else _planes
    return draw(answers, index.tolist())


def _lines(answers: dict[str, Array], rows: list[int]) -> Picture:
    figure, axes = panels([f"row {row}" for row in rows])
    for place, axis in enumerate(axes):
        number = 0
        for name, values in answers.items():
            line = parts(values[place])[0][1]
            style = "o" if len(line) <= POINTS else "-"
            if name == "truth":
                axis.plot(line, "x" if style == "o" else "--", color=TRUTH, lw=1.4, label=name)
                continue
            axis.plot(line, style, color=f"C{number}", ms=4, lw=1.2, alpha=0.85, label=name)
            number += 1
        axis.margins(x=0.05 if style == "o" else 0)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, fontsize=8, ncols=4, loc="outside lower left")
    return figure


def _planes(answers: dict[str, Array], rows: list[int]) -> Picture:
    lines = [
        (place, row, number, words)
        for place, row in enumerate(rows)
        for number, (words, _) in enumerate(parts(next(iter(answers.values()))[place]))
    ]
    figure = picture(2.2 * len(answers) + 0.8, 2.3 * len(lines) + 0.2)
    axes = figure.subplots(len(lines), len(answers), squeeze=False)
    for axis_line, (place, row, number, words) in zip(axes, lines, strict=True):
        planes = {name: parts(values[place])[number][1] for name, values in answers.items()}
        scale = [planes["truth"]] if "truth" in planes else list(planes.values())
        signed = any(map(is_signed, scale))
        for axis, (name, plane) in zip(axis_line, planes.items(), strict=True):
            image = draw_field(figure, axis, plane, scale, signed=signed, bar=False)
            axis.set_title(name, fontsize=8)
        axis_line[0].set_ylabel(f"row {row}\n{words}" if words else f"row {row}", fontsize=8)
        figure.colorbar(image, ax=list(axis_line), shrink=0.85).ax.tick_params(labelsize=7)
    return figure
