"""A table before it is a file: typed cells, so that each format can show them its own way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from deceptron.study.statistics import Interval

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


Cell: TypeAlias = str | int | float | Interval | Spread | Probability | Count | Exact | None


@dataclass(frozen=True)
class Column:
    """``key`` heads it in CSV, ``title`` where people read; ``group`` stands above its columns."""

    key: str
    title: str
    group: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns; equal values of the first column below each other are a block.

    ``None`` and NaN are shown as a dash; ``notes`` say which records were missing.
    """

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.name}: {len(row)} cells, {len(self.columns)} columns"
                )


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


def text(cell: Cell) -> str:
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


def difference(ours: Cell, paper: Cell) -> Cell:
    """Ours minus the paper's, where both are numbers."""
    if isinstance(ours, Exact) and isinstance(paper, Exact):
        return Exact(ours.value - paper.value)
    if isinstance(ours, Spread) and isinstance(paper, Spread):
        return ours.mean - paper.mean
    value = ours.value if isinstance(ours, Interval) else ours
    return value - paper if isinstance(value, float) and isinstance(paper, float) else None


def is_number(cell: Cell) -> bool:
    """Whether a column of such cells is aligned on the right."""
    return cell is not None and not isinstance(cell, str)
