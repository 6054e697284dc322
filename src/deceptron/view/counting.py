"""Numbers of a column that is read once, in pieces: a histogram and the rows at its end.

Memory does not grow with the rows: values are counted in bins that are 1% wide.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_LOWEST, _HIGHEST, _PER_DECADE = -9, 9, 256
_EDGES = np.logspace(_LOWEST, _HIGHEST, (_HIGHEST - _LOWEST) * _PER_DECADE + 1)


@dataclass
class Histogram:
    """Counts of positive values in bins of equal ratio; what lies outside counts in the ends."""

    counts: Rows = field(default_factory=lambda: np.zeros(len(_EDGES) - 1, dtype=np.int64))
    nonfinite: int = 0

    def add(self, values: Array) -> None:
        """Count a piece."""
        finite = values[np.isfinite(values)]
        self.nonfinite += len(values) - len(finite)
        self.counts += np.bincount(_bins(finite), minlength=len(self.counts))

    @property
    def total(self) -> int:
        """Finite values so far."""
        return int(self.counts.sum())

    def quantile(self, share: float) -> float:
        """The value that this share of the finite ones stays below, to 1%."""
        place = self._bin(share)
        return float(np.sqrt(_EDGES[place] * _EDGES[place + 1]))

    def holds(self, share: float, values: Array) -> npt.NDArray[np.bool_]:
        """Which of the values are, to 1%, at this quantile."""
        found = np.zeros(len(values), dtype=bool)
        finite = np.isfinite(values)
        found[finite] = _bins(values[finite]) == self._bin(share)
        return found

    def bars(self, count: int) -> list[tuple[float, float, int]]:
        """Lower end, upper end and number of values of so many bars; the tails join the last."""
        first, last = self._bin(0.002), self._bin(0.998) + 1
        width = max(1, -(-(last - first) // count))
        starts = list(range(first, last, width))
        found = []
        for start in starts:
            stop = start + width
            low = 0 if start == first else start
            high = len(self.counts) if start == starts[-1] else stop
            number = int(self.counts[low:high].sum())
            found.append((float(_EDGES[start]), float(_EDGES[min(stop, len(_EDGES) - 1)]), number))
        return found

    def _bin(self, share: float) -> int:
        target = max(1, int(np.ceil(share * self.total)))
        return int(np.searchsorted(np.cumsum(self.counts), target))


def _bins(values: Array) -> Rows:
    return np.clip(np.searchsorted(_EDGES, values, side="right") - 1, 0, len(_EDGES) - 2)


@dataclass
class Largest:
    """The rows with the largest values so far, largest first; of equal ones the earlier row."""

    count: int
    above: float = -np.inf
    values: Array = field(default_factory=lambda: np.zeros(0))
    rows: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def add(self, values: Array, first: int) -> None:
        """Look at the rows from ``first`` on."""
        mine = np.flatnonzero(values > self.above)  # NaN is not above anything
        values = np.concatenate([self.values, values[mine]])
        rows = np.concatenate([self.rows, first + mine])
        order = np.lexsort((rows, -values))[: self.count]
        self.values, self.rows = values[order], rows[order]
