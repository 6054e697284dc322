"""A study's records as a folder that people read: tables, figures and one page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from deceptron.core.errors import ConfigError
from deceptron.core.files import replacing
from deceptron.report.figures import draw_all
from deceptron.report.findings import findings
from deceptron.report.page import Page, missing, render
from deceptron.report.query import Query
from deceptron.report.tables import make_tables, write
from deceptron.report.verdict import choices, verdict_table, verdict_words
from deceptron.study.records import read


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
    found = choices(query)
    verdict = verdict_table(found)
    tables = [table for table in make_tables(query) if table.has_content]
    for table in (verdict, *tables):
        write(table, folder / "tables")
    figures = draw_all(query, folder / "figures", small=records.small)
    page = folder / "index.html"
    content = Page(records, verdict, verdict_words(query, found), findings(query), tables, figures)
    with replacing(page) as temporary:
        temporary.write_text(render(content), encoding="utf-8")
    drawn = sum(figure.missing is None for figure in figures)
    return StudyReport(page, 1 + len(tables), drawn, missing(content))
