"""Tables of text: a row a line, between commas, semicolons, tabs or blanks.

A row must be neither lost nor made of a header: answers would belong to other observations. So a
first line is a header if it holds words alone or begins with ``#``, and what might be either is
refused.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

# A sensor that is missing, beside what float reads as NaN.
_NOTHING = ("", "na", "n/a", "null", "none")
_MARKS = (";", "\t", ",")  # beside another one a comma is that of a decimal, and refused


def read_table(path: Path) -> NDArray[np.float64]:
    """Its rows; ValueError with the line that is none."""
    rows: list[list[float]] = []
    blank, first = 0, True
    with open(path, encoding="utf-8-sig", newline="") as file:
        between = _mark(file)
        for number, fields in _lines(file, between):
            if not any(fields) and len(fields) < 2:
                blank += 1
                continue
            comment = not rows and fields[0].startswith("#")
            if comment or (first and _is_header(fields, number, between)):
                blank, first = 0, False
                continue
            row, first = _row(fields, number), False
            if rows and len(row) != len(rows[0]):
                words = f"line {number} has {len(row)} fields, those before {len(rows[0])}"
                raise ValueError(words)
            if len(row) == 1:
                # Of one sensor a blank line is one that is missing, if others follow.
                rows += [[math.nan]] * blank
            rows.append(row)
            blank = 0
    return np.array(rows)


def _mark(file: TextIO) -> str | None:
    """What stands between fields, None if blanks do; a header may have another."""
    filled = (line for line in file if line.strip())
    first, second = next(filled, ""), next(filled, "")
    file.seek(0)
    return next((mark for line in (second, first) for mark in _MARKS if mark in line), None)


def _lines(file: TextIO, between: str | None) -> Iterator[tuple[int, list[str]]]:
    found: Iterable[list[str]] = (line.split() for line in file)
    if between is not None:
        found = csv.reader(file, delimiter=between)
    for number, fields in enumerate(found, 1):
        yield number, [field.strip() for field in fields]


def _row(fields: list[str], number: int) -> list[float]:
    values = [_value(field) for field in fields]
    for place, value in enumerate(values):
        if value is None:
            words = f"field {place + 1} is {fields[place][:40]!r}, which is not a number"
            raise ValueError(f"line {number}: {words}")
    return [value for value in values if value is not None]


def _value(field: str) -> float | None:
    text = field.strip('"').strip()
    if text.lower() in _NOTHING:
        return math.nan
    try:
        return float(text)
    except ValueError:
        return None


def _is_header(fields: list[str], number: int, between: str | None) -> bool:
    values = [_value(field) for field in fields]
    words = [field for field, value in zip(fields, values, strict=True) if value is None]
    if len(words) == len(fields) or (between is None and values[0] is None):
        return True
    if words and any(value is not None and not math.isnan(value) for value in values):
        raise ValueError(
            f"line {number} holds numbers and words ({words[0][:40]!r}): a header names every "
            "column in words, and a sensor that is missing is an empty field or NaN"
        )
    counted = fields[1:] if not fields[0] else fields
    if len(counted) > 1 and counted == [str(k) for k in range(len(counted))]:
        raise ValueError(
            f"line {number} counts 0, 1, 2, ...: if that is a header, as pandas writes it, leave "
            "it out with to_csv(header=False, index=False); if it was measured, put a line of "
            "names above it"
        )
    return bool(words)
