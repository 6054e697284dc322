"""What a callback sees of a run, and the one that shows how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.progress import progress
from deceptron.solve.stopping import RUNNING


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


@contextmanager
def progress_callback(
    callback: Callback | None, *, rows: int, enabled: bool
) -> Iterator[Callback | None]:
    """Wrap ``callback`` (or none) so that rows which are done are shown."""
    if not enabled:
        yield callback
        return
    with progress("solving") as show:
        done = 0

        def watched(number: int, snapshot: Snapshot) -> object:
            nonlocal done
            done += int((snapshot.reason != RUNNING).sum())
            show(done, rows, f"pass {number}")
            return callback(number, snapshot) if callback is not None else None

        yield watched
