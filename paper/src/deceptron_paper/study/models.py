"""Where the pairs of a study come from: shipped, found among earlier runs, or trained for it.

Runs are looked for under one folder, ``runs`` by default, as ``tools/train_study_models.py``,
``benchmarks/standard.py`` and, for preset paper, ``deceptron train --out`` leave them::

    standard/NAME-SEED               standard, standard-plain
    paper/NAME-SEED                  paper, paper-plain (preset paper, where its hours were spent)
    models/paper-reduced/NAME-SEED   paper, paper-plain otherwise
    models/probes/NAME-SEED-COUNT    paper-probes-COUNT
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Generator, nn

from deceptron import CheckpointError, Deceptron, DeceptronError, load
from deceptron.geometry import noise_aware_rjcp, rjcp
from deceptron.maps import shipped
from deceptron.measure import linear_estimate, measure, simulate, surrogate_error
from deceptron.train import recipe, train
from deceptron.work import differing, problem_document
from deceptron_paper.study import data
from deceptron_paper.study.cell import ModelKey
from deceptron_paper.study.entries import PROBLEMS
from deceptron_paper.study.names import PROBE_MODELS
from deceptron_paper.study.solving import RJCP_PROBES

Policy = Literal["skip", "train", "smoke"]
POLICIES: tuple[Policy, ...] = ("skip", "train", "smoke")
SHIPPED_SEED = 7
PAIR, PLAIN = "pair.safetensors", "pair-plain.safetensors"
TEST_ROWS = 64  # instances a model is measured on


class NoModel(DeceptronError):
    """The study may not spend the time that this model takes to train."""


@dataclass(frozen=True)
class Provider:
    """Finds pairs under ``runs``; ``policy`` says what to do about one that is not there.

    ``skip`` leaves it out, ``train`` trains it (hours, for some), ``smoke`` puts a pair in its
    place that was trained for seconds: good enough to see that everything runs.
    """

    runs: Path
    policy: Policy
    scratch: Path

    def pair(self, key: ModelKey) -> tuple[Deceptron, bool]:
        """The pair, with a linear estimate if there is one, and whether it is one that ships."""
        ships = key.model == "standard" and key.seed == SHIPPED_SEED and key.problem in shipped()
        pair = load(key.problem) if ships else self._found(key) or self._made(key)
        if pair.wiener is None:
            pair.wiener = self._linear(key, pair)
        return pair.eval().requires_grad_(False), ships

    def _linear(self, key: ModelKey, pair: Deceptron) -> nn.Module | None:
        """The ridge estimate belongs to the data: pairs trained on the same rows share it."""
        if key.model == "standard":
            problem = data.problem(key.problem)
            return linear_estimate(problem, problem.dataset(key.seed).train, pair.scaler)
        try:
            other, _ = self.pair(replace(key, model="standard"))
        except Exception:  # what is wrong with the other pair is said where that pair is used
            return None
        ours, theirs = pair.scaler, other.scaler
        same = torch.equal(ours.shift, theirs.shift) and torch.equal(ours.scale, theirs.scale)
        return other.wiener if same else None

    def _found(self, key: ModelKey) -> Deceptron | None:
        if self.policy == "smoke":
            return None
        for path in self._places(key):
            if path.is_file():
                return _checked(load(path), path, key)
        return None

    def _places(self, key: ModelKey) -> Iterator[Path]:
        run, file = f"{key.problem}-{key.seed}", PLAIN if key.model.endswith("-plain") else PAIR
        if key.model.startswith("standard"):
            yield self.runs / "standard" / run / file
        elif key.model in PROBE_MODELS:
            yield self.runs / "models" / "probes" / f"{run}-{PROBE_MODELS[key.model]}" / file
        else:
            yield self.runs / "paper" / run / file
            yield self.runs / "models" / "paper-reduced" / run / file

    def _made(self, key: ModelKey) -> Deceptron:
        place = list(self._places(key))[-1]
        if self.policy == "skip":
            raise NoModel(f"there is no {place.relative_to(self.runs)}, and this study trains none")
        smoke, standard = self.policy == "smoke", key.model.startswith("standard")
        preset = "smoke" if smoke else "standard" if standard else "paper-reduced"
        problem, probes = data.problem(key.problem), PROBE_MODELS.get(key.model)
        # Both branches of stage 3 come from one run, and the probe models start from it.
        base = self._run(replace(key, model="paper")) if probes or smoke else place.parent
        train(problem, preset, base, seed=key.seed, both=True, progress=False)
        if probes is None:
            return load(base / place.name)
        chosen = recipe(problem, preset)
        chosen = replace(
            chosen, name=f"{chosen.name}-probes-{probes}", train_probes=probes, both=False
        )
        out = self._run(key)
        return train(problem, chosen, out, seed=key.seed, start_from=base, progress=False)

    def _run(self, key: ModelKey) -> Path:
        """Where a run is trained."""
        smoke = self.policy == "smoke"
        return self.scratch / key.slug if smoke else list(self._places(key))[-1].parent


def describe(key: ModelKey, pair: Deceptron, *, ships: bool) -> dict[str, Any]:
    """A row of the table of models, measured on the first test instances."""
    problem = data.problem(key.problem)
    x = data.split(key.problem, key.seed, "test", TEST_ROWS).x[:TEST_ROWS]
    clean = simulate(problem, x)
    reconstruction = measure(pair, problem, x, clean, label="", method="one-shot")
    noise_aware = noise_aware_rjcp(
        pair,
        x,
        prior=problem.prior,
        noise_std=problem.noise_std,
        probes=RJCP_PROBES,
        generator=Generator().manual_seed(0),
    )
    published = rjcp(pair, x, probes=RJCP_PROBES, generator=Generator().manual_seed(0))
    made = pair.provenance
    return {
        "problem": key.problem,
        "model": key.model,
        "seed": key.seed,
        "preset": made.get("preset", "unknown"),
        "train_seconds": float(sum(made.get("seconds", {}).values())) or math.nan,
        "parameters_f": sum(p.numel() for p in pair.f.parameters()),
        "parameters_g": sum(p.numel() for p in pair.g.parameters()),
        "surrogate_error": surrogate_error(pair, problem, x),
        "noise_level": pair.scaler.noise_level(problem.noise_std, problem.y_shape),
        "rjcp": float(published.mean()),
        "rjcp_noise_aware": float(noise_aware.mean()),
        "recon_rmse": float(reconstruction.rmse.mean()),
        "shipped": ships,
        "recipe": json.dumps(made.get("recipe", {}), sort_keys=True),
    }


def _checked(pair: Deceptron, path: Path, key: ModelKey) -> Deceptron:
    """A run folder may have been made by hand: see that it holds what its name says."""
    made = pair.provenance
    found = (pair.name, made.get("seed"), made.get("jcp"))
    wanted = (key.problem, key.seed, not key.model.endswith("-plain"))
    if found != wanted:
        raise CheckpointError(
            f"{path} must hold the pair (problem, seed, jcp) = {wanted}; it holds {found}"
        )
    if key.problem not in PROBLEMS:  # a user's own, which may have been another then
        asked = problem_document(data.problem(key.problem))
        noted = {name: made[name] for name in asked if name in made}
        if different := differing(noted, asked):
            setting, old, new = different
            raise CheckpointError(
                f"{path} was trained for another problem called {key.problem!r}: its {setting} was "
                f"{old!r} and is {new!r}"
            )
    return pair
