"""A table before it is a file: typed cells, so that each format can show them its own way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from itertools import groupby, pairwise
from typing import Any, TypeAlias

from deceptron_paper.report.captions import caption
from deceptron_paper.report.query import Query
from deceptron_paper.statistics import Interval, Paired

MISSING = "-"
FEW = 30  # a sample below this is marked


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds."""

    mean: float
    deviation: float

    def __str__(self) -> str:
        if math.isnan(self.deviation):
            return number(self.mean)
        scale = max(abs(self.mean), self.deviation)
        return f"{number(self.mean, scale)} ± {number(self.deviation, scale)}"


@dataclass(frozen=True)
class Probability:
    """The p of a test."""

    value: float

    def __str__(self) -> str:
        if math.isnan(self.value):
            return MISSING
        return "<0.001" if self.value < 0.001 else f"{self.value:.3f}"


@dataclass(frozen=True)
class Count:
    """A number of instances; a small one is marked."""

    value: int

    def __str__(self) -> str:
        return f"{self.value}*" if self.value < FEW else str(self.value)


@dataclass(frozen=True)
class Exact:
    """A number that is no measurement, shown as it is: a setting, a median number of steps."""

    value: float

    def __str__(self) -> str:
        return MISSING if math.isnan(self.value) else f"{self.value:.6g}"


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
    def texts(self) -> list[list[str]]:
        """As people read them; a repetition of what stands above in the first column is blank."""
        rows = [[text(cell) for cell in row] for row in self.rows]
        for above, row in reversed(list(pairwise(rows))):
            row[0] = "" if row[0] == above[0] else row[0]
        return rows

    @property
    def aligned_right(self) -> list[bool]:
        """Whether each column holds numbers."""
        return [any(is_number(line.get(c.key)) for line in self.lines) for c in self.columns]

    @property
    def groups(self) -> list[tuple[str, int, int]]:
        """Runs of columns under one heading: its text, first column and width."""
        found: list[tuple[str, int, int]] = []
        for words, run in groupby(self.columns, key=lambda column: column.group):
            found.append((words, sum(span for *_, span in found), len(list(run))))
        return found

    @property
    def has_content(self) -> bool:
        """Whether there is more to read than labels and dashes."""
        cells = [cell for row in self.rows for cell in row]
        return bool(cells) and (
            all(cell is not None for cell in cells) or any(map(is_known, cells))
        )


def table(
    name: str, title: str, columns: tuple[Column, ...], **facts: object
) -> Callable[[Callable[[Query], Iterable[Any]]], Callable[[Query], Table]]:
    """Makes a table of a function that yields its lines, or what the columns can measure.

    Its caption is that of its name in ``captions.jinja``, which may need ``facts``.
    """

    def decorate(subjects: Callable[[Query], Iterable[Any]]) -> Callable[[Query], Table]:
        @wraps(subjects)
        def make(query: Query) -> Table:
            lines = tuple(
                subject if isinstance(subject, Mapping) else measured(columns, subject)
                for subject in subjects(query)
            )
            return Table(name, title, caption(name, query, **facts), columns, lines)

        return make

    return decorate


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
    if isinstance(cell, Interval):
        if math.isnan(cell.value) or math.isnan(cell.low):
            return number(cell.value)
        scale = max(abs(cell.value), (cell.high - cell.low) / 2)
        value, low, high = (number(part, scale) for part in (cell.value, cell.low, cell.high))
        return f"{value} [{low}, {high}]"
    return number(cell) if isinstance(cell, float) else str(cell)


def numbers(cell: Value) -> tuple[Any, ...]:
    """The cell as programs read it: an interval has three numbers, a spread two."""
    if isinstance(cell, Interval):
        return cell.value, cell.low, cell.high
    if isinstance(cell, Spread):
        return cell.mean, cell.deviation
    return (cell.value if isinstance(cell, (Probability, Count, Exact)) else cell,)


def difference(ours: Value, paper: Value) -> Value:
    """Ours minus the paper's, where both are numbers."""
    one, other = numbers(ours)[0], numbers(paper)[0]
    if not (isinstance(one, float) and isinstance(other, float)):
        return None
    return Exact(one - other) if isinstance(ours, Exact) else one - other


def change(found: Paired | None) -> Interval | None:
    """The mean difference of a paired comparison."""
    return None if found is None else found.difference


def p_value(found: Paired | None) -> Probability | None:
    """Its p."""
    return None if found is None else Probability(found.p)


def sort_key(cell: Value) -> str:
    """What a reader's program sorts by: a number in full, or the words; empty for a dash."""
    first = numbers(cell)[0]
    return "" if first is None or first != first else str(first)


def is_number(cell: Value) -> bool:
    """Whether a column of such cells is aligned on the right."""
    return cell is not None and not isinstance(cell, str)


def is_known(cell: Value) -> bool:
    """Whether it is a number that is one."""
    return is_number(cell) and bool(sort_key(cell))
