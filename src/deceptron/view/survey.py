"""What is worth knowing of a solved file, in two passes over its columns of numbers.

Of x and std only the rows that are shown are read, and a few hundred more to tell how wide the
error bars are: a file of millions of rows needs no more memory than one of thousands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deceptron.core.errors import ConfigError
from deceptron.core.status import Reason, Status
from deceptron.solve.files import Rows, arrays
from deceptron.solve.results import COLUMNS, notes_of
from deceptron.view.counting import WIDTHS, Array, Histogram, Largest

PIECE = 2**16
SHOWN = {"worst": 8, "flagged": 8, "median": 4, "unsolved": 4}
# Runs of rows whose error bars are looked at, spread over the file.
SAMPLES, RUN = 64, 8
_NEEDED = ("x", "status", "reason", "iterations", "residual", "cost")


@dataclass(frozen=True)
class Row:
    """One row of the file, with its answer."""

    number: int
    x: Array
    std: Array | None
    reason: Reason
    iterations: int
    evaluations: int
    residual: float
    over_noise: float | None
    trust: float | None


@dataclass(frozen=True)
class Survey:
    """Counts, histograms and the rows to look at, in groups by why they were picked."""

    path: Path
    notes: Mapping[str, Any]
    rows: int
    x_shape: tuple[int, ...]
    reasons: dict[Reason, int]
    residual: Histogram
    noise_known: bool
    explained: int | None
    trust: Histogram | None
    flagged: int
    bars: Histogram | None
    groups: dict[str, list[Row]]

    @property
    def statuses(self) -> dict[Status, int]:
        """How many rows ended in which way."""
        counts = dict.fromkeys(Status, 0)
        for reason, count in self.reasons.items():
            counts[reason.status] += count
        return {status: count for status, count in counts.items() if count}


def survey(path: Path) -> Survey:
    """Look through a file that ``deceptron solve``, ``dc.solve_file`` or ``.save`` wrote."""
    with arrays(path, COLUMNS, what="result") as columns:
        _check(path, columns)
        return _survey(path, columns)


def _check(path: Path, columns: Mapping[str, Rows]) -> None:
    absent = [name for name in _NEEDED if name not in columns]
    if absent:
        raise ConfigError(
            f"result: {path} must be a result of deceptron solve; it has no {', '.join(absent)}"
        )
    lengths = {rows.shape[0] for rows in columns.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise ConfigError(f"result: the columns of {path} must have the same rows, one or more")


def _survey(path: Path, columns: Mapping[str, Rows]) -> Survey:
    rows = columns["x"].shape[0]
    counts = np.zeros(len(Reason), dtype=np.int64)
    unsolved: list[int] = []
    for first, codes in _pieces(columns["reason"]):
        known = codes[(codes >= 0) & (codes < len(Reason))].astype(np.int64)
        if len(known) != len(codes):
            raise ConfigError(f"result: {path} is not whole: rows from {first} on have no ending")
        counts += np.bincount(known, minlength=len(Reason))
        bad = np.isin(known, [r for r in Reason if r.status == Status.NONFINITE])
        unsolved += (first + np.flatnonzero(bad))[: SHOWN["unsolved"] - len(unsolved)].tolist()
    # Where the noise is not known the column is NaN throughout.
    residual, worst = _ranked(columns, "over_noise", SHOWN["worst"])
    noise_known = residual is not None and residual.total > 0
    measure = "over_noise" if noise_known else "residual"
    if not noise_known:
        residual, worst = _ranked(columns, "residual", SHOWN["worst"])
    assert residual is not None
    explained = None
    if noise_known and "explained" in columns:
        explained = sum(int((part == 1).sum()) for _, part in _pieces(columns["explained"]))
    trust, flagged = _ranked(columns, "trust", SHOWN["flagged"], above=1.0)
    beyond = 0
    if trust is not None:
        beyond = sum(int((part > 1).sum()) for _, part in _pieces(columns["trust"]))
    picked = {
        "worst": worst,
        "flagged": flagged,
        "median": _at_median(columns[measure], residual, SHOWN["median"]),
        "unsolved": unsolved,
    }
    return Survey(
        path=path,
        notes=notes_of(path),
        rows=rows,
        x_shape=columns["x"].shape[1:],
        reasons={reason: int(counts[reason]) for reason in Reason if counts[reason]},
        residual=residual,
        noise_known=noise_known,
        explained=explained,
        trust=trust,
        flagged=beyond,
        bars=_bars(columns.get("std")),
        groups={
            name: [_row(columns, number) for number in numbers]
            for name, numbers in picked.items()
            if numbers
        },
    )


def _pieces(column: Rows) -> Iterator[tuple[int, Array]]:
    for first in range(0, column.shape[0], PIECE):
        yield first, np.asarray(column[first : first + PIECE], dtype=np.float64)


def _ranked(
    columns: Mapping[str, Rows], name: str, count: int, above: float = -np.inf
) -> tuple[Histogram | None, list[int]]:
    if name not in columns:
        return None, []
    histogram = Histogram(WIDTHS) if name == "trust" else Histogram()
    largest = Largest(count, above)
    for first, values in _pieces(columns[name]):
        histogram.add(values)
        # Infinite trust is a flag; an infinite residual is no residual.
        largest.add(
            values if name == "trust" else np.where(np.isinf(values), np.nan, values), first
        )
    return histogram, largest.rows.tolist()


def _at_median(column: Rows, histogram: Histogram, count: int) -> list[int]:
    """The rows nearest to the median, in the order of the file."""
    if not histogram.total:
        return []
    median, nearest = histogram.quantile(0.5), Largest(count)
    for first, values in _pieces(column):
        nearest.add(-np.abs(values - median), first)
    return sorted(nearest.rows.tolist())


def _bars(std: Rows | None) -> Histogram | None:
    """Of the RMS of each row's standard deviations."""
    if std is None:
        return None
    histogram = Histogram()
    last = max(0, std.shape[0] - RUN)
    places = np.linspace(0, last, SAMPLES).astype(np.int64)
    for first in sorted({int(place) // RUN * RUN for place in places}):
        values = np.asarray(std[first : first + RUN], dtype=np.float64)
        histogram.add(np.sqrt(np.square(values.reshape(len(values), -1)).mean(1)))
    return histogram if histogram.total else None


def _row(columns: Mapping[str, Rows], number: int) -> Row:
    def at(name: str) -> Array:
        return np.asarray(columns[name][number : number + 1][0], dtype=np.float64)

    def known(name: str) -> float | None:
        value = float(at(name)) if name in columns else np.nan
        return None if np.isnan(value) else value

    return Row(
        number=number,
        x=at("x"),
        std=at("std") if "std" in columns else None,
        reason=Reason(int(at("reason"))),
        iterations=int(at("iterations")),
        evaluations=int(at("cost")[:-1].sum()),  # all but the steps of inner linear solves
        residual=float(at("residual")),
        over_noise=known("over_noise"),
        trust=known("trust"),
    )
