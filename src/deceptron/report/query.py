"""One reader's questions to the records, and a note of each that they could not answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pandas as pd

from deceptron.report.cells import WITHOUT_JCP, Axes, Tables
from deceptron.report.trials import Trials
from deceptron.study.names import SETS
from deceptron.study.records import MethodRecord, ProblemRecord, Records
from deceptron.study.statistics import ORACLE

__all__ = ["WITHOUT_JCP", "Query", "Trials", "versions"]

_NAMED = 20  # groups of cells that a note names


class Query:
    """One reader's access to the records; ``notes`` name what it looked for in vain."""

    def __init__(self, records: Records, tables: Tables | None = None) -> None:
        self.records = records
        self.tables = Tables(records) if tables is None else tables
        self._lacking: dict[tuple[str, str, str, int], dict[str, None]] = defaultdict(dict)
        self._left_out: dict[tuple[str, str, int], None] = {}
        self._lost: dict[Axes, str] = {}

    def fresh(self) -> Query:
        """The same records for another reader, with notes of its own."""
        return Query(self.records, self.tables)

    @property
    def problems(self) -> dict[str, ProblemRecord]:
        """Planned problems in the order of display."""
        return self.records.problems

    @property
    def methods(self) -> dict[str, MethodRecord]:
        """Planned methods in the order of display."""
        return self.records.methods

    @property
    def sets(self) -> list[str]:
        """Planned sets in the order of display."""
        return [name for name in SETS if any(axes[1] == name for axes in self.tables.planned)]

    @property
    def seeds(self) -> list[int]:
        """Planned seeds."""
        return self.tables.seeds

    @property
    def seed(self) -> int:
        """The first seed: that of every table but those of seeds and of the guarded solver."""
        return self.seeds[0] if self.seeds else 7

    @property
    def limits(self) -> dict[str, float]:
        """Thresholds of the success rule rmse."""
        return self.tables.limits

    def trials(
        self, problem: str, model: str, method: str, *, set: str = "test", seed: int | None = None
    ) -> Trials:
        """Those of one seed, by default the first; empty, and noted, where there are none."""
        chosen = self.seed if seed is None else seed
        cells = self._found(problem, set, model, method, [chosen])
        if (problem, model, chosen) in self.tables.mismatched:
            self._left_out[problem, model, chosen] = None
        elif not cells:
            self._lacking[problem, set, model, chosen][method] = None
        return self._noted(Trials(self.tables, cells))

    def pooled(self, problem: str, model: str, method: str, *, set: str = "test") -> Trials:
        """Those of all planned seeds together; cells that are not there are noted."""
        parts = [
            self.trials(problem, model, method, set=set, seed=seed)
            for seed in self.planned_seeds(problem, model, method, set=set)
        ]
        return Trials(self.tables, [axes for part in parts for axes in part.cells])

    def recorded(self, problem: str, model: str, method: str, *, set: str = "test") -> Trials:
        """Those of every seed that has records of this very model; nothing is noted."""
        asked = ((problem, set, model, seed, method) for seed in self.seeds)
        return Trials(self.tables, [axes for axes in asked if self._holds(axes)])

    def planned_methods(self, problem: str, model: str, *, set: str = "test") -> list[str]:
        """Methods that the study was to run on this model and the first seed."""
        where = (problem, set, model, self.seed)
        return [method for method in self.methods if (*where, method) in self.tables.planned]

    def planned_seeds(
        self, problem: str, model: str, method: str, *, set: str = "test"
    ) -> list[int]:
        """Seeds that the study was to run."""
        planned = self.tables.planned
        return [seed for seed in self.seeds if (problem, set, model, seed, method) in planned]

    def model(self, problem: str, model: str) -> dict[Any, Any] | None:
        """The model's row of the first seed, None where there is none."""
        return self.tables.models.get((problem, model, self.seed))

    def preset(self, problem: str, model: str) -> str:
        """What trained the model, such as ``paper-reduced``."""
        row = self.model(problem, model)
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

    def _found(
        self, problem: str, set: str, model: str, method: str, seeds: list[int]
    ) -> list[Axes]:
        found = []
        for seed in seeds:
            asked = (problem, set, model, seed, method)
            if self._holds(asked):
                found.append(asked)
            elif method in self.methods and _is_model_free(self.methods[method]):
                # Its answer does not depend on the networks: any model's records will do.
                others = (a for a in self.tables.instances.places if a[:2] == (problem, set))
                found += [a for a in others if a[3:] == (seed, method)][:1]
        return found

    def _holds(self, axes: Axes) -> bool:
        problem, _, model, seed, _ = axes
        known = axes in self.tables.instances.places
        return known and (problem, model, seed) not in self.tables.mismatched

    def _noted(self, trials: Trials) -> Trials:
        for axes in trials.cells:
            rows = self.tables.instances.rows([axes])
            if lost := int(rows["rmse"].isna().sum()):
                self._lost[axes] = f"{', '.join(map(str, axes))}: {lost} of {len(rows)}"
        return trials


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
