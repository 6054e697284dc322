"""What every picture shares: fields of any dimension as a plane, and files that appear whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from deceptron.core.errors import ConfigError
from deceptron.core.files import replacing

SUFFIXES = (".png", ".pdf", ".svg")


def check_picture_path(path: Path) -> None:
    """Refuse a picture that could not be written, before the work that leads to it."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"path must end in one of {', '.join(SUFFIXES)}; got {str(path)!r}")
    if not path.parent.is_dir():
        raise ConfigError(f"path must lie in a folder that exists; got {str(path)!r}")


def as_plane(value: Tensor) -> Tensor:
    """The vector or the image that stands for a field of any dimension."""
    value = value.detach().cpu()
    while value.ndim > 1 and value.shape[0] == 1:
        value = value[0]
    while value.ndim > 2:
        value = value[value.shape[0] // 2]
    return value


def is_signed(value: Tensor) -> bool:
    """Whether both signs matter, so that white should be zero; round-off below zero does not."""
    return bool(value.min() < -0.1 * value.max())


def draw_field(figure: Figure, axis: Any, value: Tensor, scale: Tensor, signed: bool) -> None:
    """A line or an image of ``value`` in the colour range of ``scale``; ``signed`` centres zero."""
    axis.tick_params(labelsize=7)
    if value.ndim < 2:
        axis.plot(value.numpy(), linewidth=1.2)
        axis.margins(x=0)
        return
    largest = float(scale.abs().max())
    low, high = (-largest, largest) if signed else (float(scale.min()), float(scale.max()))
    image = axis.imshow(value.numpy(), cmap="RdBu_r" if signed else "viridis", vmin=low, vmax=high)
    axis.set_xticks([])
    axis.set_yticks([])
    bar = figure.colorbar(image, ax=axis, shrink=0.85)
    bar.ax.tick_params(labelsize=7)


def write_figure(figure: Figure, path: Path) -> Path:
    """Write the picture; the file appears whole or not at all."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=80)
    return path
