"""Numbers of a column that is read once, in pieces: a histogram and the rows at its end.

Memory does not grow with the rows: values are counted in narrow bins.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

# Bins of equal ratio, 1% wide, for what is positive; and of equal width for scores.
RATIOS = np.logspace(-9, 9, 18 * 256 + 1)
WIDTHS = np.linspace(-20, 100, 12001)


class Histogram:
    """Counts of values between ``edges``; what lies outside counts in the bins at the ends."""

    def __init__(self, edges: Array = RATIOS) -> None:
        self.edges, self.nonfinite = edges, 0
        self.counts = np.zeros(len(edges) - 1, dtype=np.int64)

    @property
    def logarithmic(self) -> bool:
        """Whether equal bins have equal ratios."""
        return bool(self.edges[0] > 0)

    def add(self, values: Array) -> None:
        """Count a piece."""
        finite = values[np.isfinite(values)]
        self.nonfinite += len(values) - len(finite)
        self.counts += np.bincount(self._bins(finite), minlength=len(self.counts))

    @property
    def total(self) -> int:
        """Finite values so far."""
        return int(self.counts.sum())

    def quantile(self, share: float) -> float:
        """The value that this share of the finite ones stays below, to the width of a bin."""
        low, high = self.edges[self._bin(share)], self.edges[self._bin(share) + 1]
        return float(np.sqrt(low * high) if self.logarithmic else (low + high) / 2)

    def bars(self, count: int) -> list[tuple[float, float, int]]:
        """Lower end, upper end and number of values of so many bars; the tails join the last."""
        first, last = self._bin(0.002), self._bin(0.998) + 1
        width = max(1, -(-(last - first) // count))
        starts = list(range(first, last, width))
        found = []
        for start in starts:
            stop = min(start + width, len(self.counts))
            low = 0 if start == first else start
            high = len(self.counts) if start == starts[-1] else stop
            ends = float(self.edges[start]), float(self.edges[stop])
            found.append((*ends, int(self.counts[low:high].sum())))
        return found

    def _bin(self, share: float) -> int:
        target = max(1, int(np.ceil(share * self.total)))
        return int(np.searchsorted(np.cumsum(self.counts), target))

    def _bins(self, values: Array) -> Rows:
        places = np.searchsorted(self.edges, values, side="right") - 1
        return np.clip(places, 0, len(self.counts) - 1)


class Largest:
    """The rows with the largest values so far, largest first; of equal ones the earlier row."""

    def __init__(self, count: int, above: float = -np.inf) -> None:
        self.count, self.above = count, above
        self.values, self.rows = np.zeros(0), np.zeros(0, dtype=np.int64)

    def add(self, values: Array, first: int) -> None:
        """Look at the rows from ``first`` on."""
        mine = np.flatnonzero(values > self.above)  # NaN is not above anything
        values = np.concatenate([self.values, values[mine]])
        rows = np.concatenate([self.rows, first + mine])
        order = np.lexsort((rows, -values))[: self.count]
        self.values, self.rows = values[order], rows[order]
