"""The sheet that joins the screenshots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tools.contact_sheet import NARROW, SCALE, WIDE, joined, shots


def test_every_picture_is_on_the_sheet_whole():
    sizes = [(WIDE, 900), (WIDE, 300), (NARROW, 2000), (WIDE, 50), (WIDE, 1200), (NARROW, 400)]
    colours = [(10 + 30 * k, 200 - 30 * k, 77) for k in range(len(sizes))]
    pictures = {
        f"page {k}\nlight": Image.new("RGB", size, colour)
        for k, (size, colour) in enumerate(zip(sizes, colours, strict=True))
    }
    sheet = np.asarray(joined(pictures))
    for (width, height), colour in zip(sizes, colours, strict=True):
        found = (sheet == colour).all(axis=2).sum()
        assert found == round(width * SCALE) * round(height * SCALE)


def test_what_the_library_writes_is_seen_wide_and_narrow_light_and_dark():
    names = ("index", "howto/pictures", "deceptron view", "report", "notebook")
    taken = [shot for shot in shots({name: Path(name) for name in names}) if not shot.part]
    ways = {name: {(s.width, s.scheme) for s in taken if s.name == name} for name in names}
    every = {(width, scheme) for width in (WIDE, NARROW) for scheme in ("light", "dark")}
    assert ways.pop("howto/pictures") == {(WIDE, "light")}
    assert all(way == every for way in ways.values())
