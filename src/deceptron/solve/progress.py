"""How far a solve is, as one more callback of the loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deceptron.core.progress import progress
from deceptron.solve.snapshot import Callback, Snapshot
from deceptron.solve.stopping import RUNNING


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
