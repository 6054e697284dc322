"""What every picture shares: fields of any dimension as a plane, and files that appear whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from deceptron.core.errors import ConfigError
from deceptron.core.files import cannot_write, destination, replacing

SUFFIXES = (".png", ".pdf", ".svg")


def check_picture_path(path: Path) -> None:
    """Refuse a picture that could not be written, before the work that leads to it."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"path must end in one of {', '.join(SUFFIXES)}; got {str(path)!r}")
    if not path.parent.is_dir():
        raise ConfigError(f"path must lie in a folder that exists; got {str(path)!r}")
    if not os.access(destination(path).parent, os.W_OK):
        raise cannot_write(path, "its folder may not be written to")


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


def draw_field(
    figure: Figure, axis: Any, value: Tensor, scale: Tensor, signed: bool, *, bar: bool = True
) -> Any:
    """A line or an image of ``value`` in the colour range of ``scale``; ``signed`` centres zero.

    Returns the image, None for a line; ``bar`` puts its colour bar beside it.
    """
    axis.tick_params(labelsize=7)
    if value.ndim < 2:
        axis.plot(value.numpy(), linewidth=1.2)
        axis.margins(x=0)
        return None
    largest = float(scale.abs().max())
    low, high = (-largest, largest) if signed else (float(scale.min()), float(scale.max()))
    colors = "RdBu_r" if signed else "viridis"
    # "none" keeps the field's own pixels in a PDF instead of a magnified copy.
    image = axis.imshow(value.numpy(), cmap=colors, vmin=low, vmax=high, interpolation="none")
    axis.set_xticks([])
    axis.set_yticks([])
    if bar:
        figure.colorbar(image, ax=axis, shrink=0.85).ax.tick_params(labelsize=7)
    return image


def write_figure(figure: Figure, path: Path, *, dpi: int = 80) -> Path:
    """Write the picture; the file appears whole or not at all, and holds no date."""
    dated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=dpi, metadata=dated.get(path.suffix.lower()))
        if path.suffix.lower() == ".png":
            _shrink(temporary)
    return path


def _shrink(png: Path) -> None:
    """Keep 256 colours, in a third of the bytes and close to all of them, the rare ones too."""
    with Image.open(png) as image:
        reduced = image.convert("RGB").quantize(
            256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        density = image.info.get("dpi")
    reduced.save(png, optimize=True, **({} if density is None else {"dpi": density}))
