"""The records by cell, sorted once; tables and figures look everything up here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pandas as pd

from deceptron.study.names import METHODS, PROBLEMS
from deceptron.study.records import AXES, Records
from deceptron.study.statistics import ORACLE, oracle_rmse

# Same weights of f, and of g up to stage 3.
WITHOUT_JCP = {"paper": "paper-plain", "standard": "standard-plain"}

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
    """Where each cell's rows are; made once for a report."""

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
        """The first seed: that of every table but those of seeds and of the guarded solver."""
        return self.seeds[0] if self.seeds else 7

    @cached_property
    def instances(self) -> Cells:
        """The table of instances by cell."""
        return Cells(self.records.instances)

    @cached_property
    def steps(self) -> Cells:
        """The table of steps by cell; a direct method has the one row of its answer, step 0."""
        return Cells(self.records.steps)

    @cached_property
    def oracle(self) -> pd.Series:
        """Mean RMSE of the oracle by problem and set."""
        return oracle_rmse(self.records.instances)

    @cached_property
    def oracle_counts(self) -> pd.Series:
        """How many instances stand behind each of these means."""
        instances = self.records.instances
        oracle = instances[instances["method"] == ORACLE]
        return oracle.groupby(["problem", "set"])["rmse"].count()

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

    def holds(self, axes: Axes) -> bool:
        """Whether the records have this cell, of a model that may be shown."""
        problem, _, model, seed, _ = axes
        return axes in self.instances and (problem, model, seed) not in self.unlike
