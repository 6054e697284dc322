"""Small tables for notebooks, with no styles but their own.

They take ink and paper from the page that they are on, so that a dark one stays dark.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

_FEW = 4
_TABLE = "border-collapse:collapse;color:inherit;background:transparent;margin:.3em 0"
_CAPTION = "caption-side:top;text-align:left;font-weight:600;padding:.2em 0;color:inherit"
_CELL = (
    "text-align:left;vertical-align:top;padding:.15em .9em .15em 0;background:transparent;"
    "border:0;border-top:1px solid rgba(128,128,128,.35);color:inherit;white-space:normal"
)
_NAME = f"{_CELL};font-weight:400;opacity:.75;white-space:nowrap"
_NUMBER = f"{_CELL};text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"


def facts(title: str, lines: Mapping[str, str]) -> str:
    """A name and a value a line."""
    return _table(title, "", lines.items(), name=_NAME, cell=_CELL)


def grid(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns with heads; the first cell of a row names it, the others are numbers."""
    heads = "".join(
        f'<th scope="col" style="{_NUMBER if place else _NAME}">{html.escape(name)}</th>'
        for place, name in enumerate(columns)
    )
    head = f"<thead><tr>{heads}</tr></thead>"
    table = _table(title, head, rows, name=f"{_NAME};opacity:1", cell=_NUMBER)
    return f'<div style="overflow-x:auto">{table}</div>'


def sentence(words: str) -> str:
    """A paragraph below a table."""
    return f'<p style="margin:.3em 0;max-width:46em;color:inherit">{html.escape(words)}</p>'


def shape(extents: Sequence[int] | None) -> str:
    """As ``1 × 32 × 32``."""
    return "any shape" if extents is None else " × ".join(map(str, extents))


def brief(value: float) -> str:
    """To two digits, without an exponent where it is large."""
    return f"{value:.2g}" if not abs(value) >= 99.5 else f"{float(f'{value:.2g}'):,.0f}"


def number(value: float | Tensor) -> str:
    """One number, or how far many of them reach."""
    if not isinstance(value, Tensor):
        return f"{float(value):g}"
    if value.numel() and bool((value == value.flatten()[0]).all()):
        return f"{float(value.flatten()[0]):g}"
    return f"{float(value.min()):.3g} to {float(value.max()):.3g}, by component"


def ends(low: float | Tensor, high: float | Tensor) -> str:
    """Of one range, of a few, or how far both sides of many reach."""
    lows, highs = torch.broadcast_tensors(torch.as_tensor(low), torch.as_tensor(high))
    both = torch.stack([lows.flatten(), highs.flatten()], dim=1)
    if bool((both == both[0]).all()):
        both = both[:1]
    if len(both) > _FEW:
        return f"low {number(lows)}; high {number(highs)}"
    return ", ".join(f"{a:g} to {b:g}" for a, b in both.tolist())


def _table(title: str, head: str, rows: Iterable[Sequence[str]], *, name: str, cell: str) -> str:
    caption = f'<caption style="{_CAPTION}">{html.escape(title)}</caption>'
    body = "".join(
        f'<tr><th scope="row" style="{name}">{html.escape(first)}</th>'
        + "".join(f'<td style="{cell}">{html.escape(text)}</td>' for text in others)
        + "</tr>"
        for first, *others in rows
    )
    return f'<table style="{_TABLE}">{caption}{head}<tbody>{body}</tbody></table>'
