"""The records as one table sees them: cells by name, and a note of each that was not there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from deceptron.study.names import METHODS, PROBLEMS
from deceptron.study.records import AXES, Records
from deceptron.study.statistics import (
    Interval,
    mean_interval,
    oracle_rmse,
    rate_interval,
    succeeded,
)

MAIN_PROBLEMS = ("heat-3d", "advection-diffusion-2d", "allen-cahn-2d")  # of the paper's main text
PAPER_SETTINGS = ("gd", "gn", "lm", "l-bfgs")
# Their answer does not depend on the networks; they need to be run with one model only.
MODEL_FREE = ("wiener", "lm-true", "gn-prior")
# Same weights of f, and of g up to stage 3.
WITHOUT_JCP = {"paper": "paper-plain", "standard": "standard-plain"}

_NAMED = 20  # groups of missing cells that a note names

Axes = tuple[str, str, str, int, str]


class Cells:
    """A table of the records, sorted once so that each of its cells is a slice."""

    def __init__(self, table: pd.DataFrame) -> None:
        order = [name for name in (*AXES, "instance", "step") if name in table]
        texts = table.select_dtypes(exclude="number").columns
        table = table.astype(dict.fromkeys(texts, "category")).sort_values(order)
        groups = table.groupby(list(AXES), sort=False, observed=True).indices if len(table) else {}
        self._places: dict[Any, slice] = {
            axes: slice(rows[0], rows[-1] + 1) for axes, rows in groups.items()
        }
        self._table = table.set_index(table["instance"].rename(None))

    def __contains__(self, axes: Axes) -> bool:
        return axes in self._places

    def __iter__(self) -> Iterator[Axes]:
        return iter(self._places)

    def rows(self, axes: Axes | None) -> pd.DataFrame:
        """The rows of one cell, indexed by instance; none where there is no such cell."""
        return self._table.iloc[self._places.get(axes, slice(0))]


class Index:
    """Where each cell's rows are; made once for all tables."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.seeds = sorted({int(entry["seed"]) for entry in records.study["cells"]})
        self.planned: set[Axes] = {
            (e["problem"], e["set"], e["model"], int(e["seed"]), e["method"])
            for e in records.study["cells"]
        }
        present = {axes[0] for axes in self.planned}
        self.problems = tuple(name for name in PROBLEMS if name in present)
        named = {axes[4] for axes in self.planned}
        self.methods = tuple(name for name in METHODS if name in named)

    @property
    def seed(self) -> int:
        """The seed of every table but the one of seeds; that of the models that ship."""
        return self.seeds[0] if self.seeds else 7

    @cached_property
    def oracle(self) -> pd.Series:
        """Mean RMSE of the oracle by problem and set."""
        return oracle_rmse(self.records.instances)

    @cached_property
    def instances(self) -> Cells:
        """The table of instances by cell."""
        return Cells(self.records.instances)

    @cached_property
    def steps(self) -> Cells:
        """The table of steps by cell."""
        return Cells(self.records.steps)

    @cached_property
    def models(self) -> dict[tuple[str, str, int], dict[Any, Any]]:
        """Rows of the table of models by problem, name and seed."""
        rows = self.records.models.to_dict("records")
        return {(row["problem"], row["model"], row["seed"]): row for row in rows}

    @cached_property
    def unlike(self) -> set[tuple[str, str, int]]:
        """Models without JCP that another preset trained than their partner with it.

        Beside each other the two would show the presets, not JCP.
        """
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
        """Seconds of one instance solved alone, median."""
        cells = self.records.cells
        names = cells[list(AXES)].itertuples(index=False, name=None)
        milliseconds = cells["latency_ms"].astype(float)
        return {axes: value / 1e3 for axes, value in zip(names, milliseconds, strict=True)}


class View:
    """One table's access to the records; ``notes`` names the cells it looked for in vain."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._lacking: dict[tuple[str, str, str, int], dict[str, None]] = defaultdict(dict)
        self._unlike: dict[tuple[str, str, int], None] = {}

    def instances(
        self, problem: str, model: str, method: str, *, set: str = "test", seed: int | None = None
    ) -> pd.DataFrame:
        """A cell's rows, indexed and sorted by instance; empty, and noted, where there is none."""
        axes = self._find(problem, set, model, seed, method)
        chosen = self.index.seed if seed is None else seed
        if (problem, model, chosen) in self.index.unlike:
            self._unlike[problem, model, chosen] = None
        elif axes is None:
            self._lacking[problem, set, model, chosen][method] = None
        return self.index.instances.rows(axes)

    def steps(
        self, problem: str, model: str, method: str, *, set: str = "test", seed: int | None = None
    ) -> pd.DataFrame:
        """A cell's steps; empty for direct methods and cells that are not there."""
        return self.index.steps.rows(self._find(problem, set, model, seed, method))

    def latency(
        self, problem: str, model: str, method: str, *, set: str = "test", seed: int | None = None
    ) -> float:
        """Seconds of one instance solved alone, NaN where not measured."""
        axes = self._find(problem, set, model, seed, method)
        return np.nan if axes is None else self.index.latencies.get(axes, np.nan)

    def model(self, problem: str, model: str, seed: int | None = None) -> dict[Any, Any] | None:
        """The model's row, None where there is none."""
        return self.index.models.get((problem, model, self.index.seed if seed is None else seed))

    def preset(self, problem: str, model: str) -> str:
        """What trained the model, such as ``paper-reduced``."""
        row = self.model(problem, model)
        return model if row is None else str(row["preset"])

    def planned(self, problem: str, model: str, *, set: str = "test") -> list[str]:
        """Methods that the study was to run on this model, in the order of display."""
        where = (problem, set, model, self.index.seed)
        return [method for method in self.index.methods if (*where, method) in self.index.planned]

    def rate(self, rows: pd.DataFrame, rule: str) -> Interval:
        """Success rate of a cell under a named rule."""
        return rate_interval(succeeded(rows, rule, oracle=self.index.oracle))

    def notes(self, extra: Iterable[str] = ()) -> tuple[str, ...]:
        """What a reader must know: marks of small samples, and the cells that are not there."""
        notes = [*extra]
        if self.index.records.small:
            notes.append("Small samples: this study shows that everything runs, not how well.")
        if self._unlike:
            names = "; ".join(f"{p}, {model}, seed {seed}" for p, model, seed in self._unlike)
            notes.append(f"Left out, not trained by the preset of its partner with JCP: {names}.")
        if self._lacking:
            parts = [
                f"{problem}, {set}, {model}, seed {seed}: {', '.join(methods)}"
                for (problem, set, model, seed), methods in self._lacking.items()
            ]
            rest = len(parts) - _NAMED
            more = f"; and {rest} more such groups" if rest > 0 else ""
            notes.append(f"Not in the records: {'; '.join(parts[:_NAMED])}{more}.")
        return tuple(notes)

    def _find(
        self, problem: str, set: str, model: str, seed: int | None, method: str
    ) -> Axes | None:
        seed = self.index.seed if seed is None else seed
        if (problem, model, seed) in self.index.unlike:
            return None
        asked = (problem, set, model, seed, method)
        if asked in self.index.instances:
            return asked
        if method in MODEL_FREE:
            for axes in self.index.instances:
                if (axes[0], axes[1], axes[3], axes[4]) == (problem, set, seed, method):
                    return axes
        return None


def mean(rows: pd.DataFrame, column: str) -> Interval:
    """Mean of a column with its interval."""
    return mean_interval(rows[column])


def in_noise(rows: pd.DataFrame, column: str) -> Interval:
    """Mean of a residual in units of the noise level."""
    return mean_interval(rows[column] / rows["noise_level"])
