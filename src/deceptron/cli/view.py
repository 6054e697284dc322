"""``deceptron view``: a page about a solved file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deceptron.cli.printing import say


def view(
    result: Annotated[
        Path, typer.Argument(help="What `solve` wrote: .zarr, .npz or .h5.", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The page to write.  [default: RESULT as .html]"),
    ] = None,
) -> None:
    """Write one HTML page: how the rows ended, trust, error bars, and which rows to look at.

    The page is self-contained. Files of any size are read in pieces.
    """
    from deceptron.view import write_page

    page, found = write_page(result, output)
    shown = sum(map(len, found.groups.values()))
    say(f"{found.rows} rows, {shown} of them to look at; read {page}")
