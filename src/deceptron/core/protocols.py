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


@runtime_checkable
class GaussianPrior(Protocol):
    """N(mean, C) on rows of latents, in the form that solvers need."""

    @property
    def mean(self) -> Tensor:
        """One row of x."""
        ...

    def apply(self, v: Tensor) -> Tensor:
        """``C v`` for rows v."""
        ...

    def solve(self, v: Tensor) -> Tensor:
        """``C^-1 v`` for rows v."""
        ...
