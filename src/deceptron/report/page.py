"""One self-contained HTML page of a study: findings, tables, figures, settings, what is missing."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from typing import Any

from deceptron.report.figures import Figure
from deceptron.report.findings import Finding
from deceptron.report.tables import Table, to_html
from deceptron.report.words import versions
from deceptron.study.records import Records

LONG = 40  # more rows, lines or sentences are folded
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #6a737d; --line: #d8dee4;
  --tint: #f4f6f8; --mark: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e2e6ea; --paper: #14181c; --faint: #98a2ad;
  --line: #333b44; --tint: #1d2329; --mark: #e3b341; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.25rem; margin-top: 2.5rem;
  border-bottom: 1px solid var(--line); } h3 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
p, li, figcaption { max-width: 46rem; overflow-wrap: anywhere; } a { color: inherit; }
nav { background: var(--tint); padding: .5rem 1rem; border-radius: .4rem; columns: 16rem; }
nav ul { margin: 0; padding-left: 1.1rem; } nav li { break-inside: avoid; }
.caption, figcaption, .note { color: var(--faint); font-size: .88rem; }
.note { font-style: italic; }
.banner { border-left: 4px solid var(--mark); padding: .3rem .8rem; background: var(--tint); }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .4rem; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .55rem; text-align: left; white-space: nowrap; vertical-align: top; }
thead th { background: var(--tint); } th.n, td.n { text-align: right; }
thead th[colspan]:not([colspan="1"]) { text-align: center; border-bottom: 1px solid var(--line); }
tr.block td { border-top: 1px solid var(--line); }
td:first-child, th:first-child { position: sticky; left: 0; background: var(--paper); }
thead th:first-child { background: var(--tint); }
tbody tr:hover td { background: var(--tint); } summary { cursor: pointer; margin: .4rem 0; }
.wrap td { white-space: normal; min-width: 10rem; max-width: 32rem; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; background: #fff; padding: .4rem;
  border-radius: .3rem; }
@media print { .scroll { overflow: visible; } nav { display: none; } }
"""


def render(
    records: Records,
    findings: Sequence[Finding],
    tables: Sequence[Table],
    figures: Sequence[Figure],
) -> str:
    """The page; images are embedded, so that the file can be sent alone."""
    sections = [
        ("findings", "What was found", _findings(findings)),
        ("tables", "Tables", "\n".join(map(_table, tables))),
        ("figures", "Figures", "\n".join(map(_figure, figures)) or "<p>None were drawn.</p>"),
        ("settings", "Settings", _pairs(_settings(records))),
        ("environment", "Environment", _pairs(_flat(records.environment))),
        ("missing", "What is missing", _missing(missing(records, figures))),
    ]
    body = "\n".join(
        f'<section id="{name}"><h2>{title}</h2>\n{content}\n</section>'
        for name, title, content in sections
    )
    title = f"Study {html.escape(records.name)}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
        f"{_opening(records)}\n{_contents(sections, tables, figures)}\n{body}\n</body></html>\n"
    )


def _opening(records: Records) -> str:
    cells = records.cells
    solved = len(records.instances)
    problems = cells["problem"].nunique()
    seeds = ", ".join(map(str, sorted(cells["seed"].unique()))) or "none"
    words = (
        f"<p>{solved} solves in {len(cells)} finished cells on {problems} problems, seeds {seeds}. "
        "Made from the records alone; each table is also there as CSV, Markdown and LaTeX, each "
        "figure as PNG and PDF.</p>"
    )
    if records.small:
        words += (
            '<p class="banner">Small samples: this study shows that everything runs. '
            "Its numbers are not results.</p>"
        )
    if (warning := versions(records)) is not None:
        words += f'<p class="banner">{html.escape(warning)}</p>'
    if records.missing:
        count = len(records.missing)
        parts = "part of the study is" if count == 1 else "parts of the study are"
        words += (
            f'<p class="banner">{count} {parts} missing or damaged: '
            '<a href="#missing">see below</a>.</p>'
        )
    return words


def _contents(
    sections: Sequence[tuple[str, str, str]], tables: Sequence[Table], figures: Sequence[Figure]
) -> str:
    inner = {
        "tables": [(f"table-{table.name}", table.title) for table in tables],
        "figures": [(f"figure-{figure.name}", figure.title) for figure in figures],
    }
    items = []
    for name, title, _ in sections:
        links = "".join(f"<li>{_link(*entry)}</li>" for entry in inner.get(name, ()))
        items.append(f"<li>{_link(name, title)}{f'<ul>{links}</ul>' if links else ''}</li>")
    return f"<nav><ul>{''.join(items)}</ul></nav>"


def _link(name: str, title: str) -> str:
    return f'<a href="#{html.escape(name)}">{html.escape(title)}</a>'


def _findings(findings: Sequence[Finding]) -> str:
    parts = []
    for finding in findings:
        answers = "".join(f"<li>{html.escape(answer)}</li>" for answer in finding.answers)
        parts.append(f"<h3>{html.escape(finding.question)}</h3><ul>{answers}</ul>")
    return "\n".join(parts)


def _table(table: Table) -> str:
    content = "<p>No rows.</p>"
    if table.rows:
        content = _folded(f'<div class="scroll">{to_html(table)}</div>', len(table.rows), "rows")
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in table.notes)
    return (
        f'<h3 id="table-{table.name}">{html.escape(table.title)}</h3>'
        f'<p class="caption">{html.escape(table.caption)} '
        f"{_files('tables', table.name, ('csv', 'md', 'tex'))}</p>{content}{notes}"
    )


def _figure(figure: Figure) -> str:
    head = f'<h3 id="figure-{html.escape(figure.name)}">{html.escape(figure.title)}</h3>'
    if figure.png is None:
        return f'{head}<p class="note">Not drawn. {html.escape(figure.missing or "")}</p>'
    data = base64.b64encode(figure.png.read_bytes()).decode("ascii")
    return (
        f'{head}<figure><img alt="{html.escape(figure.title)}" loading="lazy" '
        f'src="data:image/png;base64,{data}"><figcaption>{html.escape(figure.caption)} '
        f"{_files('figures', figure.name, ('png', 'pdf'))}</figcaption></figure>"
    )


def _files(folder: str, name: str, suffixes: Iterable[str]) -> str:
    links = (f'<a href="{folder}/{name}.{suffix}">{suffix}</a>' for suffix in suffixes)
    return f"[{', '.join(links)}]"


def _settings(records: Records) -> dict[str, str]:
    shown = {name: value for name, value in records.study.items() if name != "cells"}
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


def _pairs(lines: dict[str, str]) -> str:
    if not lines:
        return "<p>Not recorded.</p>"
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>"
        for name, value in lines.items()
    )
    content = f'<div class="scroll wrap"><table><tbody>{rows}</tbody></table></div>'
    return _folded(content, len(lines), "lines")


def missing(records: Records, figures: Sequence[Figure]) -> tuple[str, ...]:
    """A sentence for each cell that was not read and each figure that was not drawn."""
    undrawn = (figure.missing for figure in figures if figure.missing is not None)
    return (*(entry.sentence for entry in records.missing), *undrawn)


def _missing(sentences: Sequence[str]) -> str:
    if not sentences:
        return "<p>Nothing: every planned cell was read and every figure drawn.</p>"
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    return _folded(f"<ul>{items}</ul>", len(sentences), "parts")


def _folded(content: str, count: int, unit: str) -> str:
    """What is long waits behind a line that says how long."""
    if count <= LONG:
        return content
    return f"<details><summary>{count} {unit}</summary>{content}</details>"
