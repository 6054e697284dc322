"""The Markdown of the repository as its tests see it: pages, code blocks, prose."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>\S*).*\n(?P<body>(?:.*\n)*?)(?P=fence)[ \t]*$", re.M
)
# A page that is another one, kept elsewhere.
INCLUDE = re.compile(r"^```\{include\} (?P<path>\S+)$", re.M)
# A line right above a block, in italics: the block does not run, and why.
NOT_RUN = re.compile(r"^\*Not run by the tests\b[^:]*: (?P<reason>.+)\*$")


@dataclass(frozen=True)
class Block:
    """A fenced block, the line it starts at, and why it is not run, if it is not."""

    language: str
    body: str
    line: int
    reason: str | None


def pages() -> list[Path]:
    """README, CONTRIBUTING, and what a person wrote or a report left in docs and in paper."""
    made = DOCS / "gallery"
    found = [path for path in sorted(DOCS.rglob("*.md")) if made not in path.parents]
    paper = [ROOT / "paper" / "README.md", *sorted((ROOT / "paper" / "docs").glob("*.md"))]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *found, *paper]


def guide_pages() -> list[Path]:
    """The pages for people who have never seen the library; the glossary itself is none."""
    found = [path for room in ("start", "howto", "ideas") for path in (DOCS / room).glob("*.md")]
    return sorted(path for path in found if path.stem not in ("index", "glossary"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(text: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(text):
        above = [line for line in text[: match.start()].splitlines() if line.strip()]
        mark = NOT_RUN.match(above[-1]) if above else None
        found.append(
            Block(
                match["language"],
                match["body"],
                text[: match.start("body")].count("\n") + 1,
                mark["reason"] if mark else None,
            )
        )
    return found


def prose(text: str) -> str:
    """The text without code, formulas, headings and the addresses of links."""
    text = FENCE.sub("", text)
    text = re.sub(r"^#+ .*$", "", text, flags=re.M)
    text = re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$", "", text, flags=re.S)
    text = re.sub(r"(\{term\}`[^`\n]+`)|`[^`\n]+`", lambda found: found[1] or "", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def anchors(page: Path) -> set[str]:
    """What a link may name after #, as GitHub and the site make it from headings."""
    text = page.read_text()
    included = INCLUDE.search(text)
    if included is not None and text.startswith(included[0]):
        return anchors((page.parent / included["path"]).resolve())
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), flags=re.M)
    plain = (re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}
