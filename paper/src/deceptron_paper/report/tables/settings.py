"""What the results rest on: recipes as the records hold them, models, and the rules by name."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from deceptron_paper import statistics
from deceptron_paper.report.captions import rmse_limits
from deceptron_paper.report.published import paper_value
from deceptron_paper.report.query import Query
from deceptron_paper.report.tables.table import (
    Column,
    Exact,
    Line,
    Value,
    is_known,
    measured,
    paper_line,
    table,
)
from deceptron_paper.study.names import MODELS

_STAGES = ("forward", "reverse", "jcp")


def _table_7(quantity: str) -> Any:
    return lambda problem: Exact(paper_value("Table 7", quantity, problem=problem, method="").value)


def _setting(group: str, field: str) -> Any:
    return lambda recipe: Exact(recipe[group][field])


def _exact(value: float | None) -> Value:
    return None if value is None else Exact(value)


RECIPE = (
    Column("problem", "problem"),
    Column("source", "source"),
    *(
        Column(f"{key}_{stage}", stage, title, _setting(stage, field), _table_7(f"{key} {stage}"))
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
            _setting("weights", key),
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
    Column("guard", "guard", value=lambda recipe: _exact(recipe["guard"])),
)


@table("hyperparameters", "Hyper-parameters", RECIPE)
def hyperparameters(query: Query) -> Iterator[Line]:
    """Table 7 of the paper and the recipes that trained the pairs of this study."""
    for problem in query.problems:
        paper = paper_line(RECIPE, problem)
        if any(map(is_known, paper.values())):
            yield {"problem": problem, "source": "paper, Table 7", **paper}
        recipes: dict[str, dict[str, Any]] = {}
        for row in _in_order(query):
            if row["problem"] == problem and row["recipe"] not in ("", "{}"):
                recipes.setdefault(f"preset {row['preset']}", json.loads(row["recipe"]))
        for source, recipe in recipes.items():
            yield {"problem": problem, "source": source, **measured(RECIPE, recipe)}


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


@table("models", "Models", MODEL)
def models(query: Query) -> Iterator[Line]:
    """Every model of the study: what it took and how good its two maps are."""
    return (measured(MODEL, row) for row in _in_order(query))


def _in_order(query: Query) -> list[dict[Any, Any]]:
    """Rows of the table of models as problems and models are shown; unknown ones last."""
    places = {name: k for k, name in enumerate((*query.problems, *MODELS))}
    last = len(places)

    def place(row: dict[Any, Any]) -> tuple[int, int, int]:
        return places.get(row["problem"], last), places.get(row["model"], last), int(row["seed"])

    return sorted(query.models.values(), key=place)


@table(
    "criteria",
    "Evaluation criteria",
    (
        Column("rule", "rule"),
        Column("criterion", "criterion"),
        Column("paper", "in the paper"),
        Column("here", "here"),
    ),
)
def criteria(query: Query) -> Iterator[Line]:
    """Table 1 of the paper, and the rules beside it: what counts as solved or spread out."""
    with (files("deceptron_paper.report") / "criteria.csv").open(encoding="utf-8") as file:
        for rule in csv.DictReader(file):
            words = rule["criterion"].format(limits=rmse_limits(query), rules=statistics)
            yield {**rule, "criterion": words}
