"""The same table as CSV for programs, and as Markdown and LaTeX for people."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path

from deceptron.core.files import make_folder, replacing
from deceptron.report.tables.table import (
    Count,
    Exact,
    Interval,
    Probability,
    Spread,
    Table,
    Value,
    is_number,
    text,
)

_PAGE_ROWS = 45
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
}


def write(table: Table, folder: Path) -> list[Path]:
    """``NAME.csv``, ``NAME.md`` and ``NAME.tex`` in ``folder``."""
    make_folder(folder)
    written = []
    for suffix, render in (("csv", to_csv), ("md", to_markdown), ("tex", to_latex)):
        path = folder / f"{table.name}.{suffix}"
        with replacing(path) as temporary:
            temporary.write_text(render(table), encoding="utf-8")
        written.append(path)
    return written


def to_csv(table: Table) -> str:
    """Numbers with six digits; an interval takes three columns, a spread two."""
    columns = list(zip(table.columns, _columns(table), strict=True))
    parts = [_parts(cells) for _, cells in columns]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    header = []
    for (column, _), suffixes in zip(columns, parts, strict=True):
        header += [column.key + suffix for suffix in suffixes]
    writer.writerow(header)
    for row in table.rows:
        values: list[str] = []
        for cell, suffixes in zip(row, parts, strict=True):
            values += _plain(cell, len(suffixes))
        writer.writerow(values)
    return file.getvalue()


def to_markdown(table: Table) -> str:
    """A pipe table with aligned columns, title and caption above, notes below."""
    titles = [f"{c.title}, {c.group}" if c.group else c.title for c in table.columns]
    body = [[cell.replace("|", r"\|") for cell in row] for row in texts(table)]
    right = aligned_right(table)
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
    pages = _pages(table) or [[]]
    floats = []
    for number, rows in enumerate(pages):
        caption = table.caption if number == 0 else f"{table.title}, continued."
        label = rf"\label{{tab:{table.name}}}" if number == 0 else ""
        notes = table.notes if number == len(pages) - 1 else ()
        floats += [
            r"\begin{table}[p]" if len(pages) > 1 else r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{_latex(caption)}}}{label}",
            *_tabular(table, rows),
            *(rf"\par\footnotesize {_latex(note)}" for note in notes),
            r"\end{table}",
        ]
    return "\n".join(floats) + "\n"


def _pages(table: Table) -> list[list[list[str]]]:
    """Rows that fit on a page, a new one where the first column changes."""
    pages: list[list[list[str]]] = []
    block: list[list[str]] = []
    rows = texts(table)
    for index, row in enumerate(rows):
        block.append(row)
        if index + 1 < len(rows) and not rows[index + 1][0]:
            continue
        if not pages or len(pages[-1]) + len(block) > _PAGE_ROWS:
            pages.append([])
        pages[-1] += block
        block = []
    return pages


def _tabular(table: Table, rows: list[list[str]]) -> list[str]:
    sides = "".join("r" if side else "l" for side in aligned_right(table))
    lines = [
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{sides}}}",
        r"\toprule",
    ]
    spanned = list(groups(table))
    if any(group for group, _, _ in spanned):
        spans = (rf"\multicolumn{{{span}}}{{c}}{{{_latex(group)}}}" for group, _, span in spanned)
        rules = (
            rf"\cmidrule(lr){{{start + 1}-{start + span}}}"
            for group, start, span in spanned
            if group
        )
        lines += [" & ".join(spans) + r" \\", " ".join(rules)]
    lines += [" & ".join(_latex(c.title) for c in table.columns) + r" \\", r"\midrule"]
    blocks = any(not row[0] for row in rows)
    for index, row in enumerate(rows):
        if index and row[0] and blocks:
            lines.append(r"\midrule")
        lines.append(" & ".join(map(_latex, row)) + r" \\")
    return [*lines, r"\bottomrule", r"\end{tabular}}"]


def texts(table: Table) -> list[list[str]]:
    """Values as text; a value that repeats the one above it in the first column is left blank."""
    rows = [[text(cell) for cell in row] for row in table.rows]
    firsts = [row[0] for row in rows]
    for index in range(1, len(rows)):
        if firsts[index] == firsts[index - 1]:
            rows[index][0] = ""
    return rows


def _columns(table: Table) -> list[list[Value]]:
    return [[row[k] for row in table.rows] for k in range(len(table.columns))]


def aligned_right(table: Table) -> list[bool]:
    """Whether each column holds numbers."""
    return [any(map(is_number, cells)) for cells in _columns(table)]


def groups(table: Table) -> Iterator[tuple[str, int, int]]:
    """Runs of columns under one heading: its text, first column and width."""
    start = 0
    for index in range(1, len(table.columns) + 1):
        ended = index == len(table.columns)
        if ended or table.columns[index].group != table.columns[start].group:
            yield table.columns[start].group, start, index - start
            start = index


def _parts(cells: list[Value]) -> tuple[str, ...]:
    if any(isinstance(cell, Interval) for cell in cells):
        return "", "_low", "_high"
    if any(isinstance(cell, Spread) for cell in cells):
        return "", "_sd"
    return ("",)


def _plain(cell: Value, width: int) -> list[str]:
    values: tuple[object, ...]
    if isinstance(cell, Interval):
        values = (cell.value, cell.low, cell.high)
    elif isinstance(cell, Spread):
        values = (cell.mean, cell.deviation)
    elif isinstance(cell, (Probability, Count, Exact)):
        values = (cell.value,)
    else:
        values = (cell,)
    shown = [_digits(value) for value in values]
    return shown + [""] * (width - len(shown))


def _digits(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _latex(words: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in words)
