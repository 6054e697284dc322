"""Finer grids: what calibration costs there, and what a pair of grid 32 is worth there.

Four tables. ``growth``: CPU time and peak memory of the prior and of the tables of corrections
(dense, or by a sketch of the Jacobian) for darcy-2d, a process for each line. ``transfer``: the
default solve on the true simulator of a finer grid with the pair that ships, brought there by
``pair.at_grid`` and recalibrated with 200 simulations, beside its own grid; further arguments are
folders of pairs trained at a finer grid, to stand beside it. Lines that are recorded are kept.
``networks``: the networks alone on all problems at twice and four times their grid. ``accuracy``:
log-determinants by a sketch against dense ones at 32 x 32.

``python -m benchmarks.grids growth`` or another name, ``... transfer [RUN ...]``.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable

import torch

import deceptron as dc
from benchmarks.common import RESULTS, publish
from benchmarks.memory import peak_mib
from benchmarks.trusted import measured, rmse
from deceptron.core.corrections import SIZES, Corrections
from deceptron.train import tables

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
# Problem, grid, rows of each set.
TRANSFER = [
    ("darcy-2d", 32, 32),
    ("darcy-2d", 64, 32),
    ("darcy-2d", 128, 8),
    ("allen-cahn-2d", 32, 16),
    ("allen-cahn-2d", 64, 16),
    ("navier-stokes-2d", 32, 16),
    ("navier-stokes-2d", 64, 16),
]


def spent(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def one(what: str, grid: int) -> dict[str, object]:
    problem = dc.problems.get("darcy-2d", grid=grid)
    pair = dc.load("darcy-2d").at_grid(grid)

    def tabled() -> None:
        family = problem.sample(512, generator=torch.Generator().manual_seed(1))
        corrections = Corrections.of(family, largest=1024, kept=128)
        tables.with_tables(corrections, pair, problem, family[: tables.POINTS])

    work: dict[str, Callable[[], object]] = {
        "prior": lambda: problem.prior,
        "dense tables": tabled,
        "tables": tabled,
    }
    tables.LARGEST_DENSE = 10**6 if what == "dense tables" else 1
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


def transfer(trained: list[str]) -> None:
    path = RESULTS / "grids_transfer.json"
    rows: list[dict[str, object]] = json.loads(path.read_text())["rows"] if path.exists() else []
    known = {(row["problem"], row["grid"], row["pair"]) for row in rows}
    own = {}
    for run in trained:
        pair = dc.load(run)
        assert pair.x_shape is not None
        own[pair.name, pair.x_shape[-1]] = pair
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
        if (name, grid) in own and (name, grid, "trained here") not in known:
            rows += solved(problem, own[name, grid], "trained here", count, 0.0)
        publish("grids_transfer", "A pair of grid 32 on finer grids, the default solve", rows)


def accuracy() -> None:
    """The worst and the best member at each size; a point alone is what the tables average over."""
    rows: list[dict[str, object]] = []
    one_row = torch.ones(1, dtype=torch.float64)
    for name in ("heat-2d", "advection-diffusion-2d", "darcy-2d", "allen-cahn-2d"):
        problem, pair = dc.problems.get(name), dc.load(name)
        family = problem.sample(512, generator=torch.Generator().manual_seed(1))
        plain = Corrections.of(family, largest=1024, kept=128)
        found = []
        for largest, points in ((10**6, family[:2]), (10**6, family[:1]), (1, family[:2])):
            tables.LARGEST_DENSE = largest
            made = tables.with_tables(plain, pair, problem, points)
            found.append(made.log_determinant(plain.strengths(one_row))[:, :, 0])
        exact, point, sketched = found
        for size in (0.03, 0.1, 0.3):
            place = SIZES.index(size)
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


def main() -> None:
    growth()
    accuracy()
    networks()
    transfer([])


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    if chosen == "one":
        print(json.dumps(one(sys.argv[2], int(sys.argv[3]))))
    elif chosen == "growth":
        growth()
    elif chosen == "networks":
        networks()
    elif chosen == "accuracy":
        accuracy()
    elif chosen == "transfer":
        transfer(sys.argv[2:])
    else:
        main()
