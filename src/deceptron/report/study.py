"""A study's records as a folder that people read: tables, figures and one page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from deceptron.core.errors import ConfigError
from deceptron.core.files import replacing
from deceptron.report.figures import draw_all
from deceptron.report.findings import findings
from deceptron.report.index import Index
from deceptron.report.page import missing, render
from deceptron.report.tables import TABLES, write
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
    index = Index(records)
    tables = [make(index) for make in TABLES]
    for table in tables:
        write(table, folder / "tables")
    figures = draw_all(index, folder / "figures", small=records.small)
    page = folder / "index.html"
    with replacing(page) as temporary:
        temporary.write_text(render(records, findings(index), tables, figures), encoding="utf-8")
    drawn = sum(figure.missing is None for figure in figures)
    return StudyReport(page, len(tables), drawn, missing(records, figures))
