"""A study folder with plausible numbers and no solver behind them, for tests of what reads it.

``python -m paper.tests.synthetic FOLDER`` writes one to look at.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import save

from deceptron_paper.study.cell import Cell, ModelKey, digest
from deceptron_paper.study.entries import PROBLEMS, shown_problem
from deceptron_paper.study.folder import StudyFolder
from deceptron_paper.study.methods import METHODS, method_entry
from deceptron_paper.study.names import MODELS, PROBE_MODELS, SETS, STEP_SIZE_METHODS, TRUTH
from deceptron_paper.study.tables import INSTANCES, STEPS

SHAPES = {
    "heat-1d": ((64,), (64,)),
    "heat-2d": ((1, 32, 32), (1, 32, 32)),
    "heat-3d": ((1, 8, 8, 8), (1, 8, 8, 8)),
    "darcy-2d": ((1, 32, 32), (1, 32, 32)),
    "advection-diffusion-2d": ((1, 32, 32), (1, 32, 32)),
    "allen-cahn-2d": ((1, 32, 32), (1, 32, 32)),
    "navier-stokes-2d": ((1, 32, 32), (2, 32, 32)),
}
# Error of the network alone on the test set of each problem; the others follow from it.
FLOOR = dict(zip(PROBLEMS, (0.12, 0.001, 0.001, 0.04, 0.013, 0.05, 0.02), strict=True))
# RMSE relative to the network alone, steps taken, evaluations a step, seconds an evaluation.
TRAITS = {
    "one-shot": (1.0, 0, 0, 1e-3),
    "wiener": (1.6, 0, 0, 1e-3),
    "gd": (6.0, 40, 3, 1e-3),
    "gn": (2.5, 12, 40, 1e-3),
    "lm": (2.0, 20, 40, 1e-3),
    "l-bfgs": (1.8, 30, 3, 1e-3),
    "gn-tuned": (1.4, 6, 60, 1e-3),
    "lm-tuned": (1.3, 8, 60, 1e-3),
    "l-bfgs-tuned": (1.4, 40, 3, 1e-3),
    "guarded": (1.0, 4, 5, 1e-3),
    "lm-true": (1.2, 8, 60, 8e-3),
    "guarded-true": (0.9, 4, 8, 8e-3),
    "gn-prior": (0.85, 6, 40, 8e-3),
    "guarded-prior": (0.88, 4, 10, 8e-3),
    "gn-cold": (0.95, 6, 60, 8e-3),
    "lm-cold": (0.96, 8, 60, 8e-3),
    "l-bfgs-cold": (1.1, 60, 3, 8e-3),
}
FEW = ("one-shot", "wiener", "d-ipg", "lm", "lm-tuned")  # on seeds after the first
D_IPG = (1.05, 7, 3, 1e-3)
FREE_STEPS = 12  # where the study stops d-ipg-free


@dataclass(frozen=True)
class Sizes:
    instances: int = 12
    problems: tuple[str, ...] = PROBLEMS
    sets: tuple[str, ...] = SETS
    seeds: tuple[int, ...] = (7, 8)


def write_study(folder: Path, sizes: Sizes = Sizes(), *, small: bool = True) -> StudyFolder:  # noqa: B008
    """A complete folder: every model and method where the study would have them."""
    cells = list(_cells(sizes))
    models = sorted({cell.model_key for cell in cells if cell.model_key is not None})
    shown = {
        "methods": {label: method_entry(label).shown() for label in METHODS},
        "problems": {name: shown_problem(name) for name in sizes.problems},
    }
    settings = {"name": "synthetic", "small": small, "blocks": [], "shown": shown}
    documents = [cell.document() for cell in cells]
    study = {**settings, "key": digest([settings, documents]), "cells": documents}
    target = StudyFolder(folder)
    environment = {"library": "0.1.0", "python": "3.11", "torch": "2.13.0", "threads": 1}
    environment |= {"cores": 2, "system": "Linux", "machine": "x86_64"}
    with target.opened(study, environment):
        for model in models:
            target.pair_path(model).write_bytes(save({}))
            target.write_model(model, _model_row(model))
        target.write_models(models)
        for cell in cells:
            _write(target, cell)
    return target


def _cells(sizes: Sizes) -> Iterator[Cell]:
    for problem in sizes.problems:
        for seed in sizes.seeds:
            for chosen in sizes.sets:
                yield Cell(problem, chosen, "", seed, TRUTH, 3)
            for model in MODELS:
                if model.startswith("paper") and (seed != 7 or not _has_model(problem, model)):
                    continue
                for chosen in sizes.sets if model == "standard" and seed == 7 else ("test",):
                    for method in FEW if seed != 7 else _methods(problem, model):
                        yield Cell(problem, chosen, model, seed, method, sizes.instances)


def _has_model(problem: str, model: str) -> bool:
    return model not in PROBE_MODELS or problem == "allen-cahn-2d"


def _methods(problem: str, model: str) -> tuple[str, ...]:
    if model in PROBE_MODELS:
        return ("one-shot", "d-ipg")
    if model.endswith("-plain"):
        return ("one-shot", "wiener", "d-ipg", "d-ipg-free")
    return tuple(m for m in METHODS if m not in STEP_SIZE_METHODS or problem == "allen-cahn-2d")


def _model_row(model: ModelKey) -> dict[str, Any]:
    rng = _generator(model)
    plain = model.model.endswith("-plain")
    rjcp = (0.2 + 0.1 * PROBLEMS.index(model.problem)) * (1.8 if plain else 1.0)
    return {
        "problem": model.problem,
        "model": model.model,
        "seed": model.seed,
        "preset": "paper-reduced" if model.model.startswith("paper") else "standard",
        "train_seconds": float(rng.uniform(100, 400)),
        "parameters_f": 120_000,
        "parameters_g": 130_000,
        "surrogate_error": 0.01,
        "noise_level": 0.02,
        "rjcp": float(rjcp * rng.uniform(0.9, 1.1)),
        "rjcp_noise_aware": float("nan"),
        "recon_rmse": FLOOR[model.problem],
        "shipped": model.model == "standard" and model.seed == 7,
        "recipe": json.dumps(_recipe(model)),
    }


def _recipe(model: ModelKey) -> dict[str, Any]:
    """Table 7 of the paper has 120, 120 and 60 epochs for heat-3d; standard has others."""
    paper = model.model.startswith("paper")
    stages = {"forward": (120, 2e-3), "reverse": (120, 2e-3), "jcp": (60, 5e-4)}
    return {
        **{
            name: {"epochs": epochs if paper else 40, "learning_rate": rate, "batch_size": 64}
            for name, (epochs, rate) in stages.items()
        },
        "weights": {"cycle": 0.2, "jcp": 0.5},
        "train_probes": 1,
        "train_probe_rows": 8,
        "probe_law": "rademacher" if paper else "prior",
        "guard": None if paper else 1.04,
    }


def _write(target: StudyFolder, cell: Cell) -> None:
    rng = _generator(cell)
    x_shape, y_shape = SHAPES[cell.problem]
    if cell.method == TRUTH:
        fields = {
            "x": rng.uniform(size=(3, *x_shape)).astype(np.float32),
            "y": rng.uniform(size=(3, *y_shape)).astype(np.float32),
        }
        target.write_cell(cell, instances=None, steps=None, fields=fields, seconds=0.1)
        return
    tables = [_instance(cell, k, rng) for k in range(cell.instances)]
    target.write_cell(
        cell,
        instances=pd.DataFrame([row for row, _ in tables], columns=list(INSTANCES)),
        steps=pd.DataFrame([step for _, steps in tables for step in steps], columns=list(STEPS)),
        fields={"x": rng.uniform(size=(3, *x_shape)).astype(np.float32)},
        seconds=float(sum(row["seconds"] for row, _ in tables)),
        latency_ms=float(1e3 * np.median([row["seconds"] for row, _ in tables])),
    )


def _instance(
    cell: Cell, k: int, rng: np.random.Generator
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    factor, count, per_step, cost = TRAITS.get(cell.method, D_IPG)
    axes = {name: getattr(cell, name) for name in ("problem", "set", "model", "seed", "method")}
    harder = {"test": 1.0, "shifted": 2.0, "extreme": 5.0}[cell.set]
    worse = 1.5 if cell.model.endswith("-plain") else 1.0
    last = FLOOR[cell.problem] * factor * harder * worse * float(rng.lognormal(0.0, 0.2))
    first, noise = 0.6, 0.02
    free = cell.method == "d-ipg-free"
    count = FREE_STEPS if free else count and max(1, int(rng.poisson(count)))
    share = np.geomspace(1.0, last / first, count + 1) if count else np.array([last / first])
    residuals = 1.0 * share * rng.lognormal(0.0, 0.05, size=len(share))
    residuals[0] = 1.0 if count else 1.2 * noise
    evaluations = 2 + per_step * np.arange(len(share))
    steps = [
        {
            **axes,
            "instance": k,
            "step": t,
            "residual": float(residuals[t]),
            "relative_residual": float(residuals[t] / residuals[0]),
            "rmse": float(first * share[t]),
            "step_size": 1.0 if t else np.nan,
            "step_norm": float(first * share[t]) if t else np.nan,
            "decrease": float(residuals[t - 1] - residuals[t]) if t else np.nan,
            "cosine": float(rng.uniform(0.1, 0.9)) if t else np.nan,
            "trials": 1 if t else 0,
            "rule": cell.method.split()[0] if t else "",
            "evaluations": float(evaluations[t]),
            "seconds": float(cost * evaluations[t]),
        }
        for t in range(len(share))
    ]
    uses_reverse = "d-ipg" in cell.method or cell.method in ("one-shot", "guarded", "guarded-true")
    status = "CONVERGED" if rng.uniform() < 0.85 and not free else "STEP_LIMIT"
    row = {
        **axes,
        "instance": k,
        "status": status,
        "reason": "DIRECT" if not count else "TOLERANCE" if status == "CONVERGED" else status,
        "iterations": count,
        "rmse": last,
        "rmse_start": first if count else last,
        "residual": float(residuals[-1]),
        "residual_start": float(residuals[0]),
        "relative_residual": float(residuals[-1] / residuals[0]),
        "true_residual": float(np.hypot(noise, residuals[-1])),
        "noise_level": noise,
        "accepted_fraction": float(rng.uniform(0.6, 1.0)) if count else np.nan,
        "seconds": float(cost * evaluations[-1]),
        "f": 1 + count,
        "g": count if uses_reverse else 0,
        "jvp": 0,
        "vjp": count,
        "linear_steps": 10 * count if per_step > 10 else 0,
        "evaluations": int(evaluations[-1]),
        "rjcp": float(rng.uniform(0.2, 1.0)) if uses_reverse else np.nan,
        "coverage": 0.875 + 0.01 * k if cell.method in ("one-shot", "guarded") else np.nan,
    }
    return row, steps


def _generator(key: Cell | ModelKey) -> np.random.Generator:
    return np.random.default_rng(int(digest(repr(key))[:8], 16))


if __name__ == "__main__":
    write_study(Path(sys.argv[1]))
