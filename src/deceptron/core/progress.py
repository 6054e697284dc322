"""How far it is, where somebody can see it: a bar in a terminal or a notebook, lines in a log.

Everything goes to the error stream, so that what a command prints can be piped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

# Called with what is done, how much there is (None: not known yet), and what is being done now.
Show: TypeAlias = Callable[[int, "int | None", str], None]
# Seconds between the lines of a log, and between the pictures of a bar in a notebook.
LINE, FRAME = 30.0, 0.5


@contextmanager
def progress(title: str, *, unit: str = "rows", estimates: bool = True) -> Iterator[Show]:
    """A function to be told how far it is.

    ``estimates=False`` leaves the time that is left to a caller who knows it better.
    """
    if sys.stderr.isatty():
        with _bar(title, estimates) as show:
            yield show
    elif _in_notebook():
        yield _Seldom(_Display(), title, unit, FRAME, estimates)
    else:
        yield _Seldom(_print, title, unit, LINE, estimates)


@contextmanager
def _bar(title: str, estimates: bool) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        *([TimeRemainingColumn()] if estimates else []),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def show(done: int, total: int | None, now: str = "") -> None:
            words = f"{title}: {now}" if now else title
            bar.update(task, completed=done, total=total, description=words)

        yield show


class _Seldom:
    """Tells in words how far it is, but not more often than every so many seconds.

    The end is told where anything was: a notebook would go on showing less.
    """

    def __init__(
        self,
        tell: Callable[[str, float | None], None],
        title: str,
        unit: str,
        every: float,
        estimates: bool,
    ) -> None:
        self.tell, self.title, self.unit, self.every = tell, title, unit, every
        self.estimates, self.told = estimates, False
        self.started = self.last = time.monotonic()

    def __call__(self, done: int, total: int | None, now: str = "") -> None:
        """Called as often as one likes."""
        clock = time.monotonic()
        over = self.told and done == total
        if clock - self.last < self.every and not over:
            return
        self.last, self.told = clock, True
        spent = clock - self.started
        words = f"{self.title}: {done} of {total} {self.unit}" if total else f"{self.title}: {done}"
        words += f" ({now})" if now else ""
        words += f", {_duration(spent)}"
        if self.estimates and total and 0 < done < total:
            words += f", about {_duration(spent / done * (total - done))} left"
        self.tell(words, done / total if total else None)


def _print(words: str, share: float | None) -> None:
    print(words, file=sys.stderr, flush=True)


class _Display:
    """One output of a notebook's cell, drawn anew."""

    def __init__(self) -> None:
        self.handle: Any = None

    def __call__(self, words: str, share: float | None) -> None:
        from html import escape

        from IPython.display import HTML, display

        value = "" if share is None else f' value="{share:.4f}"'
        shown = HTML(f"<progress{value}></progress> {escape(words)}")
        if self.handle is None:
            self.handle = display(shown, display_id=True)
        else:
            self.handle.update(shown)


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
