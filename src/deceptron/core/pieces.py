"""How many rows go through a network at a time: fewer of them on finer grids."""

from __future__ import annotations

import torch
from torch import Tensor

from deceptron.core.protocols import RowMap

# Activations of a network, and dual numbers of them, are some hundred times as large as its input.
MOST_ROWS, MOST_NUMBERS = 256, 2**19
# Beyond so many numbers they leave the cache of a CPU: 256 rows of 32 x 32 at once take a third
# longer than four times 64.
CACHED = 2**16


def rows_at_a_time(*rows: Tensor) -> int:
    """For a map between rows like these."""
    largest = max(row[0].numel() for row in rows)
    return max(1, min(MOST_ROWS, MOST_NUMBERS // largest))


def in_pieces(function: RowMap, rows: Tensor) -> Tensor:
    """``function(rows)``; on a CPU, as many rows at a time as are fastest."""
    most = max(1, CACHED // rows.shape[1:].numel())
    if len(rows) <= most or rows.device.type != "cpu":
        return function(rows)
    return torch.cat([function(part) for part in rows.split(most)])
