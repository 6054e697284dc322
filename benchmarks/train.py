"""What training costs: stage 3 with JCP batched or looped, and the whole published protocol."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import deceptron as dc
from benchmarks.common import publish
from benchmarks.jcp import looped
from deceptron.geometry import draw_probes
from deceptron.train import Recipe, recipe
from deceptron.train.data import TrainingData, prepare
from deceptron.train.loop import StageRun
from deceptron.train.objectives import (
    ALONE,
    CONTINUATION,
    REVERSE,
    ForwardObjective,
    ReverseObjective,
)
from deceptron.train.streams import stream

ROUNDS = 3


class Looped(ReverseObjective):
    """JCP as the formula reads: a jvp through both maps for each sample and probe."""

    def __init__(self, data: TrainingData, chosen: Recipe, pair: dc.Deceptron) -> None:
        super().__init__(data, chosen, pair.f, pair.g, stage_number=CONTINUATION, jcp=False)
        self._pair, self._chosen = pair, chosen

    def begin(self, epoch: int) -> None:
        super().begin(epoch)
        self._draws = stream(0, "probes", CONTINUATION, epoch)

    def terms(self, rows: Tensor, team: Any = ALONE) -> Any:
        chosen = self._chosen
        x = self._data.train.x[rows[: chosen.train_probe_rows]]
        xi = draw_probes(x, probes=chosen.train_probes, generator=self._draws)
        return [*super().terms(rows, team), ("jcp", chosen.weights.jcp, looped(self._pair, x, xi))]


def epoch_of(objective: ReverseObjective, chosen: Recipe, row_count: int) -> StageRun:
    stage = replace(chosen.jcp, epochs=ROUNDS + 1)
    return StageRun("jcp", stage, objective, chosen, row_count=row_count, seed=0)


def measure(name: str, rows: int) -> dict[str, object]:
    problem = dc.problems.get(name, train_count=rows, val_count=8)
    chosen = recipe(problem, "paper")
    cpu = torch.device("cpu")
    data = prepare(problem, chosen, seed=0, dtype=torch.float32, device=cpu)

    def pair() -> dc.Deceptron:
        f, g = chosen.build(problem, data.dataset, torch.Generator().manual_seed(0))
        return dc.Deceptron(f.requires_grad_(False), g)

    def ours(with_jcp: bool, **changes: Any) -> StageRun:
        made, settings = pair(), replace(chosen, **changes)
        objective = ReverseObjective(
            data, settings, made.f, made.g, stage_number=CONTINUATION, jcp=with_jcp
        )
        return epoch_of(objective, settings, rows)

    runs = {
        "batched": ours(True),
        "bank": ours(True, probe_bank=2),
        "loop": epoch_of(Looped(data, chosen, pair()), chosen, rows),
        "none": ours(False),
    }
    times: dict[str, list[float]] = {key: [] for key in runs}
    # In turns, so that a neighbour on a shared machine slows all alike; the first round warms up.
    for _ in range(ROUNDS + 1):
        for key, run in runs.items():
            started = time.perf_counter()
            run._epoch()
            times[key].append(time.perf_counter() - started)
    for ours_row, loop_row in zip(runs["batched"].state.rows, runs["loop"].state.rows, strict=True):
        assert abs(ours_row["loss"] - loop_row["loss"]) < 2e-2 * loop_row["loss"]
    middle = {key: sorted(spent[1:])[ROUNDS // 2] for key, spent in times.items()}
    return {
        "problem": name,
        "training_rows": rows,
        "loop_s": middle["loop"],
        "batched_s": middle["batched"],
        "bank_s": middle["bank"],
        "without_jcp_s": middle["none"],
        "loop_over_batched": middle["loop"] / middle["batched"],
        "batched_over_none": middle["batched"] / middle["none"],
    }


def project(name: str, *, batches: int = 2) -> dict[str, object]:
    """Seconds an epoch of each stage, from a few batches, and what the protocol would take."""
    full = dc.problems.get(name)
    chosen = recipe(full, "paper")
    count = batches * chosen.forward.batch_size
    problem = replace(full, train_count=count, val_count=max(count // 10, 1))
    cpu = torch.device("cpu")
    data = prepare(problem, chosen, seed=0, dtype=torch.float32, device=cpu)
    f, g = chosen.build(problem, data.dataset, torch.Generator().manual_seed(0))

    def reverse(number: int, jcp: bool) -> ReverseObjective:
        f.requires_grad_(False)
        return ReverseObjective(data, chosen, f, g, stage_number=number, jcp=jcp)

    stages: list[tuple[str, Any, Any]] = [
        ("forward", chosen.forward, lambda: ForwardObjective(data, chosen, f)),
        ("reverse", chosen.reverse, lambda: reverse(REVERSE, False)),
        ("jcp", chosen.jcp, lambda: reverse(CONTINUATION, True)),
        ("plain", chosen.jcp, lambda: reverse(CONTINUATION, False)),
    ]
    row: dict[str, object] = {"problem": name}
    total = 0.0
    for stage_name, stage, objective in stages:
        run = StageRun(
            stage_name, replace(stage, epochs=2), objective(), chosen, row_count=count, seed=0
        )
        run.run(lambda state: None)
        epoch = min(entry["seconds"] for entry in run.state.rows) * full.train_count / count
        row[f"{stage_name}_s"] = epoch
        total += epoch * stage.epochs
    return {**row, "total_minutes": total / 60}


def main() -> None:
    rows = [measure("heat-1d", 1024), measure("heat-3d", 192)]
    publish("train", "One epoch of stage 3, published pairs and probes", rows)
    costs = [project(name) for name in dc.problems.names()]
    publish("paper_cost", "Preset paper: seconds an epoch, whole protocol projected", costs)


if __name__ == "__main__":
    main()
