"""Finer grids: what training and calibration cost there, and what a pair of grid 32 is worth.

Five tables. ``growth``: CPU time and peak memory of the prior and of the tables of corrections
(dense, or by a sketch of the Jacobian) for darcy-2d, a process for each line. ``training``: the
same of preset ``standard`` at finer grids, from sampling to the saved pair, in ``runs/grids``.
``transfer``: the default solve on the true simulator of a finer grid with the pair that ships,
brought there by ``pair.at_grid`` and recalibrated with 200 simulations, beside its own grid and
beside the pairs of ``training``. ``networks``: the networks alone on all problems at twice and four
times their grid. ``accuracy``: log-determinants by a sketch against dense ones at 32 x 32.
``figure`` draws what is recorded of growth, and of simulations and their adjoints
(``python -m benchmarks adjoints``).

``python -m benchmarks.grids training`` or another name. Lines of ``training`` and ``transfer`` that
are recorded are kept.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import deceptron as dc
from benchmarks.common import RESULTS, publish
from benchmarks.memory import peak_mib
from benchmarks.trusted import measured, rmse
from deceptron.laws.law import Laws
from deceptron.laws.shapes import corrections_of
from deceptron.plot.files import write_figure
from deceptron.train import beliefs

SEED, SIMULATIONS = 7, 200
# Rows, and unknowns at most, of the table of networks.
FEW, LARGEST = 16, 2**14
GROWTH = [
    ("prior", 32),
    ("prior", 64),
    ("prior", 128),
    ("dense tables", 16),
    ("dense tables", 32),
    ("tables", 16),
    ("tables", 32),
    ("tables", 64),
    ("tables", 128),
]
RUNS = Path(__file__).parent.parent / "runs" / "grids"
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "growth.png"
# Problem and grid, those that end soonest first.
TRAINED = [
    ("darcy-2d", 64),
    ("navier-stokes-2d", 64),
    ("allen-cahn-2d", 64),
    ("darcy-2d", 128),
    ("navier-stokes-2d", 128),
    ("allen-cahn-2d", 128),
]
# Problem, grid, rows of each set.
TRANSFER = [
    ("darcy-2d", 32, 32),
    ("darcy-2d", 64, 32),
    ("darcy-2d", 128, 8),
    ("allen-cahn-2d", 32, 16),
    ("allen-cahn-2d", 64, 16),
    ("navier-stokes-2d", 32, 16),
    ("navier-stokes-2d", 64, 16),
    ("allen-cahn-2d", 128, 8),
    ("navier-stokes-2d", 128, 8),
]


def spent(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def corrections(family: Tensor) -> Laws:
    found = corrections_of(family)
    assert found is not None
    return found


def tabled_by(
    laws: Laws, largest: int, pair: dc.Deceptron, problem: dc.problems.Problem, points: Tensor
) -> Laws:
    """With tables; the Jacobian is formed for up to so many unknowns."""
    beliefs.LARGEST_DENSE = largest
    return beliefs._with_tables([laws], pair, problem, points, lambda share: None)[0]


def one(what: str, grid: int) -> dict[str, object]:
    problem = dc.problems.get("darcy-2d", grid=grid)
    pair = dc.load("darcy-2d").at_grid(grid)

    def tabled() -> None:
        family = problem.sample(512, generator=torch.Generator().manual_seed(1))
        tabled_by(
            corrections(family),
            10**6 if what == "dense tables" else 1,
            pair,
            problem,
            family[: beliefs.POINTS],
        )

    work: dict[str, Callable[[], object]] = {
        "prior": lambda: problem.prior,
        "dense tables": tabled,
        "tables": tabled,
    }
    before = peak_mib()
    cpu = spent(work[what])
    return {
        "what": what,
        "grid": grid,
        "unknowns": grid**2,
        "cpu_s": cpu,
        "libraries_mib": before,
        "peak_mib": peak_mib(),
    }


def growth() -> None:
    rows = []
    for what, grid in GROWTH:
        command = [sys.executable, "-m", "benchmarks.grids", "one", what, str(grid)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(answer.stdout))
        publish("grids_growth", "Calibration of darcy-2d on finer grids", rows)


def training() -> None:
    rows = recorded("grids_training")
    for name, grid in TRAINED:
        if any((row["problem"], row["grid"]) == (name, grid) for row in rows):
            continue
        command = [sys.executable, "-m", "benchmarks.grids", "train", name, str(grid)]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append(json.loads(answer.stdout.splitlines()[-1]))
        publish("grids_training", "Preset standard on finer grids", rows)


def train_one(name: str, grid: int) -> dict[str, object]:
    started = time.perf_counter()
    cpu = spent(
        lambda: dc.train(
            dc.problems.get(name, grid=grid), out=folder_of(name, grid), seed=SEED, resume=False
        )
    )
    return {
        "problem": name,
        "grid": grid,
        "cpu_minutes": cpu / 60,
        "minutes": (time.perf_counter() - started) / 60,
        "peak_mib": peak_mib(),
    }


def folder_of(name: str, grid: int) -> Path:
    return RUNS / f"{name}-{grid}"


def recorded(name: str) -> list[dict[str, Any]]:
    """Rows of an earlier call."""
    path = RESULTS / f"{name}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    return rows


def solved(
    problem: dc.problems.Problem, pair: dc.Deceptron, label: str, count: int, recalibrated: float
) -> list[dict[str, object]]:
    found = []
    data = problem.dataset(SEED)
    for which in ("test", "shifted"):
        part = getattr(data, which)
        x, y = part.x[:count], part.y[:count]
        solution = dc.solve(pair, y, forward=problem)
        found.append(
            {
                "problem": problem.name,
                "grid": problem.x_shape[-1],
                "pair": label,
                "set": which,
                "rows": len(x),
                "one_shot": rmse(dc.solve(pair, y, method="one-shot").x, x),
                **measured(solution, x),
                "flagged": float(dc.trust(pair, y).flag.double().mean()),
                "recalibrate_cpu_s": recalibrated,
                "peak_mib": peak_mib(),
            }
        )
    return found


def transfer() -> None:
    rows = recorded("grids_transfer")
    known = {(row["problem"], row["grid"], row["pair"]) for row in rows}
    for name, grid, count in TRANSFER:
        problem = dc.problems.get(
            name, grid=grid, test_count=count, shifted_count=count, extreme_count=count
        )
        label, cpu = "as shipped" if grid == 32 else "of grid 32", 0.0
        if (name, grid, label) not in known:
            pair = dc.load(name).at_grid(grid)
            if grid != 32:
                start = time.process_time()
                pair = dc.recalibrate(pair, problem, simulations=SIMULATIONS)
                cpu = time.process_time() - start
            rows += solved(problem, pair, label, count, cpu)
        trained = folder_of(name, grid)
        if (trained / "pair.safetensors").exists() and (name, grid, "trained here") not in known:
            rows += solved(problem, dc.load(trained), "trained here", count, 0.0)
        publish("grids_transfer", "A pair of grid 32 on finer grids, the default solve", rows)


def accuracy() -> None:
    """The worst and the best member at each size; a point alone is what the tables average over."""
    rows: list[dict[str, object]] = []
    one_row = torch.ones(1, dtype=torch.float64)
    for name in ("heat-2d", "advection-diffusion-2d", "darcy-2d", "allen-cahn-2d"):
        problem, pair = dc.problems.get(name), dc.load(name)
        family = problem.sample(512, generator=torch.Generator().manual_seed(1))
        plain = corrections(family)
        found = []
        for largest, points in ((10**6, family[:2]), (10**6, family[:1]), (1, family[:2])):
            made = tabled_by(plain, largest, pair, problem, points)
            found.append(made.log_determinant(plain.strengths(one_row)[:, None])[:, :, 0])
        exact, point, sketched = found
        for size in (0.03, 0.1, 0.3):
            place = min(range(len(plain.sizes)), key=lambda k: abs(plain.sizes[k] - size))
            off, other = ((part / exact - 1).abs()[:, place] for part in (sketched, point))
            rows.append(
                {
                    "problem": name,
                    "size": size,
                    "least_off": float(off.min()),
                    "most_off": float(off.max()),
                    "one_point_off": float(other.max()),
                }
            )
        publish("grids_accuracy", "Log-determinants by a sketch against dense ones", rows)


def networks() -> None:
    """One-shot errors, and what f errs by over the noise, both in RMS."""
    rows: list[dict[str, object]] = []
    for name in dc.problems.names():
        pair = dc.load(name)
        assert pair.x_shape is not None
        own = pair.x_shape[-1]
        for grid in (own, 2 * own, 4 * own):
            problem = dc.problems.get(name, grid=grid)
            if math.prod(problem.x_shape) > LARGEST:
                continue
            fine = pair.at_grid(grid)
            rng = torch.Generator().manual_seed(SEED)
            x = problem.sample(FEW, generator=rng)
            with torch.no_grad():
                y = problem.simulate(x)
                missed = fine.f(x) - fine.scaler.normalise(y)
            noise = fine.scaler.noise(problem.noise_std, problem.y_shape)
            seen = problem.add_noise(y, generator=rng)
            rows.append(
                {
                    "problem": name,
                    "grid": grid,
                    "rows": FEW,
                    "one_shot": rmse(dc.solve(fine, seen, method="one-shot").x, x),
                    "f_over_noise": float((missed / noise).square().mean().sqrt()),
                }
            )
        publish("grids_networks", "The networks of a pair on finer grids", rows)


def figure() -> None:
    """Recorded times and memory over the points of a side, on logarithmic axes."""
    cost, simulation = (recorded(name) for name in ("grids_growth", "adjoints"))
    drawing = Figure(figsize=(7.5, 3.2), layout="constrained")
    seconds, memory = drawing.subplots(1, 2)
    for what, words in {
        "prior": "prior, darcy-2d",
        "dense tables": "tables of corrections, dense",
        "tables": "tables of corrections, by a sketch",
    }.items():
        rows = [row for row in cost if row["what"] == what]
        sides = [row["grid"] for row in rows]
        used = [row["peak_mib"] - row["libraries_mib"] for row in rows]
        seconds.plot(sides, [row["cpu_s"] for row in rows], "o-", label=words)
        memory.plot(sides, used, "o-")
    for name in ("navier-stokes-2d", "allen-cahn-2d"):
        rows = [row for row in simulation if row["problem"] == name]
        sides = [row["grid"] for row in rows]
        taken = [row["forward_ms_a_row"] * (1 + row["vjp"]) / 1e3 for row in rows]
        (line,) = seconds.plot(sides, taken, "s--", label=f"{name}, a row and its adjoint")
        used = [row["MiB_a_row"] or math.nan for row in rows]  # 0: too little to be seen
        memory.plot(sides, used, "s--", color=line.get_color())
    seconds.set_ylabel("CPU seconds")
    memory.set_ylabel("MiB above the libraries")
    for axis in (seconds, memory):
        axis.set(xscale="log", yscale="log", xlabel="grid points of a side")
        axis.set_xticks([16, 32, 64, 128], ["16", "32", "64", "128"], minor=False)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    drawing.legend(loc="outside lower center", ncols=2, fontsize=8)
    print(write_figure(drawing, PICTURE, dpi=110))


TABLES = {
    "growth": growth,
    "accuracy": accuracy,
    "networks": networks,
    "training": training,
    "transfer": transfer,
    "figure": figure,
}


def main() -> None:
    for table in TABLES.values():
        table()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["one", what, grid]:
            print(json.dumps(one(what, int(grid))))
        case ["train", name, grid]:
            print(json.dumps(train_one(name, int(grid))))
        case [name]:
            TABLES[name]()
        case _:
            main()
