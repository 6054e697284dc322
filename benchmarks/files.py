"""File solves: throughput by engine, what the engine costs, and the peak memory of any process.

``python -m benchmarks.files`` is small; ``--rows 1000000`` and ``--problem darcy-2d --rows 20000
--simulator`` are the sizes that the docs speak of. The first line is ``dc.solve`` on chunks in
memory, with no file: what the others take longer, on one process, is the cost of files and engine.
``--files-only`` leaves it out, and ``--workers 2`` the engines with one worker. Ray is measured
with its start and, as on a cluster, on a Ray that runs already. On a machine that
has other work only ``cpu_seconds`` can be compared.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import zarr

import deceptron as dc
from benchmarks.common import publish
from deceptron.core.cluster import Ray

CHUNK = 2**18  # numbers of y, as solve_file has it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", default="heat-1d")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--simulator", action="store_true", help="solve on the true physics")
    parser.add_argument("--error-bars", action="store_true")
    parser.add_argument("--workers", default="1,2", help="of each engine, one line each")
    parser.add_argument("--files-only", action="store_true", help="no solve in memory first")
    parser.add_argument("--engines", default="local,ray")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    problem, pair = dc.problems.get(asked.problem), dc.load(asked.problem)
    settings = {"forward": problem.simulate} if asked.simulator else {}
    rows: list[dict[str, object]] = []

    def measure(name: str, work: Callable[[], object]) -> None:
        with Watch() as watch:
            started, before = time.perf_counter(), cpu_seconds()
            work()
            seconds, spent = time.perf_counter() - started, cpu_seconds() - before
        first = float(str(rows[0]["seconds"])) if rows else seconds
        rows.append(
            {
                "problem": asked.problem,
                "rows": asked.rows,
                "who": name,
                "seconds": seconds,
                "rows_per_second": asked.rows / seconds,
                "times_faster": first / seconds,
                "cpu_seconds": spent,
                "peak_mib": watch.peak / 1024,
            }
        )
        print(rows[-1], flush=True)

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        size = chunk_rows(problem)
        write(problem, folder / "y.zarr", asked.rows, size)

        def in_memory() -> None:
            y = zarr.open_array(folder / "y.zarr" / "y", mode="r")
            for start in range(0, asked.rows, size):
                piece = torch.as_tensor(y[start : start + size])
                solution = dc.solve(pair, piece, history=False, **settings)
                if asked.error_bars:
                    solution.std  # noqa: B018

        def by_file(executor: str | None, workers: int | None) -> None:
            dc.solve_file(
                pair,
                folder / "y.zarr",
                folder / "x.zarr",
                executor=executor,
                workers=workers,
                error_bars=asked.error_bars,
                overwrite=True,
                **settings,
            )

        if not asked.files_only:
            measure("dc.solve, no file", in_memory)
        measure("this process", lambda: by_file(None, None))
        for name in asked.engines.split(","):
            for workers in map(int, asked.workers.split(",")):
                measure(f"{name}, {workers}", lambda n=name, w=workers: by_file(n, w))
                if name == "ray":
                    with Ray(workers):
                        measure(f"ray, {workers}, running", lambda: by_file("ray", None))
    publish(f"files-{asked.problem}", "File solves from zarr to zarr", rows)


def cpu_seconds() -> float:
    """Of this process and of those that it has started and ended; Ray's are not among them."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, who))


def chunk_rows(problem: dc.problems.Problem) -> int:
    return max(1, min(4096, CHUNK // torch.Size(problem.y_shape).numel()))


def write(problem: dc.problems.Problem, path: Path, rows: int, size: int) -> None:
    array = zarr.create_group(path).create_array(
        "y", shape=(rows, *problem.y_shape), chunks=(size, *problem.y_shape), dtype="f4"
    )
    for start in range(0, rows, size):
        count = min(size, rows - start)
        latents, noise = (torch.Generator().manual_seed(2 * start + k) for k in range(2))
        x = problem.sample(count, generator=latents)
        with torch.no_grad():
            y = problem.simulate(x)
        array[start : start + count] = problem.add_noise(y, generator=noise).numpy()


class Watch:
    """The largest memory (KiB) of this process or of any below it, looked at now and then."""

    def __enter__(self) -> Watch:
        self.peak, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.peak = own if sys.platform != "darwin" else own // 1024
        while not self._over.wait(0.3):
            self.peak = max([self.peak, *(resident(pid) for pid in below(os.getpid()))])


def below(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from below(int(child))


def resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


if __name__ == "__main__":
    main()
