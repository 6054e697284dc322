"""The page where it is read: in a browser, wide and narrow, light and dark, by mouse and keys."""

import pytest

from deceptron.view import write_page
from tests.browser import browser
from tests.view.solved import columns, write

SHAPES = {"vector": (40,), "field": (1, 16, 16)}


@pytest.fixture(scope="module")
def window():
    with browser(1400) as opened:
        yield opened


@pytest.fixture(scope="module", params=list(SHAPES))
def page(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    long = f"{'a-name-without-an-end-' * 8}.zarr"
    return write_page(write(folder / long, columns(101, SHAPES[request.param])))[0]


def shown(window):
    """Numbers of the rows that a reader sees."""
    script = (
        "return [...document.querySelectorAll('article')].filter(row => row.offsetParent)"
        ".map(row => Number(row.querySelector('h3').textContent.split(' ')[1]))"
    )
    return window.driver.execute_script(script)


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_is_wider_than_the_window(window, page, width):
    window.width(width)
    window.open_page(page)
    assert window.overflow == 0
    clipped = window.driver.execute_script(
        "return [...document.querySelectorAll('main *')].filter(part => part.offsetParent && "
        "part.getBoundingClientRect().right > innerWidth + 0.5).map(part => part.tagName)"
    )
    assert clipped == []
    assert window.console == []
    assert window.requests == []


def test_rows_are_paged_by_buttons_and_keys(window, page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    window.width(1400)
    window.open_page(page)
    find = window.driver.find_element
    assert shown(window) == [100]
    find(By.ID, "next").click()
    assert shown(window) == [99]
    assert find(By.ID, "place").text == "2 of 8: row 99"
    body = find(By.TAG_NAME, "body")
    body.send_keys(Keys.ARROW_RIGHT)
    assert shown(window) == [98]
    body.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert shown(window) == [100]
    assert not find(By.ID, "previous").is_enabled()
    flagged = find(By.CSS_SELECTOR, "[data-group=flagged]")
    flagged.click()
    assert shown(window) == [3]
    assert flagged.get_attribute("aria-pressed") == "true"
    find(By.ID, "next").click()
    assert shown(window) == [5]
    assert not find(By.ID, "next").is_enabled()
    assert window.console == []


def test_dark_readers_get_light_ink_on_dark_paper(window, page):
    window.open_page(page)
    found = {}
    for scheme in ("light", "dark"):
        window.colour_scheme(scheme)
        script = (
            "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
            ".map(c => c.match(/[0-9]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 765)"
        )
        found[scheme] = window.driver.execute_script(script)
    ink, paper = found["light"]
    assert ink < 0.2
    assert paper > 0.9
    ink, paper = found["dark"]
    assert ink > 0.8
    assert paper < 0.2


def test_tables_and_pictures_have_words_for_those_who_cannot_see_them(window, page):
    window.open_page(page)
    count = window.driver.execute_script(
        "return [[...document.querySelectorAll('table')].filter(t => !t.caption).length,"
        "[...document.querySelectorAll('th')].filter(t => !t.scope).length,"
        "[...document.querySelectorAll('svg')].filter(s => !s.ariaLabel).length,"
        "[...document.querySelectorAll('img')].filter(i => !i.alt && "
        "!i.closest('[aria-hidden]')).length, document.querySelectorAll('h1').length]"
    )
    assert count == [0, 0, 0, 0, 1]
