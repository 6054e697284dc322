"""The table of the README has the numbers of the pages that it names as its sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

README = ROOT / "README.md"
TRUSTED = DOCS / "results" / "trusted.md"
RIVALS = "## Beside Gauss-Newton on the shifted sets"


def lines(page: Path, heading: str) -> list[dict[str, str]]:
    """The first table below a heading, or below a cell, as dictionaries."""
    text = page.read_text()
    rows = [row for row in text[text.index(heading) :].splitlines() if row]
    start = next(k for k, row in enumerate(rows) if row.startswith("|"))
    table = []
    for row in rows[start:]:
        if not row.startswith("|"):
            break
        table.append([cell.strip() for cell in row.strip("|").split("|")])
    heads, _, *body = table
    return [dict(zip(heads, row, strict=True)) for row in body]


def expected(problem: str) -> dict[str, str]:
    (found,) = (line for line in lines(TRUSTED, RIVALS) if line["problem"] == problem)
    return {
        "error, network alone": found["one shot"],
        "error, Gauss-Newton": found["gauss newton"],
        "error, `dc.solve`": found["default"],
        "truth in 90% intervals": f"{float(found['coverage']):.0%}",
        "runs, Gauss-Newton": found["evaluations gauss newton"],
        "runs, `dc.solve`": found["evaluations default"],
        "times faster": found["times faster"],
    }


@pytest.mark.parametrize(
    "line", lines(README, "## How well it works"), ids=lambda row: row["problem"]
)
def test_a_line_of_the_table_is_what_was_measured(line: dict[str, str]) -> None:
    told = {name: cell for name, cell in line.items() if name != "problem"}
    assert told == expected(line["problem"])


def test_every_problem_that_ships_is_in_the_table() -> None:
    shown = {line["problem"] for line in lines(README, "## How well it works")}
    assert shown == {line["problem"] for line in lines(TRUSTED, RIVALS)}


def test_sentences_give_the_numbers_of_the_test_sets_and_of_the_table() -> None:
    text = README.read_text()
    for problem in ("heat-2d", "darcy-2d", "navier-stokes-2d"):
        (found,) = (
            line
            for line in lines(TRUSTED, "## The three sets")
            if (line["problem"], line["set"], line["noise"]) == (problem, "test", "not told")
        )
        assert f"{found['one shot']} to {found['default']}" in text
    table = lines(README, "## How well it works")
    ours = [int(line["runs, `dc.solve`"]) for line in table]
    theirs = [float(line["runs, Gauss-Newton"]) for line in table]
    least, most = (round(runs / 100) * 100 for runs in (min(theirs), max(theirs)))
    takes = f"simulator runs where a matrix-free Gauss-Newton takes {least} to {most}"
    promise = f"{min(ours)} to {max(ours)} {takes}"
    assert re.search(promise, text)
