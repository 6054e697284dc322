"""A figure that a notebook shows, whatever matplotlib's backend is and without pyplot."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from jaxtyping import Int
from matplotlib.figure import Figure
from torch import Tensor

from deceptron.core.errors import ConfigError
from deceptron.core.selecting import chosen_rows
from deceptron.plot.planes import Array

INK, TRUTH = "tab:blue", "0.25"
MOST = 32  # rows of one picture


class Picture(Figure):
    """As matplotlib has it; nobody needs to close it."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png", dpi=90)
        return content.getvalue()


def picture(width: float, height: float) -> Picture:
    """An empty one, in inches, that makes room for its labels."""
    return Picture(figsize=(width, height), layout="constrained")


def drawn_rows(
    rows: Any, count: int, *, first: int | None, most: int | None = MOST
) -> Int[Tensor, " k"]:
    """Which rows of ``count`` to draw, the ``first`` few if nobody says; not more than ``most``."""
    index = chosen_rows(slice(first) if rows is None else rows, count)
    if not len(index):
        raise ConfigError("rows must name at least one row to draw; got none")
    if most is not None and len(index) > most:
        raise ConfigError(f"rows must name at most {most} rows to draw; got {len(index)}")
    return index


def as_numpy(values: Tensor) -> Array:
    """Wherever they are."""
    return np.asarray(values.detach().cpu().double().numpy())


def plain(axis: Any) -> None:
    """Small numbers, and no frame on the sides that carry none."""
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)


def panels(titles: list[str]) -> tuple[Picture, list[Any]]:
    """A panel for each title, two side by side."""
    across = min(len(titles), 2)
    down = -(-len(titles) // across)
    figure = picture(4.2 * across, 2.3 * down)
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for axis in axes[len(titles) :]:
        axis.set_axis_off()
    for axis, title in zip(axes, titles, strict=False):
        plain(axis)
        axis.set_title(title, fontsize=8)
    return figure, axes[: len(titles)]
