"""Every relative link of README and docs leads somewhere, down to the heading it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import FENCE, ROOT, anchors, name, pages

LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


def broken(page: Path, text: str) -> list[str]:
    bad = []
    for target in (match["target"] for match in LINK.finditer(FENCE.sub("", text))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if place == ROOT / "docs" / "gallery" / "index":  # made when the site is built
            continue
        if not place.is_file() or (anchor and anchor not in anchors(place)):
            bad.append(target)
    return bad


@pytest.mark.parametrize("page", pages(), ids=name)
def test_links_resolve(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_a_missing_page_and_a_missing_heading_are_found() -> None:
    page = ROOT / "README.md"
    text = "[a](docs/nowhere.md) [b](docs/index.md#no-such) [c](docs/index.md) [d](https://x.org)"
    assert broken(page, text) == ["docs/nowhere.md", "docs/index.md#no-such"]


def test_readme_names_the_two_commands_first() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    shell = lines.index("```sh")
    assert [line.split()[:2] for line in lines[shell + 1 : shell + 3]] == [
        ["make", "demo"],
        ["make", "test"],
    ]
