"""Peak memory of training with preset ``standard``: full data, an epoch of each stage.

Memory does not grow from epoch to epoch, so one of each is enough. Every problem gets a process of
its own; what a process holds before it trains (libraries) is shown beside the peak.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import replace

import deceptron as dc
from benchmarks.common import publish
from deceptron.train import recipe

# ru_maxrss counts KiB, on macOS bytes.
UNIT = 1 if sys.platform == "darwin" else 1024


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 2**20


def measure(name: str) -> dict[str, object]:
    before = peak_mib()
    problem = dc.problems.get(name)
    chosen = recipe(problem, "standard")
    stages = ("forward", "reverse", "jcp")
    once = {stage: replace(getattr(chosen, stage), epochs=1) for stage in stages}
    dc.train(problem, replace(chosen, **once))
    return {
        "problem": name,
        "training_rows": problem.train_count,
        "libraries_mib": before,
        "peak_mib": peak_mib(),
    }


def in_own_process(name: str) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.memory", name]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)


def main() -> None:
    rows = [in_own_process(name) for name in dc.problems.names()]
    publish("memory", "Peak memory of dc.train, preset standard, data included", rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
