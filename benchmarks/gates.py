"""Old and new side by side: every solve that a change of the default must not make worse.

``python -m benchmarks.gates run LABEL [SUITE ...]`` trains what is missing (kept in ``runs/gates``,
so that two versions of the code share the weights), calibrates every pair with the code at hand and
solves: errors, coverage and runs row by row, in ``benchmarks/results/gates/LABEL``. What is there
already is not solved again. ``python -m benchmarks.gates page OLD NEW`` compares two labels on the
same rows and writes ``docs/results/gates.md``. Suites: ``sets``, ``missing``, ``noise``, ``wrong``
(noise stated three times too small and too large), ``foreign``, ``bent``, ``bounds``, ``units``,
``modes`` (two answers for one y).

To measure an older version, run this file in a checkout of it, with ``DECEPTRON_GATES`` naming the
folder ``runs/gates`` of this one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

import deceptron as dc
from benchmarks import bent, bounds, trusted, units
from benchmarks.common import RESULTS
from deceptron.train import calibrate
from tests.foreign.problems import FOREIGN

SEED = 11
SETS = ("test", "shifted", "extreme")
TRAINED = Path(os.environ.get("DECEPTRON_GATES", "runs/gates"))
FOREIGN_SEEDS = (7, 8, 9)
COLUMNS = ("error", "covered", "std", "runs", "over_noise", "explained")
ILL_POSED = ("heat_rod", "beam")


@dataclass(frozen=True)
class Case:
    """Observations of known truth, how they are solved, and what an error counts in."""

    name: str
    pair: dc.Deceptron
    y: Tensor
    truth: Tensor
    settings: dict[str, Any] = field(default_factory=dict)
    unit: Tensor | float = 1.0


def shipped(label: str, name: str) -> tuple[dc.problems.Problem, dc.Deceptron]:
    """A pair that ships, calibrated by the code at hand as ``make zoo`` does it."""
    problem = dc.problems.get(name, test_count=300)
    path = TRAINED / label / f"{name}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        begun = time.process_time()
        made = calibrate(dc.load(name), problem, problem.dataset(7))
        note(label, f"calibrate {name}", time.process_time() - begun)
        dc.save(made, path)
    return problem, dc.load(path)


def trained(label: str, problem: dc.problems.Problem, preset: str, seed: int) -> dc.Deceptron:
    """Weights are trained once for all versions; what follows training is this version's."""
    folder = TRAINED / "trained" / f"{problem.name}-{preset}-{seed}"
    path = TRAINED / label / f"{folder.name}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        (folder / "pair.safetensors").unlink(missing_ok=True)
        dc.save(dc.train(problem, preset, folder, seed=seed, progress=False), path)
    return dc.load(path)


def of_shipped(label: str, suite: str) -> Iterator[Case]:
    for name in dc.problems.names():
        problem, pair = shipped(label, name)
        data, count = problem.dataset(SEED), trusted.ROWS.get(name, trusted.MOST_ROWS)
        noise = torch.as_tensor(problem.noise_std)
        if suite == "sets":
            for which in SETS:
                rows = getattr(data, which)
                told = noise * problem.noise_factor("prior" if which == "test" else which)
                x, y = rows.x[:count], rows.y[:count]
                settings = {"forward": problem, "noise_std": told}
                yield Case(f"{name} {which}", pair, y, x, settings)
            x, y = data.test.x[:count], data.test.y[:count]
            yield Case(f"{name} test, noise not told", pair, y, x, {"forward": problem})
            yield Case(f"{name} test, surrogate", pair, y, x)
            few = min(count, 16)
            x, y = data.shifted.x[:few], data.shifted.y[:few]
            told = noise * problem.noise_factor("shifted")
            values = {"forward": problem, "differentiable": False, "noise_std": told}
            yield Case(f"{name} shifted, values", pair, y, x, values)
            continue
        count = min(count, 32)
        x, y = data.test.x[:count], data.test.y[:count]
        if suite == "missing":
            for left in (0.5, 0.25, 0.1) if name == "navier-stokes-2d" else (0.5, 0.1):
                gone = torch.rand(y.shape, generator=Generator().manual_seed(3)) > left
                settings = {"forward": problem, "noise_std": noise}
                case = f"{name} {left:.0%} of the sensors"
                yield Case(case, pair, torch.where(gone, torch.nan, y), x, settings)
        elif suite == "noise":
            white = torch.randn(y.shape, generator=Generator().manual_seed(4))
            loud = problem.simulate(x) + 10 * noise * white
            yield Case(f"{name} ten times the noise", pair, loud, x, {"forward": problem})
        else:
            for factor in (1 / 3, 3.0):
                settings = {"forward": problem, "noise_std": noise * factor}
                yield Case(f"{name} told {factor:.2g} of the noise", pair, y, x, settings)


def of_foreign(label: str, suite: str) -> Iterator[Case]:
    for name, make in FOREIGN.items():
        if suite == "wrong" and name not in ILL_POSED:
            continue
        for seed in FOREIGN_SEEDS if suite == "foreign" else FOREIGN_SEEDS[:1]:
            problem = make()
            pair = trained(label, problem, "standard", seed)
            test = problem.dataset(seed).test
            if suite == "wrong":
                for factor in (1 / 3, 3.0):
                    told = torch.as_tensor(problem.noise_std) * factor
                    settings = {"forward": problem, "noise_std": told}
                    yield Case(
                        f"{name} told {factor:.2g} of the noise", pair, test.y, test.x, settings
                    )
                continue
            modes: dict[str, dict[str, Any]] = {"surrogate": {}}
            modes["values"] = {"forward": problem.simulate, "differentiable": False}
            if problem.differentiable:
                modes["derivatives"] = {"forward": problem.simulate}
            for mode, settings in modes.items():
                yield Case(f"{name} {seed}, {mode}", pair, test.y, test.x, settings)


def of_bent(label: str, suite: str) -> Iterator[Case]:
    for preset in ("smoke", "standard"):
        for name, make in bent.PHYSICS.items():
            physics = make()
            problem = physics.problem(name)
            pair = trained(label, problem, preset, bent.SEED)
            draw = Generator().manual_seed(bent.SEED)
            outside = physics.outside(bent.ROWS, draw)
            test = problem.dataset(bent.SEED + 100).test
            far = problem.add_noise(problem.simulate(outside), generator=draw)
            for where, x, y in (("test", test.x, test.y), ("outside", outside, far)):
                for mode, differentiable in (("derivatives", True), ("values", False)):
                    settings = {"forward": problem, "differentiable": differentiable}
                    yield Case(f"{name} {preset} {where}, {mode}", pair, y, x, settings)


def of_bounds(label: str, suite: str) -> Iterator[Case]:
    for case in bounds.CASES:
        problem, sets = bounds.spiky(*case)
        pair = trained(label, problem, "smoke", bounds.SEED)
        for where, x, y in sets:
            yield Case(f"{problem.name}, {where}", pair, y, x, {"forward": problem})


def of_units(label: str, suite: str) -> Iterator[Case]:
    for ratio in units.RATIOS:
        unit = ratio ** torch.tensor([0.0, 1.0, 0.5, 1.0, 0.0, 0.5])
        problem = units.in_units(unit)
        pair = trained(label, problem, "standard", units.SEED)
        test = problem.dataset(units.SEED).test
        yield Case(f"units {ratio:g}", pair, test.y, test.x, {"forward": problem}, unit)


def of_modes(label: str, suite: str) -> Iterator[Case]:
    """y = x^2, of both signs or one, and a start that is the mean of both."""
    for name, low in (("both", -1.0), ("positive", 0.1)):
        for points in (6, 40):
            problem = dc.problems.define(
                f"squares-{name}-{points}",
                simulate=torch.square,
                sample=lambda count, generator, low=low, points=points: (
                    low + (1 - low) * torch.rand(count, points, generator=generator)
                ),
                bounds=(-1.0, 1.0),
                noise_std=0.02,
                train_count=1500,
                val_count=200,
                test_count=150,
            )
            pair = trained(label, problem, "standard", SEED)
            test = problem.dataset(SEED).test
            yield Case(f"{problem.name}", pair, test.y, test.x, {"forward": problem})
            yield Case(f"{problem.name}, surrogate", pair, test.y, test.x)


SUITES = {
    "sets": of_shipped,
    "missing": of_shipped,
    "noise": of_shipped,
    "wrong": lambda *a: (*of_shipped(*a), *of_foreign(*a)),
    "foreign": of_foreign,
    "bent": of_bent,
    "bounds": of_bounds,
    "units": of_units,
    "modes": of_modes,
}


def measured(case: Case) -> dict[str, np.ndarray]:
    begun = time.process_time()
    solution = dc.solve(case.pair, case.y, history=False, **case.settings)
    seconds = (time.process_time() - begun) / len(case.y)
    low, high = solution.interval(0.9)
    off = ((solution.x - case.truth) / case.unit).flatten(1)
    first = dc.solve(case.pair, case.y, method=start_of(case.pair), history=False)
    start = ((first.x - case.truth) / case.unit).flatten(1)
    inside = (case.truth >= low) & (case.truth <= high)
    found = {
        "error": off.square().mean(1).sqrt(),
        "start": start.square().mean(1).sqrt(),
        "covered": inside.flatten(1).double().mean(1),
        "std": (solution.std / case.unit).flatten(1).square().mean(1).sqrt(),
        "runs": solution.cost.forward,
        "over_noise": solution.over_noise,
        "explained": solution.explained,
        "reason": solution.reason,
        "seconds": torch.tensor(seconds),
    }
    return {key: value.numpy().astype(np.float32) for key, value in found.items()}


def start_of(pair: dc.Deceptron) -> str:
    return "wiener" if pair.calibration.start == "wiener" else "one-shot"


def note(label: str, what: str, seconds: float) -> None:
    path = RESULTS / "gates" / label / "calibration.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, what: round(seconds, 1)}, indent=1) + "\n")


def load(label: str, suite: str) -> dict[str, dict[str, np.ndarray]]:
    path = RESULTS / "gates" / label / f"{suite}.npz"
    found: dict[str, dict[str, np.ndarray]] = {}
    if path.exists():
        with np.load(path) as archive:
            for key in archive.files:
                case, column = key.rsplit("|", 1)
                found.setdefault(case, {})[column] = archive[key]
    return found


def run(label: str, suites: list[str]) -> None:
    torch.set_num_threads(1)
    for suite in suites or list(SUITES):
        known = load(label, suite)
        path = RESULTS / "gates" / label / f"{suite}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        for case in SUITES[suite](label, suite):
            if case.name in known:
                continue
            known[case.name] = measured(case)
            print(line(case.name, known[case.name]), flush=True)
            flat = {f"{c}|{k}": v for c, columns in known.items() for k, v in columns.items()}
            np.savez_compressed(path, **flat)


def line(case: str, found: dict[str, np.ndarray]) -> str:
    mean = {key: float(value.mean()) for key, value in found.items()}
    return (
        f"{case}: start {mean['start']:.4g} error {mean['error']:.4g} "
        f"covered {mean['covered']:.3f} std/error {mean['std'] / mean['error']:.2f} "
        f"runs {float(np.median(found['runs'])):.0f} ms {1e3 * mean['seconds']:.1f} "
        f"over noise {mean['over_noise']:.2f} explained {mean['explained']:.2f}"
    )


@dataclass(frozen=True)
class Beside:
    """One case, old and new."""

    suite: str
    case: str
    old: dict[str, np.ndarray]
    new: dict[str, np.ndarray]

    @property
    def ratio(self) -> float:
        return float(self.new["error"].mean() / self.old["error"].mean())

    @property
    def worse_by(self) -> float:
        """In paired standard errors."""
        off = self.new["error"].astype(float) - self.old["error"]
        return float(off.mean() / max(off.std(ddof=1) / len(off) ** 0.5, 1e-12))

    @property
    def holds(self) -> bool:
        return self.ratio <= 1.03 or (self.worse_by <= 2 and self.ratio <= 1.08)


def beside(old: str, new: str) -> Iterator[Beside]:
    for suite in SUITES:
        before, after = load(old, suite), load(new, suite)
        for case in before:
            if case in after:
                yield Beside(suite, case, before[case], after[case])


def page(old: str, new: str) -> None:
    found = list(beside(old, new))
    ratios = np.array([entry.ratio for entry in found])
    lines = [
        "# Old and new",
        "",
        "`old` is revision 7a131ac (version 0.2.0), with pairs calibrated by its own code. "
        f"The default of `{old}` and of `{new}` on the same rows: `python -m benchmarks.gates page "
        f"{old} {new}`, from the records of `python -m benchmarks.gates run`. *error*: mean over "
        "rows of the root mean square error; *by*: the difference in paired standard errors; "
        "*held*: share of the truth in 90% intervals; *runs*: median of the simulator; *time*: "
        "CPU seconds a row, new over old.",
        "",
        f"Geometric mean of the ratios of errors: {np.exp(np.log(ratios).mean()):.3f}; "
        f"{sum(not entry.holds for entry in found)} of {len(found)} cases above the gate (1.03, or "
        "two paired standard errors and 1.08).",
        "",
        "| suite | case | start | old | new | ratio | by | held, old | new | runs, old | new "
        "| time |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in found:
        before, after = entry.old, entry.new
        cells = [
            entry.suite,
            entry.case,
            f"{before['start'].mean():.4g}",
            f"{before['error'].mean():.4g}",
            f"{after['error'].mean():.4g}",
            f"{entry.ratio:.3f}{'' if entry.holds else ' !'}",
            f"{entry.worse_by:+.1f}",
            f"{before['covered'].mean():.2f}",
            f"{after['covered'].mean():.2f}",
            f"{np.median(before['runs']):.0f}",
            f"{np.median(after['runs']):.0f}",
            f"{after['seconds'].mean() / before['seconds'].mean():.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    text = "\n".join(lines) + "\n"
    (RESULTS.parent.parent / "docs" / "results" / "gates.md").write_text(text)
    print(text)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2], sys.argv[3:])
    else:
        page(sys.argv[2], sys.argv[3])
