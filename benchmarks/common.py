"""Timing, tables and the environment that every benchmark shares."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


def seconds(function: Callable[[], object], *, repeats: int = 5, warmups: int = 1) -> float:
    """Median time of one call; the median, since a shared machine only ever adds time."""
    for _ in range(warmups):
        function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def interleaved(
    calls: dict[str, Callable[[], object]],
    *,
    repeats: int = 5,
    of: Callable[[list[float]], float] = statistics.median_low,
) -> dict[str, float]:
    """Median (or another ``of``) CPU seconds of each call; they take turns, after one to warm up.

    The least of many is what short calls take on a busy machine, which evicts their caches.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if turn > 0:
                taken[name].append(time.process_time() - start)
    return {name: of(times) for name, times in taken.items()}


def environment() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "cuda": torch.cuda.is_available(),
    }


def show(title: str, rows: list[dict[str, object]]) -> None:
    """Print rows as a table."""
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()))
    wide = Console(width=1000)
    needed = Measurement.get(wide, wide.options, table).maximum
    Console(width=max(120, needed)).print(table)


def publish(name: str, title: str, rows: list[dict[str, object]]) -> None:
    """Print rows as a table and keep them, with the environment, in ``benchmarks/results``."""
    show(title, rows)
    RESULTS.mkdir(exist_ok=True)
    record = {"title": title, "environment": environment(), "rows": rows}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
