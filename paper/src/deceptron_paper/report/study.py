"""A study's records as a folder that people read: tables, figures and one page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from deceptron import ConfigError
from deceptron.work import replacing
from deceptron_paper.report.figures import draw_all
from deceptron_paper.report.findings import findings
from deceptron_paper.report.page import render
from deceptron_paper.report.query import Query
from deceptron_paper.report.tables import make_tables, write
from deceptron_paper.report.verdict import verdict, verdict_words
from deceptron_paper.study.records import read


@dataclass(frozen=True)
class StudyReport:
    """What was written, and the sentences about what could not be."""

    page: Path
    tables: int
    figures: int
    missing: tuple[str, ...]


def report_study(
    run: str | os.PathLike[str], out: str | os.PathLike[str] | None = None
) -> StudyReport:
    """Write ``tables/``, ``figures/`` and ``index.html`` into ``out`` (``RUN/report``).

    Needs the records only. Cells that are missing or damaged are named, and the rest is shown.
    """
    folder = Path(run) / "report" if out is None else Path(out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"out must be a folder; got the file {str(folder)!r}")
    records = read(run)
    query = Query(records)
    choice = verdict(query)
    tables = [table for table in make_tables(query) if table.has_content]
    for table in (choice, *tables):
        write(table, folder / "tables")
    figures = draw_all(query, folder / "figures", small=records.small)
    undrawn = [figure.missing for figure in figures if figure.missing is not None]
    missing = (*(entry.sentence for entry in records.missing), *undrawn)
    page = folder / "index.html"
    with replacing(page) as temporary:
        content = render(
            records,
            verdict=choice,
            verdict_words=verdict_words(query),
            findings=findings(query),
            tables=tables,
            figures=[figure for figure in figures if figure.svg is not None],
            missing=missing,
        )
        temporary.write_text(content, encoding="utf-8")
    return StudyReport(page, 1 + len(tables), len(figures) - len(undrawn), missing)
