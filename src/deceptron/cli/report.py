"""``deceptron report``: tables, figures and a page from the records of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deceptron.cli.printing import say

_SHOWN = 10  # missing parts that are printed


def report(
    run: Annotated[
        Path, typer.Argument(help="A folder of records that `study` wrote.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder to write.  [default: RUN/report]")
    ] = None,
) -> None:
    """Make every table and figure of a study, and a page to read them on, from its records."""
    from deceptron.report.study import report_study

    written = report_study(run, out)
    say(f"{written.tables} tables and {written.figures} figures; read {written.page}")
    for sentence in written.missing[:_SHOWN]:
        say(f"missing: {sentence}")
    if len(written.missing) > _SHOWN:
        say(f"and {len(written.missing) - _SHOWN} more, named on the page")
