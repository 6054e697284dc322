"""The solves of one method with one model on one set, and what can be estimated from them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from deceptron_paper.statistics import (
    RESIDUAL_LIMIT,
    Interval,
    Paired,
    bundle_width,
    cost_to_tolerance,
    mean_interval,
    paired_difference,
    rate_interval,
    ratio_interval,
    succeeded,
)
from deceptron_paper.study.tables import AXES

if TYPE_CHECKING:
    from deceptron_paper.report.query import Query

Axes = tuple[str, str, str, int, str]
TRIAL = ["seed", "instance"]


class Cells(dict[Any, pd.DataFrame]):
    """A table of the records by cell, in order; rows are indexed by seed and instance."""

    def __init__(self, table: pd.DataFrame) -> None:
        order = [name for name in ("instance", "step") if name in table]
        trials = table.sort_values(order).set_index(TRIAL, drop=False).rename_axis([None, None])
        super().__init__(iter(trials.groupby(list(AXES))))
        self._none = trials.iloc[:0]

    def rows(self, cells: list[Axes]) -> pd.DataFrame:
        """The rows of these cells; none where there are no cells."""
        parts = [self[axes] for axes in cells if axes in self]
        return pd.concat(parts) if parts else self._none


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
        return self._query.instances.rows(self.cells)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """A row per accepted point from step 0, the start; of a direct method its answer alone."""
        return self._query.steps.rows(self.cells)

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

    def cosines(self) -> pd.Series:
        """Of the steps with -grad, the mean over the steps of each trial."""
        return self.paths("cosine").mean(axis=1)

    def bundle_widths(self) -> pd.Series:
        """Spread of the residuals by step from 1, mean over seeds; empty if there are no steps."""
        paths = self.paths("residual").drop(columns=0, errors="ignore")
        widths = [bundle_width(part) for _, part in paths.groupby(level=0)] if paths.size else []
        return pd.Series(np.mean(widths, axis=0) if widths else [], paths.columns, dtype=float)

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
        return succeeded(self.rows, rule, limits=query.limits, oracle=query.oracle)

    @property
    def latency(self) -> float:
        """Seconds of one instance solved alone, mean over seeds; NaN where not measured."""
        found = [self._query.latencies.get(axes, np.nan) for axes in self.cells]
        return float(pd.Series(found, dtype=float).mean())

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
        """Seconds and steps of each trial until its residual was 0.30 of ``start``, that at x = 0.

        All methods are held to the same first residual, wherever they begin; trials without one
        are left out. An answer that needs no iteration counts as one.
        """
        rows = self.rows.join(start.rename("start"), how="inner")
        steps = self.steps.join(rows.loc[rows["iterations"] > 0, ["start"]], how="inner")
        for points in (rows, steps):
            points["relative_residual"] = points["residual"] / points["start"]
            points["instance"] = rows.index.get_indexer(points.index)  # of any seed
        spent = {
            cost: cost_to_tolerance(rows, steps, limit=RESIDUAL_LIMIT, cost=cost).to_numpy()
            for cost in ("seconds", "step")
        }
        return pd.DataFrame(spent, index=rows.index).assign(step=spent["step"].clip(min=1.0))

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
