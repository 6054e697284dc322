"""Pictures as files that appear whole, are small and hold no date."""

from __future__ import annotations

import os
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

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
