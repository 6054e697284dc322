"""The settings of a run as JSON: what must agree before the files of a run are used again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Generator, Tensor

from deceptron.core.errors import CheckpointError, DeceptronError
from deceptron.core.identity import plain
from deceptron.problems import Problem
from deceptron.train.recipe import Recipe

FORMAT = "deceptron-run"
VERSION = 1

Config: TypeAlias = dict[str, Any]

# What only stage 3 or what follows it reads: runs that differ in nothing else share stages 1 and 2.
_LATE = {"jcp", "train_probes", "train_probe_rows", "probe_bank", "guard", "selection_rjcp"}
_LATE |= {"name", "both", "wiener_limit", "correction_limit"}
_LATE_WEIGHTS = {"jcp", "bias_tie", "composition"}

# A few numbers of a latent and of its observation: functions are told by their names, which say
# nothing of what they do. Another machine rounds otherwise.
_MEASURED = ("latent_drawn", "observation_simulated")
_FEW, _ROUNDING = 16, 1e-3


def config_of(
    problem: Problem,
    recipe: Recipe,
    *,
    seed: int,
    jcp: bool,
    dtype: torch.dtype,
    unitless: bool = False,
) -> Config:
    """Everything that decides the bits of a run; whether x is trained on without its units."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "problem": problem.name,
        "preset": recipe.name,
        "seed": seed,
        "jcp": jcp,
        "dtype": str(dtype).removeprefix("torch."),
        **problem_document(problem),
        **({"unitless": True} if unitless else {}),
        "recipe": plain(recipe),
    }


def problem_document(problem: Problem) -> Config:
    """A problem by its fields and a few of its numbers."""
    skipped = {"name", "equation", "paper", "checks"}
    skipped |= {"test_count", "shifted_count", "extreme_count"}
    settings = {
        entry.name: plain(getattr(problem, entry.name))
        for entry in fields(problem)
        if entry.name not in skipped
    }
    return {"fields": settings, **_measured(problem)}


def _measured(problem: Problem) -> Config:
    """Empty of what is not the same each time."""
    first, again = (problem.sample(1, generator=Generator().manual_seed(0)) for _ in range(2))
    if not torch.equal(first, again):
        return {}
    found = {_MEASURED[0]: _few(first[0])}
    if problem.has_simulator:
        try:
            with torch.no_grad():
                one, same = problem.simulate(first.repeat(2, *(1,) * (first.ndim - 1)))
        except DeceptronError:  # this row may be one that it has no answer for
            return found
        if torch.equal(one, same):
            found[_MEASURED[1]] = _few(one)
    return found


def _few(values: Tensor) -> list[float]:
    flat = values.detach().flatten().double().cpu()
    places = torch.linspace(0, len(flat) - 1, min(_FEW, len(flat))).long()
    return [float(f"{value:.6g}") for value in flat[places].tolist()]


def _alike(found: list[float], wanted: list[float]) -> bool:
    a, b = (torch.tensor(values, dtype=torch.float64) for values in (found, wanted))
    if a.shape != b.shape:
        return False
    size = float(b.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return torch.allclose(a, b, rtol=_ROUNDING, atol=_ROUNDING * size, equal_nan=True)


def read_config(path: Path) -> Config:
    """The ``config.json`` of a run, as it stands."""
    try:
        found: Config = json.loads(path.read_text())
        if found["format"] != FORMAT or not isinstance(found["recipe"], dict):
            raise ValueError(f"format {found['format']!r}")
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is not the config.json of a deceptron run") from error
    return found


def difference(
    found: Config, wanted: Config, *, early: bool = False
) -> tuple[str, Any, Any] | None:
    """The first setting that differs, in words such as ``recipe.jcp.epochs``, and both values.

    With ``early``, only what stages 1 and 2 read is compared.
    """
    # A run older than a setting was made with what is now its default.
    settings = [entry for entry in fields(Recipe) if entry.default is not MISSING]
    defaults = {entry.name: plain(entry.default) for entry in settings}
    complete = {**found, "recipe": {**defaults, **found["recipe"]}}
    return differing(_early(complete), _early(wanted)) if early else differing(complete, wanted)


def differing(found: Config, wanted: Config) -> tuple[str, Any, Any] | None:
    """The first setting that differs; measured numbers may round otherwise, or be missing."""
    kept, asked = dict(found), json.loads(as_json(wanted))
    for key in _MEASURED:
        if key not in kept or key not in asked or _alike(kept[key], asked[key]):
            kept.pop(key, None)
            asked.pop(key, None)
    return _differs(kept, asked)


def digest(config: Config) -> str:
    """A short name of these settings."""
    return hashlib.sha256(as_json(config).encode()).hexdigest()[:16]


def as_json(config: Config) -> str:
    """The text of ``config.json``."""
    return json.dumps(config, indent=1)


def _early(config: Config) -> Config:
    recipe = {key: value for key, value in config["recipe"].items() if key not in _LATE}
    weights = {k: v for k, v in recipe.get("weights", {}).items() if k not in _LATE_WEIGHTS}
    kept = {key: value for key, value in config.items() if key not in ("preset", "jcp")}
    return {**kept, "recipe": {**recipe, "weights": weights}}


def _differs(found: Any, wanted: Any, name: str = "") -> tuple[str, Any, Any] | None:
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in [*wanted, *(key for key in found if key not in wanted)]:
            below = f"{name}.{key}" if name else key
            different = _differs(found.get(key), wanted.get(key), below)
            if different is not None:
                return different
        return None
    return None if found == wanted else (name, found, wanted)
