"""What a callback sees of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Snapshot:
    """What a callback sees after each pass: the rows that were live in it.

    ``reason`` is -1 where a row goes on and a ``Reason`` where it has just stopped;
    ``evaluations`` counts what the row has asked for so far (f, g, jvp and vjp alike).
    """

    rows: Int[Tensor, " B"]
    x: Float[Tensor, "B *x"]
    residual: Float[Tensor, " B"]
    loss: Float[Tensor, " B"]
    iterations: Int[Tensor, " B"]
    accepted: Bool[Tensor, " B"]
    reason: Int[Tensor, " B"]
    evaluations: Int[Tensor, " B"]


Callback = Callable[[int, Snapshot], object]
