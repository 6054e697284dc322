"""Kill file solves and studies at random moments; what they leave must be what others leave.

``python -m tools.kill --times 20`` kills workers and drivers of ``solve`` with both engines, one of
two nodes of a Ray cluster, and workers and drivers of ``study``. A driver that lost a worker or a
node must end well by itself; a driver that was killed is started again, as a user would. Then the
files must be those of an undisturbed run, with nothing doubled and no litter. The exit code is 1 if
anything is not. Without Ray, ``--only "solve, "`` and ``--only study`` run the rest.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import zarr

import deceptron as dc
from deceptron_paper.study import read

STUDY = """\
name = "small"

[[block]]
problems = ["heat-1d"]
sets = ["test", "shifted"]
models = ["standard"]
methods = ["one-shot", "d-ipg", "gd"]
instances = 3
max_iterations = 5
"""


Victim = Callable[[int], bool]  # kills below the driver of this pid; whether anybody was there


@dataclass(frozen=True)
class Trial:
    """A command that writes ``out``, whom to kill, and what must be the same afterwards."""

    name: str
    command: list[str]
    victim: Victim
    content: Callable[[Path], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="kills of each kind")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--chunk-rows", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds whose name contains this word")
    asked = parser.parse_args()
    moments = random.Random(asked.seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        observations(folder / "y.zarr", asked.rows)
        (folder / "small.toml").write_text(STUDY)
        for trial in trials(folder, asked.chunk_rows, asked.only):
            wrong += not survives(trial, folder, asked.times, moments)
    sys.exit(wrong > 0)


def trials(folder: Path, chunk_rows: int, only: str) -> Iterator[Trial]:
    solve = ["deceptron.cli", "solve", "heat-1d", str(folder / "y.zarr"), "--workers", "2"]
    solve += ["--chunk-rows", str(chunk_rows), "--method", "d-ipg", "--max-iterations", "10"]
    ray = [*solve, "--engine", "ray"]
    study = ["deceptron_paper", "study", str(folder / "small.toml"), "--workers", "2", "--out"]
    for trial in (
        Trial("solve, a worker", [*solve, "-o"], a_worker, store),
        Trial("solve, the driver", [*solve, "-o"], the_driver, store),
        Trial("ray, a worker", [*ray, "-o"], a_worker, store),
        Trial("ray, the driver", [*ray, "-o"], the_driver, store),
        Trial("study, a worker", study, a_worker, tables),
        Trial("study, the driver", study, the_driver, tables),
    ):
        if only in trial.name:
            yield trial
    if only in (name := "ray, a node"):
        with two_nodes() as (address, lose_one):
            yield Trial(name, [*ray, "--address", address, "-o"], lose_one, store)


def survives(trial: Trial, folder: Path, times: int, moments: random.Random) -> bool:
    whole = folder / "whole.zarr"
    length = finish(trial, whole)
    expected, good, kills, runs = trial.content(whole), True, 0, 0
    while kills < times:
        out = folder / "broken.zarr"
        began = time.perf_counter()
        killed = kill(trial, out, moments.uniform(0.15, 1.0) * length)
        kills, runs = kills + killed, runs + 1
        if not killed:
            # Over before its moment, or nobody there yet: the next one is of another length.
            length = min(length, time.perf_counter() - began)
        if not is_over(out):
            finish(trial, out)
        same = trial.content(out) == expected
        clean = not list(folder.rglob("*partial*")) and not list(folder.glob("*.parts"))
        good &= same and clean
        if not (same and clean):
            print(f"{trial.name}, {runs}: same {same}, clean {clean}", flush=True)
        shutil.rmtree(out)
    shutil.rmtree(whole)
    verdict = "all the same" if good else "WRONG"
    print(f"{trial.name}: {kills} kills in {runs} runs, {verdict}", flush=True)
    return good


def is_over(out: Path) -> bool:
    """A solve that is complete refuses to be done again."""
    return (out / "zarr.json").is_file() and not out.with_name(f"{out.name}.parts").exists()


def start(trial: Trial, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", *trial.command, str(out)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **quiet)  # type: ignore[call-overload]


def finish(trial: Trial, out: Path) -> float:
    """Run it to its end; how long that took."""
    started = time.perf_counter()
    child = start(trial, out)
    _, words = child.communicate()
    if child.returncode:
        sys.exit(f"{trial.name} ended with {child.returncode}: {words.decode()[-500:]}")
    return time.perf_counter() - started


def kill(trial: Trial, out: Path, after: float) -> bool:
    """Whether there was somebody to kill; a driver that lost a worker must end well by itself."""
    child = start(trial, out)
    end = time.perf_counter() + after
    while time.perf_counter() < end and child.poll() is None:
        time.sleep(0.02)
    if child.poll() is not None:
        child.communicate()
        return False
    killed = trial.victim(child.pid)
    _, words = child.communicate()
    if trial.victim is not the_driver and child.returncode:
        sys.exit(f"{trial.name}: the driver ended with {child.returncode}: {words.decode()[-500:]}")
    return killed


def the_driver(pid: int) -> bool:
    os.kill(pid, signal.SIGKILL)
    return True


def a_worker(pid: int) -> bool:
    workers = [worker for worker in below(pid) if is_worker(worker)]
    for worker in workers[-1:]:
        os.kill(worker, signal.SIGKILL)
    return bool(workers)


@contextmanager
def two_nodes() -> Iterator[tuple[str, Victim]]:
    """A Ray cluster on this machine; losing a node kills all its processes, and a new one joins."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # 127.0.0.1 is meant
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.1"}
    cluster: Any = Cluster()
    cluster.add_node(include_dashboard=False, **node)
    lost = [cluster.add_node(**node)]
    cluster.wait_for_nodes()

    def lose_one(driver: int) -> bool:
        cluster.remove_node(lost.pop(), allow_graceful=False)
        lost.append(cluster.add_node(**node))
        return True

    try:
        yield cluster.address, lose_one
    finally:
        cluster.shutdown()


def below(pid: int) -> Iterator[int]:
    """Every process that this one has started, or those have."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from below(int(child))


def is_worker(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"spawn_main" in words or words.startswith((b"ray::attempt", b"ray::IDLE"))


def store(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def tables(path: Path) -> str:
    records = read(path)
    assert records.missing == (), records.missing
    timed = {"seconds", "latency_ms", "train_seconds"}
    parts = []
    for table in (records.instances, records.steps, records.models):
        columns = [name for name in table.columns if name not in timed]
        parts.append(pd.DataFrame(table[columns]).to_csv())
    return "\n".join(parts)


def observations(path: Path, rows: int) -> None:
    problem = dc.problems.get("heat-1d")
    x = problem.sample(rows, generator=torch.Generator().manual_seed(0))
    y = problem.add_noise(problem.simulate(x), generator=torch.Generator().manual_seed(1))
    group = zarr.create_group(path)
    group.create_array("y", data=y.numpy(), chunks=(1000, 64), dimension_names=("row", "y_0"))


if __name__ == "__main__":
    main()
