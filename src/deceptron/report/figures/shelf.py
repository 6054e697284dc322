"""The records as figures ask for them: one method of one model family, seeds pooled."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deceptron.report.figures.style import Series
from deceptron.report.index import Axes, Cells, Index
from deceptron.study.names import PROBLEMS
from deceptron.study.statistics import RESIDUAL_LIMIT, cost_to_tolerance

TRIAL = ["seed", "instance"]
COSTS = ("seconds", "step", "evaluations")


@dataclass(frozen=True)
class Shelf:
    """Tables of one model family by problem, series and set; a trial is a seed and an instance."""

    index: Index
    family: str

    def turn(self, family: str) -> Shelf:
        """The same records, another family."""
        return replace(self, family=family)

    @property
    def models(self) -> tuple[str, str]:
        """Names of the family's models, with JCP and without."""
        return self.family, f"{self.family}-plain"

    def model(self, series: Series) -> str:
        """The name of the model that a series uses."""
        return self.models[0 if series.jcp else 1]

    def problems(self, series: Series, on: str = "test") -> list[str]:
        """Problems with records, in display order."""
        return [problem for problem in PROBLEMS if self._cells(problem, series, on)]

    def seeds(self, problem: str, series: Series, on: str = "test") -> list[int]:
        """Seeds with records."""
        return [axes[3] for axes in self._cells(problem, series, on)]

    def instances(self, problem: str, series: Series, on: str = "test") -> pd.DataFrame:
        """Rows of the instances, indexed by trial; empty if there are none."""
        return self._pooled(self.index.instances, problem, series, on).set_index(TRIAL)

    def paths(self, problem: str, series: Series, column: str, on: str = "test") -> pd.DataFrame:
        """A trial a row, a step a column, NaN after its end; empty if there are none."""
        points = self._pooled(self.index.steps, problem, series, on)
        if points.empty:
            return pd.DataFrame(dtype=float)
        return points.pivot(index=TRIAL, columns="step", values=column).astype(float)

    def costs(self, problem: str, series: Series, start: pd.Series) -> pd.DataFrame:
        """What each test trial spent until its residual was 0.30 of ``start``, the one at x = 0.

        All methods are held to the same first residual, wherever they begin; trials without one
        are left out. An answer that needs no iteration counts as one.
        """
        trials = self.instances(problem, series).join(start.rename("start"), how="inner")
        trials["relative_residual"] = trials["residual"] / trials["start"]
        iterated = trials.loc[trials["iterations"] > 0, ["start"]]
        steps = self._pooled(self.index.steps, problem, series, "test")
        steps = steps.join(iterated, on=TRIAL, how="inner")
        steps["relative_residual"] = steps["residual"] / steps["start"]
        parts = {}
        for seed, rows in trials.reset_index().groupby("seed"):
            own = steps[steps["seed"] == seed]
            parts[seed] = pd.DataFrame(
                {
                    cost: cost_to_tolerance(rows, own, limit=RESIDUAL_LIMIT, cost=cost)
                    for cost in COSTS
                }
            )
        if not parts:
            return pd.DataFrame(columns=list(COSTS), index=trials.index, dtype=float)
        spent = pd.concat(parts, names=TRIAL)
        return spent.assign(step=spent["step"].clip(lower=1.0))

    def latency(self, problem: str, series: Series) -> float:
        """Seconds of a test instance solved alone, mean over seeds; NaN if it was not measured."""
        found = [self.index.latencies.get(axes) for axes in self._cells(problem, series, "test")]
        known = [seconds for seconds in found if seconds is not None]
        return float(np.mean(known)) if known else np.nan

    def rjcp(self, problem: str, series: Series) -> float:
        """RJCP at the answers of a series, the paper's "final RJCP"; NaN where there is none."""
        return float(self.instances(problem, series)["rjcp"].mean())

    def lost(self) -> int:
        """Instances of the family's models whose RMSE is not a number."""
        rows = self.index.records.instances
        return int((rows["model"].isin(self.models) & rows["rmse"].isna()).sum())

    def answers(self, problem: str, series: Series, seed: int) -> NDArray[np.float32] | None:
        """Answers to the first test instances of a seed; None if none were kept."""
        for axes in self._cells(problem, series, "test"):
            if axes[3] == seed:
                stored = self.index.records.fields(*axes) or {}
                return stored["x"] if len(stored.get("x", ())) else None
        return None

    def _cells(self, problem: str, series: Series, on: str) -> list[Axes]:
        model, method = self.model(series), series.method
        cells = ((problem, on, model, seed, method) for seed in self.index.seeds)
        return [axes for axes in cells if self.index.holds(axes)]

    def _pooled(self, table: Cells, problem: str, series: Series, on: str) -> pd.DataFrame:
        cells = self._cells(problem, series, on)
        parts = [table.rows(axes) for axes in cells]
        return pd.concat(parts) if parts else table.rows(None)
