"""Who looks on while a run goes: a reader, TensorBoard, a callback."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

from deceptron.core.errors import ConfigError
from deceptron.core.progress import progress as show_progress
from deceptron.problems.dataset import Told
from deceptron.train.loop import Row

# Called with the metrics of each finished epoch, a dictionary with the columns of metrics.csv.
Watcher: TypeAlias = Callable[[Row], object]

_NAMES = {
    "forward": "1/3 forward",
    "reverse": "2/3 reverse",
    "jcp": "3/3 jcp",
    "plain": "3/3 plain",
}


def is_shown(progress: bool | None) -> bool:
    """Whether somebody is looking: by default at a terminal."""
    return sys.stderr.isatty() if progress is None else progress


@contextmanager
def watchers(
    *,
    plan: dict[str, int],
    done: list[Row],
    progress: bool | None,
    tensorboard: Path | None,
    callback: Watcher | None,
) -> Iterator[Watcher]:
    """One function that tells everybody; ``plan`` holds the epochs of each stage."""
    with ExitStack() as stack:
        audience: list[Watcher] = []
        if progress is not False:
            audience.append(stack.enter_context(_shown(plan, done)))
        if tensorboard is not None:
            audience.append(stack.enter_context(_tensorboard(tensorboard, plan, done)))
        if callback is not None:
            audience.append(callback)

        def tell(row: Row) -> None:
            for watcher in audience:
                watcher(row)

        yield tell


@contextmanager
def _shown(plan: dict[str, int], done: list[Row]) -> Iterator[Watcher]:
    left = TimeLeft(plan, done)
    # A bar knows the epochs of one stage only, and stages differ in pace.
    with show_progress("training", unit="epochs", estimates=False) as tell:

        def show(row: Row) -> None:
            stage = row["stage"]
            words = f"{_NAMES[stage]}  {summary(row)}  about {_clock(left.after(row))} left in all"
            tell(row["epoch"], plan[stage], words)

        yield show


@contextmanager
def simulating(shown: bool) -> Iterator[Told | None]:
    """A function that hears how many training rows are simulated."""
    if not shown:
        yield None
        return
    with show_progress("simulating") as tell:
        rows: dict[str, tuple[int, int]] = {}

        def told(split: str, done: int, total: int) -> None:
            rows[split] = done, total
            done_in_all, rows_in_all = map(sum, zip(*rows.values(), strict=True))
            tell(done_in_all, rows_in_all, f"{split} rows")

        yield told


@contextmanager
def calibrating(shown: bool) -> Iterator[Callable[[str, float], None]]:
    """A function that hears what is being calibrated and which share of it is done."""
    if not shown:
        yield lambda what, share: None
        return
    # Its parts differ in pace, so that nobody knows the time that is left.
    with show_progress("calibrating", unit="percent", estimates=False) as tell:
        yield lambda what, share: tell(round(100 * share), 100, what)


class TimeLeft:
    """Seconds to the end: each stage at its own pace, those to come at that of the last one."""

    def __init__(self, plan: dict[str, int], done: list[Row]) -> None:
        self._plan = plan
        self._spent: dict[str, list[float]] = {}
        for row in done:
            self._note(row)

    def after(self, row: Row) -> float:
        """Estimate once this epoch is done."""
        self._note(row)
        stages = list(self._plan)
        here = stages.index(row["stage"])
        pace = self._pace(row["stage"])
        total = pace * (self._plan[row["stage"]] - row["epoch"])
        for stage in stages[here + 1 :]:
            total += self._plan[stage] * (self._pace(stage) or pace)
        return total

    def _note(self, row: Row) -> None:
        self._spent.setdefault(row["stage"], []).append(row["seconds"])

    def _pace(self, stage: str) -> float:
        spent = self._spent.get(stage, [])[-20:]
        return sum(spent) / len(spent) if spent else 0.0


def summary(row: Row) -> str:
    """The numbers of an epoch that tell whether training goes well."""
    shown = {
        "loss": "loss",
        "val_task": "val",
        "val_reconstruction": "val rec",
        "val_pairs": "val pairs",
        "rjcp": "RJCP",
    }
    return "  ".join(f"{label} {row[key]:.3g}" for key, label in shown.items() if key in row)


@contextmanager
def _tensorboard(folder: Path, plan: dict[str, int], done: list[Row]) -> Iterator[Watcher]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            "tensorboard=True needs the extra: pip install 'deceptron[tensorboard]'"
        ) from None
    stages = list(plan)
    starts = {stage: sum(plan[s] for s in stages[:k]) for k, stage in enumerate(stages)}
    # Epochs after the last checkpoint were written by the run that was killed: drop them.
    known = [row for row in done if row["stage"] in starts]
    last = max((starts[row["stage"]] + row["epoch"] for row in known), default=None)
    writer = SummaryWriter(str(folder), purge_step=None if last is None else last + 1)
    try:

        def write(row: Row) -> None:
            step = starts[row["stage"]] + row["epoch"]
            for key, value in row.items():
                if key not in ("stage", "epoch"):
                    writer.add_scalar(f"{row['stage']}/{key}", value, step)

        yield write
    finally:
        writer.close()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
