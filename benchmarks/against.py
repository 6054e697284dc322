"""The default on the true simulator beside that of another checkout of this repository.

``python -m benchmarks.against OTHER/src [problem ...]``: 64 rows of the family and 64 shifted ones
of each problem, the same for both checkouts, each in a process of its own with the models that it
ships. CPU time of one thread, the least of the repeats.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import publish

OURS = Path(__file__).parents[1] / "src"
# Names that both checkouts have.
WORK = """
import json, sys, time
import torch
import deceptron as dc
torch.set_num_threads(1)
problem, pair = dc.problems.get(sys.argv[1]), dc.load(sys.argv[1])
for family in ("prior", "shifted"):
    generator = torch.Generator().manual_seed(0)
    x = problem.sample(64, generator=generator, family=family)
    y = problem.add_noise(problem.simulate(x), generator=generator, family=family)
    dc.solve(pair, y[:2], forward=problem.simulate, history=False)
    taken = []
    for repeat in range(2):
        start = time.process_time()
        answer = dc.solve(pair, y, forward=problem.simulate, history=False).x
        taken.append(time.process_time() - start)
    print(json.dumps([family, min(taken), float((answer - x).square().mean().sqrt())]))
"""


def solved(source: Path, name: str) -> list[tuple[str, float, float]]:
    """Family, CPU seconds and RMSE, by a process that imports from ``source``."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WORK, name]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(other: Path, name: str) -> list[dict[str, Any]]:
    both = zip(solved(other, name), solved(OURS, name), strict=True)
    return [
        {
            "problem": name,
            "set": family,
            "other_s": other_s,
            "ours_s": ours_s,
            "times_faster": other_s / ours_s,
            "other_rmse": other_rmse,
            "ours_rmse": ours_rmse,
        }
        for (family, other_s, other_rmse), (_, ours_s, ours_rmse) in both
    ]


def main() -> None:
    import deceptron as dc

    if "against" not in sys.argv[0]:
        return  # there is nothing to compare with
    torch.set_num_threads(1)
    other = Path(sys.argv[1]).resolve()
    names = sys.argv[2:] or dc.problems.names()
    found = [row for name in names for row in measure(other, name)]
    publish("against", "The default beside another checkout, 64 rows", found)


if __name__ == "__main__":
    main()
