"""A field of any dimension as the lines and planes that stand for it, and how they are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[np.floating]
# A first axis of so many is that of channels; a longer one is space.
MOST_CHANNELS = 4
# Ratio of bars beyond which numbers do not share an axis.
UNEVEN = 20.0


def parts(value: Array) -> list[tuple[str, Array]]:
    """Vectors as they are, planes by channel, and of space the middle slice along each axis.

    Each part comes with words that tell it from the others, empty where there is one.
    """
    while value.ndim > 1 and value.shape[0] == 1:
        value = value[0]
    if value.ndim <= 2:
        return [("", np.atleast_1d(value))]
    if value.shape[0] <= MOST_CHANNELS:
        return [
            (f"channel {number + 1}{', ' if words else ''}{words}", plane)
            for number, channel in enumerate(value)
            for words, plane in parts(channel)
        ]
    if value.ndim == 3:
        return [
            (f"slice {size // 2} of axis {axis + 1}", np.take(value, size // 2, axis))
            for axis, size in enumerate(value.shape)
        ]
    return parts(value[len(value) // 2])


def plane_of(value: Tensor) -> Array:
    """The first of its parts, where one must do."""
    return parts(value.detach().cpu().numpy())[0][1]


def is_signed(value: Array) -> bool:
    """Whether both signs matter, so that white should be zero; round-off below zero does not."""
    finite = value[np.isfinite(value)]
    return bool(finite.size and finite.min() < -0.1 * finite.max())


def colour_range(values: list[Array], signed: bool) -> tuple[float, float]:
    """Of planes that share a scale; ``signed`` centres zero."""
    finite = np.concatenate([value[np.isfinite(value)].ravel() for value in values])
    if not finite.size:
        return 0.0, 1.0
    largest = float(np.abs(finite).max())
    return (-largest, largest) if signed else (float(finite.min()), float(finite.max()))


def draw_field(
    figure: Any, axis: Any, value: Array, alike: list[Array], *, signed: bool, bar: bool = True
) -> Any:
    """A line, or an image in the colour range of ``alike``; ``signed`` centres zero.

    Returns the image, None for a line; ``bar`` puts its colour bar beside it.
    """
    axis.tick_params(labelsize=7)
    if value.ndim < 2:
        axis.plot(value, linewidth=1.2)
        axis.margins(x=0)
        return None
    low, high = colour_range(alike, signed)
    colours = "RdBu_r" if signed else "viridis"
    # "none" keeps the field's own pixels in a PDF instead of a magnified copy.
    image = axis.imshow(value, cmap=colours, vmin=low, vmax=high, interpolation="none")
    axis.set_xticks([])
    axis.set_yticks([])
    if bar:
        figure.colorbar(image, ax=axis, shrink=0.85).ax.tick_params(labelsize=7)
    return image


def uneven(widths: Array) -> bool:
    """Whether bars of some numbers would hide those of others, in smaller units, on one axis."""
    return bool((widths > 0).all() and widths.max() > UNEVEN * widths.min())
