"""The tables of the records, each sorted once so that a cell of the study is a slice of it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pandas as pd

from deceptron.study.records import AXES, Records
from deceptron.study.statistics import oracle_rmse

# Same weights of f, and of g up to stage 3.
WITHOUT_JCP = {"paper": "paper-plain", "standard": "standard-plain"}
TRIAL = ["seed", "instance"]

Axes = tuple[str, str, str, int, str]


class Cells:
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


class Tables:
    """What all readers of one report share; made when first asked for."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.planned: set[Axes] = {
            (e["problem"], e["set"], e["model"], int(e["seed"]), e["method"])
            for e in records.study["cells"]
        }
        self.seeds = sorted({axes[3] for axes in self.planned})

    @cached_property
    def limits(self) -> dict[str, float]:
        """Thresholds of the success rule rmse."""
        return {name: entry.rmse_limit for name, entry in self.records.problems.items()}

    @cached_property
    def instances(self) -> Cells:
        """A row per instance."""
        return Cells(self.records.instances)

    @cached_property
    def steps(self) -> Cells:
        """A row per accepted point."""
        return Cells(self.records.steps)

    @cached_property
    def oracle(self) -> pd.Series:
        """Mean RMSE of the oracle by problem and set."""
        return oracle_rmse(self.records.instances)

    @cached_property
    def models(self) -> dict[tuple[str, str, int], dict[Any, Any]]:
        """Rows of the table of models by problem, name and seed."""
        rows = self.records.models.to_dict("records")
        return {(row["problem"], row["model"], row["seed"]): row for row in rows}

    @cached_property
    def mismatched(self) -> set[tuple[str, str, int]]:
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
