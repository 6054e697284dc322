"""Which rows are meant: a number, a slice, a mask, or a list of numbers, as NumPy takes them."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from deceptron.core.errors import ShapeError


def chosen_rows(rows: Any, count: int) -> Int[Tensor, " k"]:
    """Their numbers, from 0 to ``count - 1``; negative ones count from the end.

    A number outside of that is an ``IndexError``, which also ends a loop over the rows.
    """
    if isinstance(rows, slice):
        return torch.tensor(range(*rows.indices(count)), dtype=torch.int64)
    try:
        index = torch.as_tensor(rows).cpu()
    except (TypeError, ValueError, RuntimeError):
        raise ShapeError(
            f"rows must be a number, a slice, a mask or a list of numbers; got {rows!r}"
        ) from None
    if index.numel() == 0 and index.ndim == 1:
        return index.to(torch.int64)
    if index.ndim > 1 or index.is_floating_point() or index.is_complex():
        raise ShapeError(
            "rows must be a number, a slice, a mask or a list of numbers; got "
            f"{index.dtype} of shape {tuple(index.shape)}"
        )
    if index.dtype == torch.bool:
        if tuple(index.shape) != (count,):
            raise ShapeError(
                f"a mask of rows must have one entry for each of the {count} rows; got shape "
                f"{tuple(index.shape)}"
            )
        return index.nonzero().flatten()
    index = index.to(torch.int64).reshape(-1)
    if bool(((index < -count) | (index >= count)).any()):
        worst = int(index[(index < -count) | (index >= count)][0])
        raise IndexError(f"row {worst} is asked for, and there are {count}")
    return torch.where(index < 0, index + count, index)
