"""Peak memory of training with preset ``standard``: full data, an epoch of each stage.

Memory does not grow from epoch to epoch, so one of each is enough. Every problem gets a process of
its own; what a process holds before it trains (libraries) is shown beside the peak.
``python -m benchmarks.memory navier-stokes-2d 128`` adds a line for another grid.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import replace

import deceptron as dc
from benchmarks.common import RESULTS, publish
from deceptron.train import recipe

# ru_maxrss counts KiB, on macOS bytes.
UNIT = 1 if sys.platform == "darwin" else 1024


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 2**20


def measure(name: str, grid: str | None = None) -> dict[str, object]:
    before = peak_mib()
    problem = dc.problems.get(name, **({} if grid is None else {"grid": int(grid)}))
    chosen = recipe(problem, "standard")
    stages = ("forward", "reverse", "jcp")
    once = {stage: replace(getattr(chosen, stage), epochs=1) for stage in stages}
    dc.train(problem, replace(chosen, **once))
    return {
        "problem": name,
        "grid": problem.x_shape[-1],
        "training_rows": problem.train_count,
        "libraries_mib": before,
        "peak_mib": peak_mib(),
    }


def in_own_process(*which: str) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.memory", "alone", *which]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)


def main(*which: str) -> None:
    path, rows = RESULTS / "memory.json", []
    if which:
        found = in_own_process(*which)
        place = (found["problem"], found["grid"])
        rows = json.loads(path.read_text())["rows"]
        rows = [row for row in rows if (row["problem"], row["grid"]) != place] + [found]
    else:
        rows = [in_own_process(name) for name in dc.problems.names()]
    publish("memory", "Peak memory of dc.train, preset standard, data included", rows)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["alone", *which]:
            print(json.dumps(measure(*which)))
        case which:
            main(*which)
