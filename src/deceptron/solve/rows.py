"""Row surgery on dataclasses of tensors: take rows out, put rows back, choose row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

T = TypeVar("T", bound="RowData")


@dataclass(frozen=True)
class RowData:
    """Base of everything the loop carries: each tensor field has one entry per live row."""

    def take(self: T, index: Int[Tensor, " k"]) -> T:
        """The rows at ``index``."""
        return self.changed(**{name: rows.index_select(0, index) for name, rows in self._tensors()})

    def put(self: T, index: Int[Tensor, " k"], new: T) -> T:
        """A copy in which the rows at ``index`` are those of ``new``."""
        others = vars(new)
        return self.changed(
            **{name: rows.index_copy(0, index, others[name]) for name, rows in self._tensors()}
        )

    def where(self: T, mask: Bool[Tensor, " B"], other: T) -> T:
        """Rows of self where ``mask`` holds, rows of ``other`` elsewhere."""
        others, columns = vars(other), {1: mask, 2: mask[:, None]}
        chosen = {}
        for name, rows in self._tensors():
            if rows is others[name]:
                continue
            column = columns.get(rows.ndim)
            if column is None:
                column = mask.reshape(-1, *(1,) * (rows.ndim - 1))
            chosen[name] = torch.where(column, rows, others[name])
        return self.changed(**chosen)

    def changed(self: T, **values: Any) -> T:
        """A copy with these values."""
        # Several of these a pass: dataclasses.replace takes longer than the row surgery itself.
        copied = object.__new__(type(self))
        vars(copied).update(vars(self), **values)
        return copied

    def _tensors(self) -> list[tuple[str, Tensor]]:
        return [(name, value) for name, value in vars(self).items() if isinstance(value, Tensor)]


def joined(parts: Sequence[T]) -> T:
    """The rows of all parts, in order."""
    first = parts[0]
    if len(parts) == 1:
        return first
    names = [name for name, _ in first._tensors()]
    return first.changed(**{n: torch.cat([vars(p)[n] for p in parts]) for n in names})


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product of each row of ``a`` with the same row of ``b``."""
    return torch.linalg.vecdot(a, b)


def products(matrix: Float[Tensor, "B k n"], v: Float[Tensor, "B n"]) -> Float[Tensor, "B k"]:
    """Matrix times vector, row by row of the batch."""
    # As matrix @ v it takes up to six times as long (MKL, AVX2).
    return (v[:, None] @ matrix.mT)[:, 0]


def norm(a: Tensor) -> Tensor:
    """Euclidean norm of each row."""
    return torch.linalg.vector_norm(a, dim=-1)
