"""The page of a study in a real browser: sorting, a phone, the dark, nothing from the network."""

from __future__ import annotations

import pytest

from deceptron_paper.report.study import report_study
from tests.browser import browser

VERDICT = "#verdict table.sortable"


@pytest.fixture(scope="module")
def page(study_folder, tmp_path_factory):
    return report_study(study_folder, tmp_path_factory.mktemp("page") / "report").page


@pytest.fixture(scope="module")
def window(request):
    # Without a browser, which skips, there is no need for a page.
    with browser() as opened:
        opened.open_page(request.getfixturevalue("page"))
        yield opened


def column(window, title: str) -> list[str]:
    """The texts of a column of the verdict, from top to bottom."""
    return window.driver.execute_script(
        """const table = document.querySelector(arguments[0]);
        const titles = [...table.querySelectorAll("tr.titles th")];
        const place = titles.findIndex(th => th.innerText.trim().startsWith(arguments[1]));
        return [...table.tBodies[0].rows].map(row => row.children[place].textContent.trim());""",
        VERDICT,
        title,
    )


def click(window, title: str) -> str | None:
    """Press the button of a column; how the browser says that it is sorted."""
    return window.driver.execute_script(
        """const table = document.querySelector(arguments[0]);
        const titles = [...table.querySelectorAll("tr.titles th")];
        const th = titles.find(th => th.innerText.trim().startsWith(arguments[1]));
        th.querySelector("button").click();
        return th.getAttribute("aria-sort");""",
        VERDICT,
        title,
    )


def test_a_click_sorts_by_number_and_another_one_back(window):
    before = column(window, "error")
    assert click(window, "error") == "ascending"
    values = [float(cell.split()[0]) for cell in column(window, "error")]
    assert values == sorted(values)
    assert len(values) == len(before) > 20
    assert click(window, "error") == "descending"
    assert [float(cell.split()[0]) for cell in column(window, "error")] == values[::-1]
    assert click(window, "method") == "ascending"
    names = column(window, "method")
    assert names == sorted(names)


def test_a_dash_is_last_either_way(window):
    for _ in range(2):
        click(window, "in 90%")
        cells = column(window, "in 90%")
        dashes = [cell == "-" for cell in cells]
        assert any(dashes)
        assert not all(dashes)
        assert dashes == sorted(dashes)


@pytest.mark.parametrize("pixels", [400, 1400])
def test_the_page_is_no_wider_than_what_shows_it(window, pixels):
    window.width(pixels)
    assert window.overflow <= 0
    boxes = window.driver.execute_script(
        """return [...document.querySelectorAll(".scroll")].map(box =>
        [box.clientWidth, document.documentElement.clientWidth])"""
    )
    assert boxes
    assert all(inner <= outer for inner, outer in boxes)


def brightness(window) -> tuple[float, float]:
    """Of the ink and of the paper."""
    return tuple(
        sum(int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]) / 765
        for colour in window.driver.execute_script(
            "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
        )
    )


def test_dark_mode_is_light_on_dark(window):
    window.colour_scheme("light")
    ink, paper = brightness(window)
    assert paper - ink > 0.5
    window.colour_scheme("dark")
    ink, paper = brightness(window)
    assert ink - paper > 0.5
    window.colour_scheme("light")


def test_screen_readers_are_told_what_everything_is(window):
    bare = window.driver.execute_script(
        """return {
          images: [...document.images].filter(i => !i.alt).length,
          captions: [...document.querySelectorAll("table.sortable")].filter(t => !t.caption).length,
          scopes: [...document.querySelectorAll("th")].filter(th => !th.scope).length,
          boxes: [...document.querySelectorAll(".scroll")].filter(b => !b.ariaLabel).length,
          figures: [...document.querySelectorAll("figure")]
            .filter(f => !f.querySelector("figcaption")).length,
          language: document.documentElement.lang,
        }"""
    )
    assert bare == {
        "images": 0,
        "captions": 0,
        "scopes": 0,
        "boxes": 0,
        "figures": 0,
        "language": "en",
    }


def test_every_figure_is_shown(window):
    sizes = window.driver.execute_script(
        "return [...document.images].map(i => [i.complete, i.naturalWidth])"
    )
    assert len(sizes) > 10
    assert all(complete and width > 0 for complete, width in sizes)


def test_nothing_is_printed_and_nothing_is_asked_of_the_network(window):
    assert window.console == []
    assert window.requests == []
