"""A field of any dimension as the lines and planes that stand for it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating]
# A first axis of so many is that of channels; a longer one is space.
MOST_CHANNELS = 4


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
