"""The same table as CSV for programs, and as Markdown and LaTeX for people."""

from __future__ import annotations

import csv
import io
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template

from deceptron.work import make_folder, replacing
from deceptron_paper.report.tables.table import Interval, Spread, Table, Value, numbers

_PAGE_ROWS = 45
_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{character: f"${character}$" for character in "<>"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
}


def write(table: Table, folder: Path) -> None:
    """``NAME.csv``, ``NAME.md`` and ``NAME.tex`` in ``folder``."""
    make_folder(folder)
    for suffix, render in (("csv", to_csv), ("md", to_markdown), ("tex", to_latex)):
        with replacing(folder / f"{table.name}.{suffix}") as temporary:
            temporary.write_text(render(table), encoding="utf-8")


def to_csv(table: Table) -> str:
    """Numbers with six digits; an interval takes three columns, a spread two."""
    suffixes = [_suffixes([row[k] for row in table.rows]) for k in range(len(table.columns))]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    pairs = zip(table.columns, suffixes, strict=True)
    writer.writerow([column.key + suffix for column, own in pairs for suffix in own])
    for row in table.rows:
        values: list[str] = []
        for cell, own in zip(row, suffixes, strict=True):
            shown = [_digits(value) for value in numbers(cell)]
            values += shown + [""] * (len(own) - len(shown))
        writer.writerow(values)
    return file.getvalue()


def to_markdown(table: Table) -> str:
    """A pipe table with aligned columns, title and caption above, notes below."""
    titles = [f"{c.title}, {c.group}" if c.group else c.title for c in table.columns]
    body = [[cell.replace("|", r"\|") for cell in row] for row in table.texts]
    right = table.aligned_right
    widths = [max(3, *(len(line[k]) for line in [titles, *body])) for k in range(len(titles))]

    def line(cells: list[str]) -> str:
        padded = (
            cell.rjust(width) if side else cell.ljust(width)
            for cell, width, side in zip(cells, widths, right, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = ["-" * (w - 1) + (":" if side else "-") for w, side in zip(widths, right, strict=True)]
    lines = [f"## {table.title}", "", table.caption, ""]
    if table.rows:
        lines += [line(titles), line(rule), *map(line, body)]
    lines += [part for note in table.notes for part in ("", note)]
    return "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    """Booktabs tables scaled to the width of the text; long ones continue on another page.

    Needs the packages booktabs and graphicx.
    """
    sides = "".join("r" if side else "l" for side in table.aligned_right)
    return _latex_template().render(table=table, pages=_pages(table) or [[]], sides=sides)


@cache
def _latex_template() -> Template:
    # LaTeX has its own use for braces.
    environment = Environment("<%", "%>", "<<", ">>", undefined=StrictUndefined)
    environment.trim_blocks = environment.keep_trailing_newline = True
    escapes = str.maketrans(_LATEX)
    environment.filters["latex"] = lambda words: words.translate(escapes)
    source = files("deceptron_paper.report.tables") / "table.tex.jinja"
    return environment.from_string(source.read_text(encoding="utf-8"))


def _pages(table: Table) -> list[list[list[str]]]:
    """Rows that fit on a page, a new one where the first column changes."""
    pages: list[list[list[str]]] = []
    for _, run in groupby(zip(table.rows, table.texts, strict=True), key=lambda pair: pair[0][0]):
        block = [row for _, row in run]
        if not pages or len(pages[-1]) + len(block) > _PAGE_ROWS:
            pages.append([])
        pages[-1] += block
    return pages


def _suffixes(cells: list[Value]) -> tuple[str, ...]:
    if any(isinstance(cell, Interval) for cell in cells):
        return "", "_low", "_high"
    if any(isinstance(cell, Spread) for cell in cells):
        return "", "_sd"
    return ("",)


def _digits(value: object) -> str:
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
