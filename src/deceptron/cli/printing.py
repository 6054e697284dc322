"""Sentences and tables for a terminal, for a narrow one, and for a pipe; no name is ever broken."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

import typer


def say(sentence: str) -> None:
    """Print a sentence: in a terminal wrapped between words, in a pipe on one line."""
    if not sys.stdout.isatty():
        typer.echo(sentence)
        return
    indent = " " * (len(sentence) - len(sentence.lstrip()))
    width = shutil.get_terminal_size().columns
    wrapped = textwrap.fill(
        sentence.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    typer.echo(wrapped)


def table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, prose: Sequence[str] = ()
) -> None:
    """Print rows of text; the columns in ``prose`` may go over several lines, the others never.

    In a terminal it is a table with lines. In a pipe it is columns and blanks, a line a row. Where
    it does not fit, rows are printed one below the other, a line a cell.
    """
    if not sys.stdout.isatty():
        _columns(title, heads, rows)
        return
    room = shutil.get_terminal_size().columns
    least = [
        max(len(word) for row in (heads, *rows) for word in _words(row[place], head in prose))
        for place, head in enumerate(heads)
    ]
    if sum(least) + 3 * len(heads) + 1 > room:
        _stacked(title, heads, rows)
        return
    from rich.console import Console
    from rich.table import Table

    drawn = Table(title=title or None, title_justify="left", show_lines=bool(prose))
    for head, width in zip(heads, least, strict=True):
        drawn.add_column(head, no_wrap=head not in prose, min_width=width)
    for row in rows:
        drawn.add_row(*row)
    Console(highlight=False, markup=False).print(drawn)


def _words(cell: str, splits: bool) -> list[str]:
    return (cell.split() if splits else [cell]) or [""]


def _columns(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if title:
        typer.echo(title)
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def _stacked(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if title:
        typer.echo(title)
    for first, *others in rows:
        say(first)
        for head, cell in zip(heads[1:], others, strict=True):
            say(f"  {head}: {cell}")
