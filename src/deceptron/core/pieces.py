"""How many rows go through a network at a time: fewer of them on finer grids."""

from __future__ import annotations

from torch import Tensor

# Activations of a network, and dual numbers of them, are some hundred times as large as its input.
MOST_ROWS, MOST_NUMBERS = 256, 2**19


def rows_at_a_time(*rows: Tensor) -> int:
    """For a map between rows like these."""
    largest = max(row[0].numel() for row in rows)
    return max(1, min(MOST_ROWS, MOST_NUMBERS // largest))
