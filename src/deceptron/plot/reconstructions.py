"""Truth, observation and what each method made of it, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from deceptron.core.errors import ConfigError
from deceptron.plot.picture import TRUTH, Picture, picture
from deceptron.plot.planes import draw_field, is_signed, plane_of


@dataclass(frozen=True)
class Example:
    """One instance: ``reconstructions`` maps a method's name to its x and the error to print."""

    title: str
    truth: Tensor
    observation: Tensor
    reconstructions: dict[str, tuple[Tensor, float]]


def plot_reconstructions(
    examples: Sequence[Example],
    methods: Sequence[str],
    *,
    width: float,
    font: float,
    error: str = "{:.3g}",
) -> Picture:
    """A row per example, at a width in inches; all latents of a row share one colour bar.

    ``methods`` are the columns; an example without one of them says so.
    """
    if not examples:
        raise ConfigError("examples must hold at least one instance; got none")
    columns = 2 + len(methods)
    figure = picture(width, (width / (columns + 0.7) + 5 * font / 100) * len(examples))
    axes = figure.subplots(len(examples), columns, squeeze=False)
    for line, example in zip(axes, examples, strict=True):
        truth, seen = plane_of(example.truth), plane_of(example.observation)
        signed = is_signed(truth)
        image = draw_field(figure, line[0], truth, [truth], signed=signed, bar=False)
        draw_field(figure, line[1], seen, [seen], signed=is_signed(seen), bar=False)
        line[0].set_ylabel(example.title, fontsize=font)
        titles = ["truth", "observation"]
        for axis, method in zip(line[2:], methods, strict=True):
            found = example.reconstructions.get(method)
            if found is None:
                axis.set_axis_off()
                titles.append(f"{method}\nno record")
                continue
            answer = plane_of(found[0])
            draw_field(figure, axis, answer, [truth], signed=signed, bar=False)
            if truth.ndim == 1:
                axis.plot(truth, color=TRUTH, linewidth=0.8, linestyle="--")
            titles.append(f"{method}\n{error.format(found[1])}")
        for axis, title in zip(line, titles, strict=True):
            axis.set_title(title, fontsize=font, loc="center")
            axis.grid(False)
            axis.spines[:].set_visible(truth.ndim == 1)
        if image is not None:
            bar = figure.colorbar(image, ax=list(line), aspect=12, pad=0.01)
            bar.ax.tick_params(labelsize=font - 0.5)
    return figure
