"""The work of one cell: solve its instances and lay out what happened as tables."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from deceptron import Deceptron, Reason, Solution, Status, rjcp, solve
from deceptron.measure import rms, simulate
from deceptron.problems import Problem, Split
from deceptron.solve import Snapshot
from deceptron_paper.study.cell import Cell
from deceptron_paper.study.entries import PROBLEMS
from deceptron_paper.study.method_entry import MethodEntry
from deceptron_paper.study.methods import method_entry
from deceptron_paper.study.tables import AXES, INSTANCES, STEPS

FIELDS = 3  # instances whose answers are kept as pictures
SINGLES = 3  # instances solved alone, for the latency
ROWS = 64  # solved together: a batch that fits the cache
RJCP_ROWS, RJCP_PROBES = 64, 2  # the jvps cost more than most solves
INTERVAL_LEVEL = 0.9
FAMILIES = {"test": "prior", "shifted": "shifted", "extreme": "extreme"}


@dataclass(frozen=True)
class CellResult:
    """The tables of a cell; ``facts`` belong into its cell.json."""

    instances: pd.DataFrame
    steps: pd.DataFrame
    fields: dict[str, NDArray[np.float32]]
    facts: dict[str, float]


def solve_cell(cell: Cell, problem: Problem, pair: Deceptron, split: Split) -> CellResult:
    """Solve the first rows of ``split`` as the cell says."""
    started, spent = time.perf_counter(), time.process_time()
    chosen = method_entry(cell.method)
    noise_std = problem.noise_std * problem.noise_factor(FAMILIES[cell.set])
    settings = chosen.settings(problem, noise_std=noise_std, max_iterations=cell.max_iterations)
    x, y = split.x[: cell.instances], split.y[: cell.instances]
    clock = _clock(chosen, problem)
    parts = [
        _Part(cell, first, chosen, pair, truth, observed, settings, clock)
        for first, truth, observed in zip(
            range(0, len(x), ROWS), x.split(ROWS), y.split(ROWS), strict=True
        )
    ]
    answers = torch.cat([part.solution.x for part in parts])
    instances = pd.concat([part.instances() for part in parts], ignore_index=True)
    steps = pd.concat([part.steps() for part in parts], ignore_index=True)
    predicted = pair.scaler.normalise(simulate(problem, answers)) - pair.scaler.normalise(y)
    instances["true_residual"] = _numbers(rms(predicted))
    instances["noise_level"] = pair.scaler.noise_level(noise_std, problem.y_shape)
    instances["rjcp"] = _composition(chosen, pair, answers)
    instances["coverage"] = _coverage(chosen, pair, x, y, cell.error_bars, settings)
    latency = _latency(chosen, pair, y, settings, clock) if chosen.alone else None
    return CellResult(
        instances[list(INSTANCES)],
        steps[list(STEPS)],
        {"x": answers[:FIELDS].numpy()},
        {
            "seconds": time.perf_counter() - started,
            "cpu_seconds": time.process_time() - spent,
            **({} if latency is None else {"latency_ms": 1e3 * latency}),
        },
    )


class _Part:
    """Rows that are solved together, watched step by step."""

    def __init__(
        self,
        cell: Cell,
        first: int,
        chosen: MethodEntry,
        pair: Deceptron,
        x: Tensor,
        y: Tensor,
        settings: dict[str, Any],
        clock: Callable[[], float],
    ) -> None:
        self._cell, self._first, self._x = cell, first, x
        self._seen: list[dict[str, NDArray[Any]]] = []
        started = clock()
        self.solution = _solve(chosen, pair, y, callback=self._watch, **settings)
        self._seconds = clock() - started
        self._points = pd.DataFrame(
            {name: np.concatenate([seen[name] for seen in self._seen]) for name in self._seen[0]}
        )

    def _watch(self, number: int, snapshot: Snapshot) -> None:
        moved = snapshot.accepted
        rows = snapshot.rows[moved]
        self._seen.append(
            {
                "row": rows.numpy(),
                "step": snapshot.iterations[moved].numpy(),
                "residual": _numbers(snapshot.residual[moved]),
                "rmse": _numbers(rms(snapshot.x[moved] - self._x[rows])),
                "evaluations": _numbers(snapshot.evaluations[moved]),
            }
        )

    def steps(self) -> pd.DataFrame:
        """A row per accepted point: what the callback saw beside what the loop recorded."""
        history = self.solution.history
        assert history is not None
        record = history.frame()
        record = record[record["accepted"]].assign(step=record["iteration"] + 1)
        named = ["row", "step", "step_size", "step_norm", "cosine", "trials", "rule"]
        steps = self._points.merge(record[named], how="left", on=["row", "step"])
        steps = steps.sort_values(["row", "step"], ignore_index=True)
        start = steps["step"] == 0
        groups = steps.groupby("row")["residual"]
        steps["decrease"] = groups.shift(1) - steps["residual"]
        first = groups.transform("first")
        steps["relative_residual"] = np.where(first == 0, 0.0, steps["residual"] / first)
        steps["trials"] = steps["trials"].where(~start, 0).astype(np.int64)
        steps["rule"] = steps["rule"].where(~start, "")
        steps["seconds"] = steps["evaluations"] * self._second
        return self._placed(steps)

    def instances(self) -> pd.DataFrame:
        """A row per instance, without what is measured on the simulator and the geometry."""
        solution, history = self.solution, self.solution.history
        assert history is not None
        start = self._points.query("step == 0").set_index("row")
        rows, evaluations = np.arange(len(self._x)), solution.cost.evaluations.numpy()
        trials = history.trials.sum(0)
        fraction = torch.where(trials > 0, history.accepted.sum(0) / trials, torch.nan)
        table = pd.DataFrame(
            {
                "row": rows,
                "status": [Status(k).name for k in solution.status.tolist()],
                "reason": [Reason(k).name for k in solution.reason.tolist()],
                "iterations": solution.iterations.numpy(),
                "rmse": _numbers(rms(solution.x - self._x)),
                "rmse_start": start["rmse"].reindex(rows).to_numpy(),
                "residual": _numbers(solution.residual),
                "residual_start": start["residual"].reindex(rows).to_numpy(),
                "relative_residual": _numbers(solution.relative_residual),
                "accepted_fraction": _numbers(fraction),
                "seconds": np.maximum(evaluations, 1) * self._second,
                "evaluations": evaluations,
            }
        )
        for kind in ("f", "g", "jvp", "vjp", "linear_steps"):
            table[kind] = getattr(solution.cost, kind).numpy()
        return self._placed(table)

    @property
    def _second(self) -> float:
        """Of an evaluation: a row has its share of the batch's time by its evaluations."""
        return self._seconds / float(self.solution.cost.evaluations.clamp_min(1).sum())

    def _placed(self, table: pd.DataFrame) -> pd.DataFrame:
        axes = {name: getattr(self._cell, name) for name in AXES}
        return table.assign(**axes, instance=self._first + table.pop("row"))


def _solve(chosen: MethodEntry, pair: Deceptron, y: Tensor, **settings: Any) -> Solution:
    x0 = solve(pair, y, method="wiener").x if chosen.start == "wiener" else None
    return solve(pair, y, x0=x0, **settings)


def _clock(chosen: MethodEntry, problem: Problem) -> Callable[[], float]:
    """Processor time, which jobs beside the study do not change. A simulator that is not ours may
    work in other processes, which it does not count: there, the time on the wall.
    """
    here = chosen.physics != "true" or problem.name in PROBLEMS
    return time.process_time if here else time.perf_counter


def _latency(
    chosen: MethodEntry,
    pair: Deceptron,
    y: Tensor,
    settings: dict[str, Any],
    clock: Callable[[], float],
) -> float:
    """Median seconds of instances solved one at a time, without records."""
    taken = []
    for row in y[:SINGLES].split(1):
        started = clock()
        _solve(chosen, pair, row, history=False, **settings)
        taken.append(clock() - started)
    return statistics.median(taken)


def _coverage(
    chosen: MethodEntry, pair: Deceptron, x: Tensor, y: Tensor, count: int, settings: dict[str, Any]
) -> NDArray[np.float64]:
    """The share of each latent's components inside its interval, for the first ``count`` rows."""
    values = np.full(len(x), np.nan)
    if count:
        solution = _solve(chosen, pair, y[:count], history=False, **settings)
        if solution.error_bars is not None:
            low, high = solution.interval(INTERVAL_LEVEL)
            inside = ((low <= x[:count]) & (x[:count] <= high)).flatten(1).double()
            values[:count] = _numbers(inside.mean(1))
    return values


def _composition(chosen: MethodEntry, pair: Deceptron, x: Tensor) -> NDArray[np.float64]:
    """RJCP at the first answers of a method that uses g; NaN elsewhere."""
    values = np.full(len(x), np.nan)
    if chosen.uses_reverse:
        finite = x[:RJCP_ROWS].flatten(1).isfinite().all(1).nonzero().flatten()
        if len(finite):
            generator = Generator().manual_seed(0)
            found = rjcp(pair, x[finite], probes=RJCP_PROBES, generator=generator)
            values[finite.numpy()] = _numbers(found)
    return values


def _numbers(values: Tensor) -> NDArray[np.float64]:
    return values.detach().double().numpy()
