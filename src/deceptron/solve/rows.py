"""Row surgery on dataclasses of tensors: take rows out, put rows back, choose row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

T = TypeVar("T", bound="RowData")


@dataclass(frozen=True)
class RowData:
    """Base of everything the loop carries: each tensor field has one entry per live row."""

    def take(self: T, index: Int[Tensor, " k"]) -> T:
        """The rows at ``index``."""
        return replace(self, **{name: value[index] for name, value in self._tensors()})

    def put(self: T, index: Int[Tensor, " k"], new: T) -> T:
        """A copy in which the rows at ``index`` are those of ``new``."""
        changed = {}
        for name, value in self._tensors():
            changed[name] = value.clone()
            changed[name][index] = getattr(new, name)
        return replace(self, **changed)

    def where(self: T, mask: Bool[Tensor, " B"], other: T) -> T:
        """Rows of self where ``mask`` holds, rows of ``other`` elsewhere."""
        chosen = {}
        for name, value in self._tensors():
            column = mask.reshape(-1, *(1,) * (value.ndim - 1))
            chosen[name] = torch.where(column, value, getattr(other, name))
        return replace(self, **chosen)

    def _tensors(self) -> list[tuple[str, Tensor]]:
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return [(name, value) for name, value in pairs if isinstance(value, Tensor)]


def joined(parts: Sequence[T]) -> T:
    """The rows of all parts, in order."""
    first = parts[0]
    if len(parts) == 1:
        return first
    names = [name for name, _ in first._tensors()]
    return replace(first, **{n: torch.cat([getattr(p, n) for p in parts]) for n in names})


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product of each row of ``a`` with the same row of ``b``."""
    return torch.linalg.vecdot(a, b)


def norm(a: Tensor) -> Tensor:
    """Euclidean norm of each row."""
    return torch.linalg.vector_norm(a, dim=-1)
