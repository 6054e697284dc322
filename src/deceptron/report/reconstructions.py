"""Truth, observation and what each method made of it, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from torch import Tensor

from deceptron.core.errors import ConfigError
from deceptron.report.drawing import (
    as_plane,
    check_picture_path,
    draw_field,
    is_signed,
    write_figure,
)


@dataclass(frozen=True)
class Example:
    """One instance: ``reconstructions`` maps a method's name to its x and the error to print."""

    title: str
    truth: Tensor
    observation: Tensor
    reconstructions: dict[str, tuple[Tensor, float]]


def draw_reconstructions(examples: Sequence[Example], path: str | Path) -> Path:
    """A row per example; fields in space show their middle slice, all latents share a scale."""
    if not examples:
        raise ConfigError("examples must hold at least one instance; got none")
    path = Path(path)
    check_picture_path(path)
    methods = list(examples[0].reconstructions)
    columns = 2 + len(methods)
    figure = Figure(figsize=(2.2 * columns, 2.1 * len(examples) + 0.3), layout="constrained")
    axes = figure.subplots(len(examples), columns, squeeze=False)
    for line, example in zip(axes, examples, strict=True):
        truth = as_plane(example.truth)
        signed = is_signed(truth)
        draw_field(figure, line[0], truth, truth, signed)
        line[0].set_title(f"{example.title}\ntruth", fontsize=9)
        seen = as_plane(example.observation)
        draw_field(figure, line[1], seen, seen, is_signed(seen))
        line[1].set_title("observation", fontsize=9)
        for axis, method in zip(line[2:], methods, strict=True):
            x, error = example.reconstructions[method]
            draw_field(figure, axis, as_plane(x), truth, signed)
            if truth.ndim == 1:
                axis.plot(truth.numpy(), color="0.6", linewidth=0.8, linestyle="--")
            axis.set_title(f"{method}\nRMSE {error:.3g}", fontsize=9)
    return write_figure(figure, path)


def compact_figure(examples: Sequence[Example], methods: Sequence[str], *, width: float) -> Figure:
    """The same at the width of a page in inches: a row per example, one colour bar a row.

    ``methods`` are the columns; an example without one of them says so.
    """
    columns = 2 + len(methods)
    side = width / (columns + 0.7)
    figure = Figure(figsize=(width, (side + 0.34) * len(examples)), layout="constrained")
    axes = figure.subplots(len(examples), columns, squeeze=False)
    for line, example in zip(axes, examples, strict=True):
        truth, seen = as_plane(example.truth), as_plane(example.observation)
        signed = is_signed(truth)
        image = draw_field(figure, line[0], truth, truth, signed, bar=False)
        draw_field(figure, line[1], seen, seen, is_signed(seen), bar=False)
        line[0].set_ylabel(example.title)
        line[0].set_title("truth", fontsize=6.5, loc="center")
        line[1].set_title("observation", fontsize=6.5, loc="center")
        for axis, method in zip(line[2:], methods, strict=True):
            found = example.reconstructions.get(method)
            if found is None:
                axis.set_axis_off()
                axis.set_title(f"{method}\nno record", fontsize=6.5, loc="center")
                continue
            draw_field(figure, axis, as_plane(found[0]), truth, signed, bar=False)
            axis.set_title(f"{method}\n{found[1]:.3g}", fontsize=6.5, loc="center")
        for axis in line:
            axis.grid(False)
            axis.spines[:].set_visible(truth.ndim == 1)
        if image is not None:
            figure.colorbar(image, ax=list(line), aspect=12, pad=0.01).ax.tick_params(labelsize=6)
    return figure
