"""How the pairs were trained and what came of it: recipes as the records hold them, and models."""

from __future__ import annotations

import json
import math
from typing import Any

from deceptron.report.published import paper_value
from deceptron.report.query import Query
from deceptron.report.tables.table import Column, Exact, Line, Table, Value, measured, paper_line
from deceptron.study.names import MODELS

_STAGES = ("forward", "reverse", "jcp")


def _table_7(quantity: str) -> Any:
    return lambda problem: Exact(paper_value("Table 7", quantity, problem=problem, method="").value)


def _stage(stage: str, field: str) -> Any:
    return lambda recipe: Exact(recipe[stage][field])


def _guard(recipe: dict[str, Any]) -> Value:
    return None if recipe["guard"] is None else Exact(recipe["guard"])


RECIPE = (
    Column("problem", "problem"),
    Column("source", "source"),
    *(
        Column(f"{key}_{stage}", stage, title, _stage(stage, field), _table_7(f"{key} {stage}"))
        for key, title, field in (
            ("epochs", "epochs", "epochs"),
            ("rate", "learning rate", "learning_rate"),
        )
        for stage in _STAGES
    ),
    *(
        Column(
            f"weight_{key}",
            title,
            "loss weight",
            lambda recipe, key=key: Exact(recipe["weights"][key]),  # type: ignore[misc]
            _table_7(f"weight {key}"),
        )
        for key, title in (("cycle", "cycle"), ("jcp", "JCP"))
    ),
    Column("batch", "batch", value=lambda recipe: recipe["forward"]["batch_size"]),
    Column(
        "probes",
        "probes x rows",
        value=lambda recipe: f"{recipe['train_probes']} x {recipe['train_probe_rows']}",
    ),
    Column("law", "probe law", value=lambda recipe: recipe["probe_law"]),
    Column("guard", "guard", value=_guard),
)


def hyperparameters(query: Query) -> Table:
    """Table 7 of the paper and the recipes that trained the pairs of this study."""
    lines: list[Line] = []
    for problem in query.problems:
        paper = paper_line(RECIPE, problem)
        if any(isinstance(value, Exact) and value.value == value.value for value in paper.values()):
            lines.append({"problem": problem, "source": "paper, Table 7", **paper})
        recipes: dict[str, dict[str, Any]] = {}
        for row in _in_order(query):
            if row["problem"] == problem and row["recipe"] not in ("", "{}"):
                recipes.setdefault(f"preset {row['preset']}", json.loads(row["recipe"]))
        for source, recipe in recipes.items():
            lines.append({"problem": problem, "source": source, **measured(RECIPE, recipe)})
    return Table(
        "hyperparameters",
        "Hyper-parameters",
        "Read from the recipes that the pairs of this study carry. Stages: f, then g, then g with "
        "JCP. The paper gives heat-1d no probe-JCP weight; its script uses 1.0. Weights of "
        "standard are relative to expected errors and not comparable with the paper's.",
        RECIPE,
        tuple(lines),
    )


def _error_over_noise(row: dict[str, Any]) -> float:
    noise = float(row["noise_level"])
    return float(row["surrogate_error"]) / noise if noise else math.nan


MODEL = (
    Column("problem", "problem", value=lambda row: row["problem"]),
    Column("model", "model", value=lambda row: row["model"]),
    Column("preset", "preset", value=lambda row: row["preset"]),
    Column("seed", "seed", value=lambda row: int(row["seed"])),
    Column("ships", "ships", value=lambda row: "yes" if row["shipped"] else "no"),
    Column("train_seconds", "training s", value=lambda row: float(row["train_seconds"])),
    Column("parameters_f", "f", "parameters", lambda row: int(row["parameters_f"])),
    Column("parameters_g", "g", "parameters", lambda row: int(row["parameters_g"])),
    Column("surrogate_error", "error of f / noise", value=_error_over_noise),
    Column("rjcp", "published", "RJCP", lambda row: float(row["rjcp"])),
    Column("rjcp_noise_aware", "noise-aware", "RJCP", lambda row: float(row["rjcp_noise_aware"])),
    Column("recon_rmse", "reconstruction", value=lambda row: float(row["recon_rmse"])),
)


def models(query: Query) -> Table:
    """Every model of the study: what it took and how good its two maps are."""
    lines = tuple(measured(MODEL, row) for row in _in_order(query))
    return Table(
        "models",
        "Models",
        "Training seconds include the data. The error of f is RMS on the test set in units of the "
        "noise: above 1 the surrogate cannot explain the data to the noise. RJCP in the mean form "
        "at 64 test latents, not at answers as in the other tables; published law, and noise-aware "
        "(prior probes and noise). Reconstruction: RMSE of g on noise-free observations.",
        MODEL,
        lines,
        () if lines else ("The table of models could not be read.",),
    )


def _in_order(query: Query) -> list[dict[Any, Any]]:
    problems = list(query.problems)

    def place(row: dict[Any, Any]) -> tuple[int, int, int]:
        known = [*problems, row["problem"]], [*MODELS, row["model"]]
        return known[0].index(row["problem"]), known[1].index(row["model"]), int(row["seed"])

    return sorted(query.tables.models.values(), key=place)
