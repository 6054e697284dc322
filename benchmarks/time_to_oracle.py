"""How long until the data are explained: guarded against cold starts, all on the true simulator.

The oracle knows the latent, so the residual it leaves is the noise of that very observation. A row
is there once its residual on the simulator, in normalised units, is at most 1.1 times that; the
time of a method is when half of the rows are there. Guarded starts at g(y), the classics at the
prior's mean and with the prior, set as the study ``guarded`` sets them. The methods take turns on
the same rows; seconds are those of one processor, so that a busy machine does not change them, and
what it costs to watch is not counted.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

import deceptron as dc
from benchmarks.common import publish
from deceptron.measure import simulate
from deceptron.solve.snapshot import Snapshot
from deceptron_paper.study.entries import PROBLEMS
from deceptron_paper.study.methods import method_entry
from deceptron_paper.study.solving import FAMILIES

OURS, COLD = "guarded-true", ("gn-cold", "lm-cold", "l-bfgs-cold")
SETS = ("test", "shifted")
ROWS, SEED = 8, 7
CLOSE = 1.1


@dataclass
class Watch:
    """Stops the clock while it looks, and the run when half of the rows are there."""

    problem: dc.problems.Problem
    pair: dc.Deceptron
    y: Tensor
    goal: Tensor
    started: float = field(default_factory=time.process_time)
    evaluations: dict[int, int] = field(default_factory=dict)
    seconds: float = math.inf

    @property
    def median(self) -> int | str:
        """Evaluations until there, rows that never are counted as the most."""
        half = len(self.goal) // 2
        known = sorted(self.evaluations.values())
        return known[half - 1] if len(known) >= half else "never"

    def __call__(self, number: int, snapshot: Snapshot) -> bool:
        looked = time.process_time()
        moved = snapshot.accepted
        if not bool(moved.any()):
            return False
        rows = snapshot.rows[moved]
        left = residual(self.problem, self.pair, snapshot.x[moved], self.y[rows])
        there = left <= self.goal[rows]
        spent = snapshot.evaluations[moved]
        for row, count in zip(rows[there].tolist(), spent[there].tolist(), strict=True):
            self.evaluations.setdefault(row, count)
        enough = 2 * len(self.evaluations) >= len(self.goal)
        if enough:
            self.seconds = looked - self.started
        self.started += time.process_time() - looked
        return enough


def residual(problem: dc.problems.Problem, pair: dc.Deceptron, x: Tensor, y: Tensor) -> Tensor:
    """RMS on the simulator, normalised units."""
    off = pair.scaler.normalise(simulate(problem, x)) - pair.scaler.normalise(y)
    return off.flatten(1).square().mean(1).sqrt()


def measure(name: str, on: str) -> dict[str, object]:
    problem, pair = dc.problems.get(name), dc.load(name)
    split = getattr(problem.dataset(SEED), on)
    x, y = split.x[:ROWS], split.y[:ROWS]
    goal = CLOSE * residual(problem, pair, x, y)
    noise_std = problem.noise_std * problem.noise_factor(FAMILIES[on])
    watches = {}
    for label in (OURS, *COLD):
        settings = method_entry(label).settings(problem, noise_std=noise_std, max_iterations=None)
        dc.solve(pair, y[:1], history=False, **{**settings, "max_iterations": 1})  # warms up
        watches[label] = watch = Watch(problem, pair, y, goal)
        dc.solve(pair, y, history=False, callback=watch, **settings)
    ours = watches[OURS].seconds
    row: dict[str, object] = {"problem": name, "set": on, "guarded ms": _known(1e3 * ours / ROWS)}
    for label in COLD:
        row[f"{label} / guarded"] = _known(watches[label].seconds / ours)
    for label, watch in watches.items():
        row[f"evaluations {label}"] = watch.median
    return row


def _known(value: float) -> float | str:
    """JSON has no infinity; with guarded itself never there, a ratio is none."""
    return value if 0 < value < math.inf else "never" if value == math.inf else "-"


def main() -> None:
    torch.set_num_threads(1)
    rows = [measure(name, on) for name in PROBLEMS for on in SETS]
    title = f"Until half of {ROWS} rows are within 10% of the oracle's residual, true simulator"
    publish("time_to_oracle", title, rows)


if __name__ == "__main__":
    main()
