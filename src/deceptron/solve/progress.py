"""An optional progress bar, as one more callback of the loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deceptron.solve.loop import Callback, Snapshot
from deceptron.solve.stopping import RUNNING


@contextmanager
def progress_callback(
    callback: Callback | None, *, rows: int, enabled: bool
) -> Iterator[Callback | None]:
    """Wrap ``callback`` (or none) so that rows which are done advance a bar."""
    if not enabled:
        yield callback
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("solving"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("pass {task.fields[number]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("solve", total=rows, number=0)

        def watched(number: int, snapshot: Snapshot) -> object:
            done = int((snapshot.reason != RUNNING).sum())
            bar.update(task, advance=done, number=number)
            return callback(number, snapshot) if callback is not None else None

        yield watched
