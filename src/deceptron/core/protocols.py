"""The shapes through which the rooms meet without importing each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

from torch import Tensor

# Maps rows to rows, each row on its own: (B, *in_shape) -> (B, *out_shape).
RowMap: TypeAlias = Callable[[Tensor], Tensor]


@runtime_checkable
class Pair(Protocol):
    """A forward surrogate and a reverse map, both in normalised measurement space."""

    def f(self, x: Tensor) -> Tensor:
        """Latents to normalised measurements."""
        ...

    def g(self, y: Tensor) -> Tensor:
        """Normalised measurements to latents."""
        ...
