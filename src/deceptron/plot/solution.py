"""Pictures of what a solve returned: answers with intervals, what is left, how it got there."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from deceptron.core.arrays import rows_like
from deceptron.core.checks import check_choice
from deceptron.core.errors import ConfigError
from deceptron.core.solution import Solution
from deceptron.core.status import Reason
from deceptron.plot.picture import (
    INK,
    MOST,
    TRUTH,
    Picture,
    as_numpy,
    drawn_rows,
    panels,
    picture,
    plain,
)
from deceptron.plot.planes import Array, draw_field, is_signed, parts, uneven

KINDS = ("answers", "residual", "history")
# Vectors up to so long are drawn as points: numbers, rather than a function.
POINTS = 16
SHOWN = {"answers": 4, "history": 12}
LEVEL = 0.9
ALIKE = ("truth", "answer")  # fields that share their colours


def plot_solution(
    solution: Solution, *, truth: Any = None, rows: Any = None, kind: str = "answers"
) -> Picture:
    """See ``Solution.plot``."""
    check_choice("kind", kind, KINDS)
    if not len(solution):
        raise ConfigError("there is nothing to draw: the solution has no rows")
    most = MOST if kind == "answers" else None
    index = drawn_rows(rows, len(solution), first=SHOWN.get(kind), most=most)
    if kind == "residual":
        return _residual(solution[index])
    if kind == "history":
        return _history(solution, index)
    true = None if truth is None else rows_like("truth", truth, solution.x.cpu())
    return _answers(solution, index, true)


def _answers(solution: Solution, rows: Tensor, truth: Tensor | None) -> Picture:
    chosen = solution[rows]
    bars = chosen.error_bars is not None
    x = as_numpy(chosen.x)
    true = None if truth is None else as_numpy(truth[rows])
    heads = [_headline(solution, int(row), truth) for row in rows]
    if parts(x[0])[0][1].ndim == 1:
        ends = [as_numpy(end) for end in chosen.interval(LEVEL)] if bars else None
        return _lines(x, true, ends, heads)
    fields = {"answer": x} if true is None else {"truth": true, "answer": x, "error": x - true}
    if bars:
        fields["standard deviation"] = as_numpy(chosen.std)
    return _planes(fields, heads)


def _lines(x: Array, truth: Array | None, ends: list[Array] | None, heads: list[str]) -> Picture:
    figure, axes = panels(heads)
    for row, axis in enumerate(axes):
        lines = parts(x[row])
        for number, (words, line) in enumerate(lines):
            band = None if ends is None else [parts(end[row])[number][1] for end in ends]
            colour = f"C{number}" if len(lines) > 1 else INK
            place = np.arange(len(line))
            true = None if truth is None else parts(truth[row])[number][1]
            label = words or "answer"
            if len(line) <= POINTS:
                reach = None if band is None else np.abs(np.stack(band) - line)
                axis.xaxis.set_major_locator(MaxNLocator(integer=True))
                if reach is not None and uneven(reach.max(0)):
                    unit = reach.max(0)
                    axis.set_xticks(place, [f"{value:.4g}" for value in line], fontsize=7)
                    axis.set_ylabel("in half-widths of 90% intervals", fontsize=7)
                    true = None if true is None else (true - line) / unit
                    line, reach = np.zeros_like(line), reach / unit
                axis.errorbar(place, line, reach, fmt="o", ms=4, capsize=3, color=colour, lw=1)
                axis.plot([], [], "o", ms=4, color=colour, label=label)
                if true is not None:
                    axis.plot(place, true, "x", color=TRUTH, ms=6, label="truth")
                axis.margins(x=0.08)
                continue
            if band is not None:
                axis.fill_between(
                    place, *band, color=colour, alpha=0.22, lw=0, label="90% interval"
                )
            axis.plot(place, line, color=colour, lw=1.3, label=label)
            if true is not None:
                axis.plot(place, true, "--", color=TRUTH, lw=1, label="truth")
            axis.margins(x=0)
    figure.legend(
        *axes[0].get_legend_handles_labels(), fontsize=8, ncols=4, loc="outside lower left"
    )
    return figure


def _planes(fields: dict[str, Array], heads: list[str]) -> Picture:
    lines = len(parts(fields["answer"][0]))
    figure = picture(2.5 * len(fields) + 0.4, (2.2 * lines + 0.5) * len(heads))
    for row, strip in enumerate(figure.subfigures(len(heads), 1, squeeze=False).ravel()):
        strip.suptitle(heads[row].replace("\n", "; "), fontsize=8, x=0.01, ha="left")
        axes = strip.subplots(lines, len(fields), squeeze=False)
        for number in range(lines):
            planes = {title: parts(values[row])[number][1] for title, values in fields.items()}
            shared = [planes[title] for title in ALIKE if title in planes]
            signs = {"error": True, "standard deviation": False}
            for axis, (title, plane) in zip(axes[number], planes.items(), strict=True):
                signed = signs.get(title, any(map(is_signed, shared)))
                alike = shared if title in ALIKE else [plane]
                draw_field(strip, axis, plane, alike, signed=signed)
                axis.set_title(title, fontsize=8)
            axes[number][0].set_ylabel(parts(fields["answer"][row])[number][0], fontsize=8)
    return figure


def _headline(solution: Solution, row: int, truth: Tensor | None) -> str:
    words = [f"row {row}"]
    if truth is not None:
        error = (solution.x[row].cpu() - truth[row]).double().square().mean().sqrt()
        words.append(f"RMSE {float(error):.3g}")
    if bool(solution.over_noise[row].isfinite()):
        words.append(f"residual {float(solution.over_noise[row]):.2f} × noise")
    reason = Reason(int(solution.reason[row]))
    return ", ".join(words) + f"\n{reason.status.name.lower()}: {reason.words}"


def _residual(solution: Solution) -> Picture:
    """What is left of the data, as a histogram: all of it at 1 where the noise is known."""
    known = bool(solution.over_noise.isfinite().any())
    values = as_numpy(solution.over_noise if known else solution.residual)
    finite = values[np.isfinite(values)]
    figure = picture(5.2, 2.8)
    axis = figure.subplots()
    plain(axis)
    axis.set_ylabel("rows", fontsize=8)
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    name = "residual over noise" if known else "residual, normalised units"
    axis.set_xlabel(name, fontsize=8)
    if not finite.size:
        axis.set_title("no row has a finite residual", fontsize=8)
        return figure
    low, high = float(finite[finite > 0].min(initial=np.inf)), float(finite.max())
    if high > 10 * low:
        # What is zero is drawn with the least that is not.
        axis.hist(finite.clip(min=low), list(np.geomspace(low, high, 41)), color=INK)
        axis.set_xscale("log")
    else:
        axis.hist(finite, 40, color=INK)
    if known:
        axis.axvline(1.0, color=TRUTH, lw=1, ls="--")
        share = float(solution.explained[solution.over_noise.isfinite()].double().mean())
        axis.set_title(
            f"{len(finite)} rows, {share:.0%} explained to the noise (dashed: 1)", fontsize=8
        )
    return figure


def _history(solution: Solution, rows: Tensor) -> Picture:
    """The residual of each row from iteration to iteration."""
    history = solution[rows].history
    if history is None:
        raise ConfigError("there is no history: solve with history=True")
    residual = as_numpy(history.residual)
    figure = picture(5.2, 3.0)
    axis = figure.subplots()
    plain(axis)
    axis.set_xlabel("iteration", fontsize=8)
    axis.set_ylabel("residual, normalised units", fontsize=8)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not np.isfinite(residual).any():
        axis.set_title("no row took a step: first answers were kept", fontsize=8)
        return figure
    for place, row in enumerate(rows.tolist()):
        line = residual[:, place]
        there = np.isfinite(line)
        if not there.any():
            continue
        marker = "o" if there.sum() == 1 else ""
        axis.plot(1 + np.flatnonzero(there), line[there], marker=marker, ms=3, lw=1.2, label=row)
    positive = residual[np.isfinite(residual) & (residual > 0)]
    if positive.size and positive.max() > 4 * positive.min():
        axis.set_yscale("log")
    axis.legend(title="row", fontsize=7, title_fontsize=7, ncols=2)
    return figure
