"""How the pairs were trained and what came of it: recipes as the library holds them, and models."""

from __future__ import annotations

import math
from typing import Any

from deceptron import problems
from deceptron.report.index import Index
from deceptron.report.published import published
from deceptron.report.tables.table import Cell, Column, Exact, Table
from deceptron.report.tables.view import View
from deceptron.study.names import MODELS, PROBLEMS
from deceptron.train import PRESETS, Recipe, recipe

_STAGES = ("forward", "reverse", "jcp")


def hyperparameters(index: Index) -> Table:
    """Table 7 of the paper and every preset's own numbers."""
    presets = [preset for preset in PRESETS if preset != "smoke"]
    rows: list[tuple[Cell, ...]] = []
    for name in index.problems:
        problem = problems.get(name)
        rows.append((name, "paper, Table 7", *_table_7(name)))
        rows += [
            (name, f"preset {preset}", *_recipe(recipe(problem, preset))) for preset in presets
        ]
    return Table(
        "hyperparameters",
        "Hyper-parameters",
        "Read from the recipes themselves. Stages: f, then g, then g with JCP. The paper gives "
        "heat-1d no probe-JCP weight; its script uses 1.0. Weights of standard are relative to "
        "expected errors and not comparable with the paper's.",
        (
            Column("problem", "problem"),
            Column("source", "source"),
            *(Column(f"epochs_{s}", s, "epochs") for s in _STAGES),
            *(Column(f"rate_{s}", s, "learning rate") for s in _STAGES),
            Column("weight_cycle", "cycle", "loss weight"),
            Column("weight_jcp", "JCP", "loss weight"),
            Column("batch", "batch"),
            Column("probes", "probes x rows"),
            Column("law", "probe law"),
            Column("guard", "guard"),
        ),
        tuple(rows),
    )


def _table_7(problem: str) -> tuple[Cell, ...]:
    def value(quantity: str) -> float:
        return published("Table 7", quantity, problem=problem, method="").value

    return (
        *(Exact(value(f"epochs {stage}")) for stage in _STAGES),
        *(Exact(value(f"rate {stage}")) for stage in _STAGES),
        Exact(value("weight cycle")),
        Exact(value("weight jcp")),
        *[None] * 4,
    )


def _recipe(found: Recipe) -> tuple[Cell, ...]:
    stages = [getattr(found, stage) for stage in _STAGES]
    return (
        *(Exact(stage.epochs) for stage in stages),
        *(Exact(stage.learning_rate) for stage in stages),
        Exact(found.weights.cycle),
        Exact(found.weights.jcp),
        stages[0].batch_size,
        f"{found.train_probes} x {found.train_probe_rows}",
        found.probe_law,
        None if found.guard is None else Exact(found.guard),
    )


def models(index: Index) -> Table:
    """Every model of the study: what it took and how good its two maps are."""
    view = View(index)
    rows: list[tuple[Cell, ...]] = []
    for row in sorted(index.models.values(), key=_place):
        noise = float(row["noise_level"])
        rows.append(
            (
                row["problem"],
                row["model"],
                row["preset"],
                int(row["seed"]),
                "yes" if row["shipped"] else "no",
                float(row["train_seconds"]),
                int(row["parameters_f"]),
                int(row["parameters_g"]),
                float(row["surrogate_error"]) / noise if noise else math.nan,
                float(row["rjcp"]),
                float(row["rjcp_noise_aware"]),
                float(row["recon_rmse"]),
            )
        )
    return Table(
        "models",
        "Models",
        "Training seconds include the data. The error of f is RMS on the test set in units of the "
        "noise: above 1 the surrogate cannot explain the data to the noise. RJCP in the mean form "
        "at 64 test latents, not at answers as in the other tables; published law, and noise-aware "
        "(prior probes and noise). Reconstruction: RMSE of g on noise-free observations.",
        (
            Column("problem", "problem"),
            Column("model", "model"),
            Column("preset", "preset"),
            Column("seed", "seed"),
            Column("ships", "ships"),
            Column("train_seconds", "training s"),
            Column("parameters_f", "f", "parameters"),
            Column("parameters_g", "g", "parameters"),
            Column("surrogate_error", "error of f / noise"),
            Column("rjcp", "published", "RJCP"),
            Column("rjcp_noise_aware", "noise-aware", "RJCP"),
            Column("recon_rmse", "reconstruction"),
        ),
        tuple(rows),
        view.notes() if rows else ("The table of models could not be read.",),
    )


def _place(row: dict[Any, Any]) -> tuple[int, int, int]:
    known = [*PROBLEMS, row["problem"]], [*MODELS, row["model"]]
    return known[0].index(row["problem"]), known[1].index(row["model"]), int(row["seed"])
