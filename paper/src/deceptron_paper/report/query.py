"""Questions to the records of a study, and a note of each that they could not answer."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pandas as pd

from deceptron_paper.report.trials import Axes, Cells, Trials
from deceptron_paper.statistics import ORACLE, oracle_rmse
from deceptron_paper.study.names import SETS
from deceptron_paper.study.records import MethodRecord, Records
from deceptron_paper.study.tables import AXES

__all__ = ["WITHOUT_JCP", "Query", "Trials", "versions"]

# Same weights of f, and of g up to stage 3.
WITHOUT_JCP = {"paper": "paper-plain", "standard": "standard-plain"}
_NAMED = 20  # groups of cells that a note names


class Query:
    """One reader's access to the records; ``notes`` name what it looked for in vain.

    ``problems``, ``methods``, ``sets`` and ``seeds`` are the planned ones in the order of display,
    ``limits`` the thresholds of the success rule rmse.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self.problems, self.methods = records.problems, records.methods
        self.planned: set[Axes] = {
            (e["problem"], e["set"], e["model"], int(e["seed"]), e["method"])
            for e in records.study["cells"]
        }
        self.sets = [name for name in SETS if any(axes[1] == name for axes in self.planned)]
        self.seeds = sorted({axes[3] for axes in self.planned})
        self.limits = {name: entry.rmse_limit for name, entry in self.problems.items()}
        self.instances, self.steps = Cells(records.instances), Cells(records.steps)
        self.oracle = oracle_rmse(records.instances)
        self.models: dict[tuple[str, str, int], dict[Any, Any]] = {
            (row["problem"], row["model"], row["seed"]): row
            for row in records.models.to_dict("records")
        }
        names = records.cells[list(AXES)].itertuples(index=False, name=None)
        seconds = records.cells["latency_ms"].astype(float) / 1e3
        self.latencies: dict[Any, float] = dict(zip(names, seconds, strict=True))
        # Models without JCP that another preset trained than their partner with it: beside each
        # other the two would show the presets, not JCP.
        self.mismatched = {
            (problem, plain, seed)
            for with_jcp, plain in WITHOUT_JCP.items()
            for (problem, name, seed), row in self.models.items()
            if name == with_jcp
            and (other := self.models.get((problem, plain, seed))) is not None
            and other["preset"] != row["preset"]
        }
        self._forget()

    def _forget(self) -> None:
        self._lacking: dict[tuple[str, str, str, int], dict[str, None]] = defaultdict(dict)
        self._left_out: dict[tuple[str, str, int], None] = {}
        self._lost: dict[Axes, str] = {}

    def fresh(self) -> Query:
        """The same records for another reader, with notes of its own."""
        other = copy.copy(self)
        other._forget()
        return other

    @property
    def seed(self) -> int:
        """The first seed: that of every table but those of seeds and of the guarded solver."""
        return self.seeds[0] if self.seeds else 7

    def trials(
        self, problem: str, model: str, method: str, *, set: str = "test", seed: int | None = None
    ) -> Trials:
        """Those of one seed, by default the first; empty, and noted, where there are none."""
        asked = (problem, set, model, self.seed if seed is None else seed, method)
        where = (problem, model, asked[3])
        found = [asked] if self._holds(asked) else []
        if not found and method in self.methods and _is_model_free(self.methods[method]):
            # Its answer does not depend on the networks: any model's records will do.
            others = (a for a in self.instances if a[:2] == (problem, set))
            found = [a for a in others if a[3:] == asked[3:]][:1]
        if where in self.mismatched:
            self._left_out[where] = None
        elif not found:
            self._lacking[problem, set, model, asked[3]][method] = None
        for axes in found:
            errors = self.instances[axes]["rmse"]
            if lost := int(errors.isna().sum()):
                self._lost[axes] = f"{', '.join(map(str, axes))}: {lost} of {len(errors)}"
        return Trials(self, found)

    def pooled(self, problem: str, model: str, method: str, *, set: str = "test") -> Trials:
        """Those of all planned seeds together; cells that are not there are noted."""
        parts = [
            self.trials(problem, model, method, set=set, seed=seed)
            for seed in self.planned_seeds(problem, model, method, set=set)
        ]
        return Trials(self, [axes for part in parts for axes in part.cells])

    def recorded(self, problem: str, model: str, method: str, *, set: str = "test") -> Trials:
        """Those of every seed that has records of this very model; nothing is noted."""
        asked = ((problem, set, model, seed, method) for seed in self.seeds)
        return Trials(self, [axes for axes in asked if self._holds(axes)])

    def planned_methods(self, problem: str, model: str, *, set: str = "test") -> list[str]:
        """Methods that the study was to run on this model and the first seed."""
        where = (problem, set, model, self.seed)
        return [method for method in self.methods if (*where, method) in self.planned]

    def planned_seeds(
        self, problem: str, model: str, method: str, *, set: str = "test"
    ) -> list[int]:
        """Seeds that the study was to run."""
        return [s for s in self.seeds if (problem, set, model, s, method) in self.planned]

    def preset(self, problem: str, model: str) -> str:
        """What trained the model, such as ``paper-reduced``."""
        row = self.models.get((problem, model, self.seed))
        return model if row is None else str(row["preset"])

    def oracle_counts(self) -> pd.Series:
        """How many instances stand behind each mean of the oracle."""
        instances = self.records.instances
        oracle = instances[instances["method"] == ORACLE]
        return oracle.groupby(["problem", "set"])["rmse"].count()

    def notes(self) -> tuple[str, ...]:
        """What a reader must know: small samples, versions, errors that are none, absent cells."""
        notes = []
        if self.records.small:
            notes.append("Small samples: this study shows that everything runs, not how well.")
        if (warning := versions(self.records)) is not None:
            notes.append(warning)
        if self._lost:
            notes.append(
                "RMSE not a number, counted as failures and left out of means and differences: "
                f"{_listed(self._lost.values())}."
            )
        if self._left_out:
            names = (f"{p}, {model}, seed {seed}" for p, model, seed in self._left_out)
            notes.append(
                f"Left out, not trained by the preset of its partner with JCP: {'; '.join(names)}."
            )
        if self._lacking:
            parts = (
                f"{problem}, {set}, {model}, seed {seed}: {', '.join(methods)}"
                for (problem, set, model, seed), methods in self._lacking.items()
            )
            notes.append(f"Not in the records: {_listed(parts)}.")
        return tuple(notes)

    def _holds(self, axes: Axes) -> bool:
        problem, _, model, seed, _ = axes
        return axes in self.instances and (problem, model, seed) not in self.mismatched


def versions(records: Records) -> str | None:
    """A warning if cells were solved by different versions of the library."""
    counts = records.cells["library"].value_counts().sort_index()
    if len(counts) < 2:
        return None
    each = ", ".join(f"{name} ({count} cells)" for name, count in counts.items())
    return f"Solved by different versions of the library, which may differ in results: {each}."


def _is_model_free(method: MethodRecord) -> bool:
    return not method.uses_reverse and (method.direct or method.physics == "true")


def _listed(parts: Iterable[str]) -> str:
    named = list(parts)
    rest = len(named) - _NAMED
    more = f"; and {rest} more" if rest > 0 else ""
    return f"{'; '.join(named[:_NAMED])}{more}"
