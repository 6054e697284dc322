"""Stage 3 with noise-aware JCP, with the published JCP and with neither, at equal budget.

All continue the same stage 2 with the same batches, noise, rates and number of probes, and are
taken as the last epoch leaves them. Stage 2 is that of ``runs/standard``, where g learns from noisy
pairs at the problem's noise, or one that saw clean pairs only, as in the paper. Probes go through f
or through the simulator. How far the gains are from the best one of either is measured at test
latents, the one-shot errors at the problem's noise and at three times that.
``python -m benchmarks.noise_aware NAME ...`` does only these problems.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Generator, Tensor

import deceptron as dc
from benchmarks.common import RESULTS, publish
from benchmarks.standard import RUNS
from deceptron.geometry import gain_distance, noise_aware_rjcp, optimal_gain
from deceptron.geometry.trust import into_box
from deceptron.train import Recipe, recipe
from deceptron.train.data import prepare
from deceptron.train.folder import early_stages
from deceptron.train.loop import StageRun, StageState
from deceptron.train.objectives import CONTINUATION, ReverseObjective
from deceptron.train.settings import config_of

SEED = 7
INSTANCES = 300
LAWS = {"none": None, "JCP": "rademacher", "noise-aware JCP": "prior"}


@dataclass(frozen=True)
class Setting:
    problem: str
    noisy_pairs: bool
    probe_map: Literal["surrogate", "simulator"]
    epochs: int
    weight: float
    probe_rows: int
    gain_rows: int


# Gains are dense matrices: a thousand jvps through f for each row of darcy-2d.
SETTINGS = (
    Setting("heat-1d", True, "surrogate", epochs=10, weight=1.0, probe_rows=128, gain_rows=64),
    Setting("heat-1d", True, "surrogate", epochs=10, weight=10.0, probe_rows=128, gain_rows=64),
    Setting("heat-1d", False, "surrogate", epochs=10, weight=1.0, probe_rows=128, gain_rows=64),
    Setting("heat-1d", False, "surrogate", epochs=10, weight=10.0, probe_rows=128, gain_rows=64),
    Setting("darcy-2d", True, "surrogate", epochs=2, weight=1.0, probe_rows=16, gain_rows=6),
    Setting("darcy-2d", False, "surrogate", epochs=3, weight=1.0, probe_rows=16, gain_rows=6),
    Setting("darcy-2d", True, "simulator", epochs=2, weight=1.0, probe_rows=16, gain_rows=6),
)


def rows_of(setting: Setting) -> list[dict[str, object]]:
    problem = dc.problems.get(setting.problem, test_count=INSTANCES)
    pair, mine, folder = stage_two(problem, noisy_pairs=setting.noisy_pairs)
    config = config_of(problem, mine, seed=SEED, jcp=True, dtype=torch.float32)
    start = early_stages(folder, config)["reverse"].best
    family = {"prior": problem.prior, "noise_std": problem.noise_std}
    if setting.probe_map == "simulator":
        family["forward"] = problem.simulate
    points = problem.dataset(SEED).test.x[: setting.gain_rows]
    best = optimal_gain(pair, points, **family)
    found = []
    for label, law in LAWS.items():
        pair.g.load_state_dict(start)
        continue_stage_two(problem, pair, mine, setting, law)
        measured = {
            "gain_distance": gain_distance(
                pair, points, generator=Generator().manual_seed(0), best=best, **family
            ),
            "noise_aware_RJCP": noise_aware_rjcp(
                pair, points, probes=16, generator=Generator().manual_seed(0), **family
            ),
        }
        found.append(
            {
                "problem": setting.problem,
                "pairs": "noisy" if setting.noisy_pairs else "clean",
                "probes": setting.probe_map,
                "stage_3": label,
                "epochs": setting.epochs,
                "weight": setting.weight,
                **{key: float(value.mean()) for key, value in measured.items()},
                **{f"RMSE_at_{k}x": one_shot_rmse(problem, pair, k) for k in (1, 3)},
            }
        )
    return found


def stage_two(
    problem: dc.problems.Problem, *, noisy_pairs: bool
) -> tuple[dc.Deceptron, Recipe, Path]:
    known = recipe(problem, "standard")
    # One level of noise: what a penalty does is compared, not what g is told.
    standard = replace(known, noise_range=None)
    if noisy_pairs:
        runs = RUNS if standard == known else RUNS.parent / "unconditioned"
        folder = runs / f"{problem.name}-{SEED}"
        return dc.train(problem, standard, out=folder, seed=SEED), standard, folder
    weights = replace(standard.weights, reconstruction=standard.weights.pairs)
    clean = replace(standard, name="clean", noisy_pairs=False, weights=weights)
    folder = RUNS.parent / "clean" / f"{problem.name}-{SEED}"
    return dc.train(problem, clean, out=folder, seed=SEED), clean, folder


def continue_stage_two(
    problem: dc.problems.Problem,
    pair: dc.Deceptron,
    base: Recipe,
    setting: Setting,
    law: str | None,
) -> None:
    mine = replace(
        base,
        probe_law=law or "prior",
        probe_map=setting.probe_map,
        train_probe_rows=setting.probe_rows,
        weights=replace(base.weights, jcp=setting.weight),
        jcp=replace(base.jcp, epochs=setting.epochs),
    )
    data = prepare(problem, mine, seed=SEED, dtype=torch.float32, device=torch.device("cpu"))
    pair.f.requires_grad_(False).eval()
    pair.g.requires_grad_(True)
    objective = ReverseObjective(
        data, mine, pair.f, pair.g, stage_number=CONTINUATION, jcp=law is not None
    )
    run = StageRun("jcp", mine.jcp, objective, mine, row_count=len(data.train), seed=SEED)
    last: dict[str, Tensor] = {}

    def keep(state: StageState) -> None:
        last.update({key: value.clone() for key, value in pair.g.state_dict().items()})

    run.run(keep)
    pair.g.load_state_dict(last)
    pair.requires_grad_(False).eval()


def one_shot_rmse(problem: dc.problems.Problem, pair: dc.Deceptron, times: float) -> float:
    test = problem.dataset(SEED).test
    louder = replace(problem, noise_std=times * problem.noise_std)
    with torch.no_grad():
        clean = torch.cat([problem.simulate(rows) for rows in test.x.split(100)])
        y = louder.add_noise(clean, generator=Generator().manual_seed(1))
        x = into_box(pair.g(pair.scaler.normalise(y)), pair.bounds)
    return float((x - test.x).flatten(1).square().mean(1).sqrt().mean())


def main(names: tuple[str, ...] = ()) -> None:
    record = RESULTS / "noise_aware.json"
    kept = json.loads(record.read_text())["rows"] if names and record.is_file() else []
    rows = [row for row in kept if row["problem"] not in names]
    for setting in SETTINGS:
        if setting.problem in (names or {s.problem for s in SETTINGS}):
            rows += rows_of(setting)
    publish("noise_aware", f"Stage 3 from one stage 2, {INSTANCES} instances, seed {SEED}", rows)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
