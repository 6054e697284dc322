"""Everything that people look at, in one picture: the site, pages of a file and of a study, tables.

``make contact-sheet`` builds the site without running its gallery and takes the screenshots into
``build/contact_sheet.png``, with the browser that the tests use (``tests/browser.py``): each page
wide and narrow, light and dark. The study is made of synthetic records, the solved file and the
tables of a notebook come from the model that ships for navier-stokes-2d. What a page does wrong by
itself (wider than its window, words on the console, files that are not there) is printed.
"""

from __future__ import annotations

import argparse
import base64
import io
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

import deceptron as dc
from deceptron.view import write_page
from deceptron_paper.report import report_study
from paper.tests.synthetic import Sizes, write_study
from tests.browser import Browser, browser

PROBLEM, ROWS = "navier-stokes-2d", 12
SITE = (
    "index.html",
    "start/install.html",
    "howto/pictures.html",
    "ideas/default.html",
    "reference/solution.html",
    "results/README.html",
)
WIDE, NARROW = 1400, 400
TALLEST = 2 * WIDE  # pixels of a page that are shown
SCALE = 0.4
SHEET, GAP, HEAD = 2400, 16, 38  # width of the sheet, and of what is between pictures
STUDY = Sizes(instances=4, problems=("heat-1d", "heat-3d", "allen-cahn-2d"), seeds=(7,))


@dataclass(frozen=True)
class Shot:
    """A page as a reader sees it."""

    name: str
    page: Path
    width: int
    scheme: str
    part: str = ""  # id of the section to begin with

    @property
    def label(self) -> str:
        return f"{self.name} {self.part}\n{self.width} px, {self.scheme}"


def pages(site: Path | None, folder: Path, report: Path | None) -> dict[str, Path]:
    """What is photographed, by name; whatever is not there yet is made in ``folder``."""
    found = {} if site is None else {name.removesuffix(".html"): site / name for name in SITE}
    problem, pair = dc.problems.get(PROBLEM), dc.load(PROBLEM)
    solution = dc.solve(pair, problem.dataset(7).shifted.y[:ROWS])
    solution.save(folder / "x.npz")
    found["deceptron view"] = write_page(folder / "x.npz")[0]
    if report is None:
        write_study(folder / "study", STUDY)
        report = report_study(folder / "study").page.parent
    found["report"] = report / "index.html"
    found["notebook"] = folder / "notebook.html"
    assert solution.trust is not None
    tables = [value._repr_html_() for value in (solution, solution.trust, pair, problem)]
    style = ":root { color-scheme: light dark } body { font: 14px system-ui, sans-serif }"
    body = "\n<hr>\n".join(tables)
    found["notebook"].write_text(
        f'<!doctype html><meta charset="utf-8"><style>{style}</style>\n{body}', encoding="utf-8"
    )
    return found


def shots(found: dict[str, Path]) -> Iterator[Shot]:
    """Every page wide and light; the first of the site, and what the library wrote, four ways."""
    for name, page in found.items():
        yield Shot(name, page, WIDE, "light")
        if f"{name}.html" not in SITE[1:]:
            yield Shot(name, page, WIDE, "dark")
            yield Shot(name, page, NARROW, "light")
            yield Shot(name, page, NARROW, "dark")
    yield Shot("report", found["report"], WIDE, "light", "figures")


def take(window: Browser, shot: Shot) -> Image.Image:
    """The page from its top; what is wrong with it is printed."""
    window.width(shot.width)
    window.colour_scheme(shot.scheme)
    window.open_page(shot.page)
    top, bottom = window.driver.execute_async_script(
        """const [part, done] = arguments;
        const place = part ? document.getElementById(part).getBoundingClientRect().top : 0;
        document.fonts.ready.then(() => requestAnimationFrame(() =>
          done([place + scrollY, document.documentElement.scrollHeight])));""",
        shot.part,
    )
    height = min(bottom - top, TALLEST * (3 if shot.part else 1))
    clip = {"x": 0, "y": top, "width": shot.width, "height": height, "scale": 1}
    taken = window.driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True}
    )
    for wrong in (*window.console, *([f"{window.overflow} px too wide"] * (window.overflow > 0))):
        print(f"{shot.label!r}: {wrong}")
    return Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")


def joined(pictures: dict[str, Image.Image]) -> Image.Image:
    """All on one sheet, in rows, with their labels."""
    small = {
        label: image.resize(
            (round(image.width * SCALE), round(image.height * SCALE)), Image.Resampling.LANCZOS
        )
        for label, image in pictures.items()
    }
    places, x, y, tallest = {}, GAP, GAP, 0
    for label, image in small.items():
        if x + image.width + GAP > SHEET:
            x, y, tallest = GAP, y + tallest + GAP, 0
        places[label] = (x, y)
        x, tallest = x + image.width + GAP, max(tallest, image.height + HEAD)
    sheet = Image.new("RGB", (SHEET, y + tallest + GAP), "#888888")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for label, (left, top) in places.items():
        pen.text((left, top), label, fill="white", font=font)
        sheet.paste(small[label], (left, top + HEAD))
    return sheet


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path, help="folder of the built site; without it, no site")
    parser.add_argument("--report", type=Path, help="a report to show in place of a synthetic one")
    parser.add_argument("--out", type=Path, default=Path("build/contact_sheet.png"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = pages(asked.site, Path(temporary), asked.report)
        try:
            with browser(WIDE) as window:
                pictures = {shot.label: take(window, shot) for shot in shots(found)}
        except pytest.skip.Exception as reason:
            raise SystemExit(str(reason)) from None
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    joined(pictures).save(asked.out, optimize=True)
    print(f"{len(pictures)} screenshots in {asked.out}")


if __name__ == "__main__":
    main()
