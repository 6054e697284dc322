"""One self-contained HTML page of a study: the verdict first, then what it rests on."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from deceptron.report.figures import Figure
from deceptron.report.findings import Finding
from deceptron.report.query import versions
from deceptron.report.tables.formats import aligned_right, groups
from deceptron.report.tables.table import Table, sort_key, text
from deceptron.study.records import Records

LONG = 40  # more rows, lines or sentences are folded


@dataclass(frozen=True)
class Page:
    """What a page shows."""

    records: Records
    verdict: Table
    verdict_words: Sequence[str]
    findings: Sequence[Finding]
    tables: Sequence[Table]
    figures: Sequence[Figure]


def render(page: Page) -> str:
    """The page; figures are embedded, so that the file can be sent alone."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    source = (files("deceptron.report") / "page.html").read_text(encoding="utf-8")
    records = page.records
    return environment.from_string(source).render(
        title=f"Study {records.name}",
        solves=len(records.instances),
        cells=len(records.cells),
        problems=records.cells["problem"].nunique(),
        seeds=", ".join(map(str, sorted(records.cells["seed"].unique()))) or "none",
        small=records.small,
        warning=versions(records),
        verdict=_shown(page.verdict) if page.verdict.lines else None,
        verdict_words=page.verdict_words,
        findings=page.findings,
        tables=[_shown(table) for table in page.tables],
        figures=[figure for figure in page.figures if figure.svg is not None],
        embedded=_embedded,
        settings=_settings(records),
        environment=_flat(records.environment),
        missing=missing(page),
        absent=len(records.missing),
        long=LONG,
    )


def missing(page: Page) -> tuple[str, ...]:
    """A sentence for each cell that was not read and each figure that was not drawn."""
    undrawn = (figure.missing for figure in page.figures if figure.missing is not None)
    return (*(entry.sentence for entry in page.records.missing), *undrawn)


def _shown(table: Table) -> dict[str, Any]:
    """A table as the template lays it out: texts, what to sort by, and where blocks begin."""
    firsts = [row[0] for row in table.rows]
    return {
        "name": table.name,
        "title": table.title,
        "caption": table.caption,
        "notes": table.notes,
        "groups": [(words, span) for words, _, span in groups(table)],
        "columns": list(zip(table.columns, aligned_right(table), strict=True)),
        "rows": [
            {
                "again": k > 0 and firsts[k] == firsts[k - 1],
                "marked": bool(table.lines[k].get("use")),
                "cells": [(text(cell), sort_key(cell)) for cell in row],
            }
            for k, row in enumerate(table.rows)
        ],
    }


def _embedded(figure: Figure) -> str:
    """The drawing as an address that needs no other file; its ids stay its own that way."""
    assert figure.svg is not None
    data = base64.b64encode(figure.svg.read_bytes()).decode("ascii")
    return f"data:image/svg+xml;base64,{data}"


def _settings(records: Records) -> dict[str, str]:
    hidden = ("cells", "shown")
    shown = {name: value for name, value in records.study.items() if name not in hidden}
    return {**_flat(shown), "planned cells": str(len(records.study["cells"]))}


def _flat(value: Any, name: str = "") -> dict[str, str]:
    """Nested settings as ``a.b: text`` lines."""
    if isinstance(value, dict):
        parts = [_flat(item, f"{name}.{key}" if name else str(key)) for key, item in value.items()]
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        parts = [_flat(item, f"{name} {index + 1}") for index, item in enumerate(value)]
    else:
        words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        return {name: words or "none"}
    return {key: text for part in parts for key, text in part.items()}
