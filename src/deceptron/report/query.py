"""The records as tables and figures ask for them: the trials of one method, model and set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from deceptron.study.names import SETS
from deceptron.study.records import AXES, MethodRecord, ProblemRecord, Records
from deceptron.study.statistics import (
    ORACLE,
    RESIDUAL_LIMIT,
    Interval,
    Paired,
    cost_to_tolerance,
    mean_interval,
    oracle_rmse,
    paired_difference,
    rate_interval,
    ratio_interval,
    succeeded,
)

# Same weights of f, and of g up to stage 3.
WITHOUT_JCP = {"paper": "paper-plain", "standard": "standard-plain"}
COSTS = ("seconds", "step", "evaluations")
TRIAL = ["seed", "instance"]
_NAMED = 20  # groups of cells that a note names

Axes = tuple[str, str, str, int, str]


class _Cells:
    """A table of the records, sorted once so that each of its cells is a slice."""

    def __init__(self, table: pd.DataFrame) -> None:
        order = [name for name in (*AXES, "instance", "step") if name in table]
        texts = table.select_dtypes(exclude="number").columns
        table = table.astype(dict.fromkeys(texts, "category")).sort_values(order)
        groups = table.groupby(list(AXES), sort=False, observed=True).indices if len(table) else {}
        self.places: dict[Any, slice] = {
            axes: slice(rows[0], rows[-1] + 1) for axes, rows in groups.items()
        }
        self._table = table.set_index(TRIAL, drop=False).rename_axis([None, None])

    def rows(self, cells: list[Axes]) -> pd.DataFrame:
        """The rows of these cells, indexed by seed and instance; none where there are no cells."""
        parts = [self._table.iloc[self.places[axes]] for axes in cells if axes in self.places]
        return pd.concat(parts) if parts else self._table.iloc[:0]


class _Tables:
    """What all readers of one report share; made when first asked for."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.planned: set[Axes] = {
            (e["problem"], e["set"], e["model"], int(e["seed"]), e["method"])
            for e in records.study["cells"]
        }
        self.seeds = sorted({axes[3] for axes in self.planned})

    @cached_property
    def instances(self) -> _Cells:
        return _Cells(self.records.instances)

    @cached_property
    def steps(self) -> _Cells:
        return _Cells(self.records.steps)

    @cached_property
    def oracle(self) -> pd.Series:
        return oracle_rmse(self.records.instances)

    @cached_property
    def models(self) -> dict[tuple[str, str, int], dict[Any, Any]]:
        rows = self.records.models.to_dict("records")
        return {(row["problem"], row["model"], row["seed"]): row for row in rows}

    @cached_property
    def mismatched(self) -> set[tuple[str, str, int]]:
        return {
            (problem, plain, seed)
            for with_jcp, plain in WITHOUT_JCP.items()
            for problem, name, seed in self.models
            if name == with_jcp
            and (other := self.models.get((problem, plain, seed))) is not None
            and other["preset"] != self.models[problem, name, seed]["preset"]
        }

    @cached_property
    def latencies(self) -> dict[Axes, float]:
        cells = self.records.cells
        names = cells[list(AXES)].itertuples(index=False, name=None)
        milliseconds = cells["latency_ms"].astype(float)
        return {axes: value / 1e3 for axes, value in zip(names, milliseconds, strict=True)}


class Query:
    """One reader's access to the records; ``notes`` name what it looked for in vain."""

    def __init__(self, records: Records, tables: _Tables | None = None) -> None:
        self.records = records
        self.tables = _Tables(records) if tables is None else tables
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

    @cached_property
    def limits(self) -> dict[str, float]:
        """Thresholds of the success rule rmse."""
        return {name: entry.rmse_limit for name, entry in self.problems.items()}

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
        return self._noted(Trials(self, cells))

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


class Trials:
    """Instances that one method solved; a trial is a seed and an instance.

    Estimates are None where there are no trials, so that a table shows a dash.
    """

    def __init__(self, query: Query, cells: list[Axes]) -> None:
        self._query, self.cells = query, cells

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """A row per trial."""
        return self._query.tables.instances.rows(self.cells)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """A row per accepted point from step 0, the start; of a direct method its answer alone."""
        return self._query.tables.steps.rows(self.cells)

    @property
    def seeds(self) -> list[int]:
        """Seeds with records."""
        return [axes[3] for axes in self.cells]

    def paths(self, column: str) -> pd.DataFrame:
        """A trial a row, a step a column, NaN after its end; empty if there are none."""
        if self.steps.empty:
            return pd.DataFrame(dtype=float)
        paths = self.steps.pivot(index=TRIAL, columns="step", values=column)
        paths.index.names = [None, None]  # as that of the rows
        return paths.astype(float)

    def mean(self, column: str) -> Interval | None:
        """Mean of a column with its interval."""
        return mean_interval(self.rows[column]) if len(self) else None

    def in_noise(self, column: str) -> Interval | None:
        """Mean of a residual in units of the noise level."""
        rows = self.rows
        return mean_interval(rows[column] / rows["noise_level"]) if len(self) else None

    def average(self, column: str) -> float:
        """Mean of a column, NaN where there is none."""
        return float(self.rows[column].mean())

    def rate(self, rule: str) -> Interval | None:
        """Success rate under a named rule; an error that is no number is a failure."""
        return rate_interval(self.success(rule)) if len(self) else None

    def rate_value(self, rule: str = "rmse") -> float:
        """The rate alone, NaN where there are no trials."""
        return float(self.success(rule).mean()) if len(self) else np.nan

    def success(self, rule: str) -> pd.Series:
        """1 or 0 for each trial."""
        query = self._query
        return succeeded(self.rows, rule, limits=query.limits, oracle=query.tables.oracle)

    @property
    def latency(self) -> float:
        """Seconds of one instance solved alone, mean over seeds; NaN where not measured."""
        found = [self._query.tables.latencies.get(axes, np.nan) for axes in self.cells]
        known = [seconds for seconds in found if not np.isnan(seconds)]
        return float(np.mean(known)) if known else np.nan

    def against(self, other: Trials, rule: str | None = None) -> Paired | None:
        """This minus the other on the trials of both: of errors, or of success under a rule."""
        pair = [t.rows["rmse"] if rule is None else t.success(rule) for t in (self, other)]
        first, second = shared(*pair)
        return paired_difference(first, second) if len(first) else None

    def ratio(self, other: Trials) -> Interval | None:
        """Of the mean errors on the trials of both, instances resampled within seeds."""
        own, theirs = shared(self.rows["rmse"], other.rows["rmse"])
        finite = np.isfinite(own) & np.isfinite(theirs)
        seeds = own.index.get_level_values(0)[finite]
        found = ratio_interval(own[finite], theirs[finite], groups=seeds)
        return found if found.count else None

    def costs(self, start: pd.Series) -> pd.DataFrame:
        """What each trial spent until its residual was 0.30 of ``start``, the one at x = 0.

        All methods are held to the same first residual, wherever they begin; trials without one
        are left out. An answer that needs no iteration counts as one.
        """
        rows = self.rows.join(start.rename("start"), how="inner")
        rows["relative_residual"] = rows["residual"] / rows["start"]
        iterated = rows.loc[rows["iterations"] > 0, ["start"]]
        steps = self.steps.join(iterated, how="inner")
        steps["relative_residual"] = steps["residual"] / steps["start"]
        parts = {}
        for seed, own in rows.groupby("seed"):
            points = steps[steps["seed"] == seed]
            parts[seed] = pd.DataFrame(
                {
                    cost: cost_to_tolerance(own, points, limit=RESIDUAL_LIMIT, cost=cost)
                    for cost in COSTS
                }
            )
        if not parts:
            return pd.DataFrame(columns=list(COSTS), index=rows.index, dtype=float)
        spent = pd.concat(parts, names=TRIAL)
        return spent.assign(step=spent["step"].clip(lower=1.0))

    def answers(self, seed: int) -> np.ndarray | None:
        """Answers to the first instances of a seed; None if none were kept."""
        for axes in self.cells:
            if axes[3] == seed:
                stored = self._query.records.fields(*axes) or {}
                return stored["x"] if len(stored.get("x", ())) else None
        return None


def shared(first: pd.Series, second: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Both on the trials that both have."""
    one, other = first.astype(float).align(second.astype(float), join="inner")
    return one, other


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
