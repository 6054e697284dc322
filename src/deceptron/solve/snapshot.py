"""What a callback sees of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Snapshot:
    """What a callback sees after each pass: the rows that were at work in it.

    Attributes:
        rows: which they are, as indices of the observations.
        x: where they are.
        residual: root mean square of prediction minus data, normalised units.
        loss: the objective over the number of observed components.
        iterations: steps taken so far.
        accepted: whether the trial of this pass was taken.
        reason: a ``dc.Reason`` where a row has just stopped, -1 where it goes on.
        evaluations: what the row has asked for so far, f, g, jvp and vjp alike.
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
