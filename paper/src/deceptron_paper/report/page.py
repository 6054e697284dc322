"""One self-contained HTML page of a study: the verdict first, then what it rests on."""

from __future__ import annotations

import base64
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from deceptron_paper.report.figures import Figure
from deceptron_paper.report.query import versions
from deceptron_paper.report.tables.table import sort_key, text
from deceptron_paper.study.records import Records

LONG = 40  # more rows, lines or sentences are folded


def render(records: Records, **content: object) -> str:
    """The page; figures are embedded, so that the file can be sent alone."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.globals |= {"embedded": _embedded, "text": text, "sort_key": sort_key}
    source = (files("deceptron_paper.report") / "page.html").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        records=records,
        warning=versions(records),
        settings=_settings(records),
        environment=_flat(records.environment),
        long=LONG,
        **content,
    )


def _embedded(figure: Figure) -> str:
    """The drawing as an address that needs no other file; its ids stay its own that way."""
    assert figure.svg is not None
    data = base64.b64encode(figure.svg.read_bytes()).decode("ascii")
    return f"data:image/svg+xml;base64,{data}"


def _settings(records: Records) -> dict[str, str]:
    hidden = ("cells", "shown", "own")
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
