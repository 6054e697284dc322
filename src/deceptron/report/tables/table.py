"""A table before it is a file: typed cells, so that each format can show them its own way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Any, TypeAlias

from deceptron.study.statistics import Interval, Paired

MISSING = "-"
FEW = 30  # a sample below this is marked


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Probability:
    """The p of a test."""

    value: float


@dataclass(frozen=True)
class Count:
    """A number of instances; a small one is marked."""

    value: int


@dataclass(frozen=True)
class Exact:
    """A number that is no measurement, shown as it is: a setting, a median number of steps."""

    value: float


Value: TypeAlias = str | int | float | Interval | Spread | Probability | Count | Exact | None
Line: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True)
class Column:
    """``key`` heads it in CSV, ``title`` where people read; ``group`` stands above its columns.

    ``value`` measures it on what a line is about, ``paper`` looks up what was published about a
    problem; a column without them is filled by the table.
    """

    key: str
    title: str
    group: str = ""
    value: Callable[[Any], Value] | None = None
    paper: Callable[[str], Value] | None = None


@dataclass(frozen=True)
class Table:
    """Lines of values by the key of their column; what a line does not have is a dash, as is NaN.

    Equal values of the first column below each other are a block; ``notes`` say which records were
    missing.
    """

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = {column.key for column in self.columns}
        for line in self.lines:
            if not line.keys() <= known:
                raise ValueError(f"table {self.name} has no column {(line.keys() - known).pop()}")

    @property
    def rows(self) -> list[list[Value]]:
        """The values in the order of the columns."""
        return [[line.get(column.key) for column in self.columns] for line in self.lines]

    @property
    def has_content(self) -> bool:
        """Whether there is more to read than labels and dashes."""
        cells = [cell for row in self.rows for cell in row]
        return bool(cells) and (
            all(cell is not None for cell in cells)
            or any(is_number(cell) and sort_key(cell) for cell in cells)
        )


def measured(columns: Iterable[Column], subject: Any) -> dict[str, Value]:
    """The columns that can be measured on ``subject``."""
    return {column.key: column.value(subject) for column in columns if column.value is not None}


def paper_line(columns: Iterable[Column], problem: str) -> dict[str, Value]:
    """The columns that the paper has for a problem."""
    return {column.key: column.paper(problem) for column in columns if column.paper is not None}


def differences(ours: Line, paper: Line) -> dict[str, Value]:
    """Ours minus the paper's, column by column."""
    return {key: difference(ours.get(key), value) for key, value in paper.items()}


def number(value: float, scale: float | None = None) -> str:
    """Three significant digits of ``scale`` (of the value itself), exponents where they help."""
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(float(f"{value if scale is None else scale:.2e}"))
    if value == 0 or size == 0:
        return "0"
    if not 1e-4 <= size < 1e6:
        return f"{value:.2e}"
    digits = 2 - math.floor(math.log10(size))
    return f"{round(value, digits):.{max(0, digits)}f}"


def text(cell: Value) -> str:
    """The cell as people read it."""
    if cell is None:
        return MISSING
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Interval):
        if math.isnan(cell.value) or math.isnan(cell.low):
            return number(cell.value)
        scale = max(abs(cell.value), (cell.high - cell.low) / 2)
        value, low, high = (number(part, scale) for part in (cell.value, cell.low, cell.high))
        return f"{value} [{low}, {high}]"
    if isinstance(cell, Spread):
        if math.isnan(cell.deviation):
            return number(cell.mean)
        scale = max(abs(cell.mean), cell.deviation)
        return f"{number(cell.mean, scale)} ± {number(cell.deviation, scale)}"
    if isinstance(cell, Probability):
        if math.isnan(cell.value):
            return MISSING
        return "<0.001" if cell.value < 0.001 else f"{cell.value:.3f}"
    if isinstance(cell, Count):
        return f"{cell.value}*" if cell.value < FEW else str(cell.value)
    if isinstance(cell, Exact):
        return MISSING if math.isnan(cell.value) else f"{cell.value:.6g}"
    if isinstance(cell, int):
        return str(cell)
    return number(cell)


def difference(ours: Value, paper: Value) -> Value:
    """Ours minus the paper's, where both are numbers."""
    if isinstance(ours, Exact) and isinstance(paper, Exact):
        return Exact(ours.value - paper.value)
    if isinstance(ours, Spread) and isinstance(paper, Spread):
        return ours.mean - paper.mean
    value = ours.value if isinstance(ours, Interval) else ours
    return value - paper if isinstance(value, float) and isinstance(paper, float) else None


def change(found: Paired | None) -> Interval | None:
    """The mean difference of a paired comparison."""
    return None if found is None else found.difference


def p_value(found: Paired | None) -> Probability | None:
    """Its p."""
    return None if found is None else Probability(found.p)


def count(trials: Sized) -> Count | None:
    """How many there are; a dash for none."""
    return Count(len(trials)) if len(trials) else None


def sort_key(cell: Value) -> str:
    """What a reader's program sorts by: a number in full, or the words; empty for a dash."""
    if isinstance(cell, (Interval, Probability, Count, Exact)):
        cell = cell.value
    elif isinstance(cell, Spread):
        cell = cell.mean
    return "" if cell is None or cell != cell else str(cell)


def is_number(cell: Value) -> bool:
    """Whether a column of such cells is aligned on the right."""
    return cell is not None and not isinstance(cell, str)
