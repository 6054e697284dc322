"""The records as figures ask for them: one method of one model family, seeds pooled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import pandas as pd

from deceptron.report.figures.style import Series
from deceptron.study.names import PROBLEMS
from deceptron.study.records import Records
from deceptron.study.statistics import RESIDUAL_LIMIT, cost_to_tolerance

Key = tuple[str, str, str, str]
TRIAL = ["seed", "instance"]
COSTS = ("seconds", "step", "evaluations")


@dataclass(frozen=True)
class Shelf:
    """Tables of one model family by problem, series and set; a trial is a seed and an instance."""

    records: Records
    family: str
    instance_tables: dict[Key, pd.DataFrame]
    step_tables: dict[Key, pd.DataFrame]

    @classmethod
    def of(cls, records: Records, family: str) -> Shelf:
        """Sort the records once; ``turn`` shares the work with other families."""
        return cls(records, family, _sorted(records.instances), _sorted(records.steps))

    def turn(self, family: str) -> Shelf:
        """The same records, another family."""
        return replace(self, family=family)

    def model(self, series: Series) -> str:
        """The name of the model that a series uses."""
        return self.family if series.jcp else f"{self.family}-plain"

    def problems(self, series: Series, on: str = "test") -> list[str]:
        """Problems with records, in display order."""
        return [p for p in PROBLEMS if self._key(p, series, on) in self.instance_tables]

    def seeds(self, problem: str, series: Series, on: str = "test") -> list[int]:
        """Seeds with records."""
        return sorted(set(self.instances(problem, series, on).index.get_level_values("seed")))

    def instances(self, problem: str, series: Series, on: str = "test") -> pd.DataFrame:
        """Rows of the instances, indexed by trial; empty if there are none."""
        found = self.instance_tables.get(self._key(problem, series, on))
        return self.records.instances.iloc[:0].set_index(TRIAL) if found is None else found

    def paths(self, problem: str, series: Series, column: str, on: str = "test") -> pd.DataFrame:
        """A trial a row, a step a column, NaN after its end; empty if there are none."""
        found = self.step_tables.get(self._key(problem, series, on))
        if found is None:
            return pd.DataFrame(dtype=float)
        return found.pivot(index=TRIAL, columns="step", values=column).astype(float)

    def costs(self, problem: str, series: Series, start: pd.Series) -> pd.DataFrame:
        """What each test trial spent until its residual was 0.30 of ``start``, the one at x = 0.

        All methods are held to the same first residual, wherever they begin; trials without one
        are left out. An answer that needs no iteration counts as one.
        """
        trials = self.instances(problem, series).join(start.rename("start"), how="inner")
        trials["relative_residual"] = trials["residual"] / trials["start"]
        steps = self.step_tables.get(self._key(problem, series, "test"))
        if steps is not None:
            iterated = trials.loc[trials["iterations"] > 0, ["start"]]
            steps = steps.join(iterated, on=TRIAL, how="inner")
            steps["relative_residual"] = steps["residual"] / steps["start"]
        parts = {}
        for seed, rows in trials.reset_index().groupby("seed"):
            own = pd.DataFrame() if steps is None else steps[steps["seed"] == seed]
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
        cells = self.records.cells
        chosen = (
            (cells["problem"] == problem)
            & (cells["set"] == "test")
            & (cells["model"] == self.model(series))
            & (cells["method"] == series.method)
        )
        return float(cells.loc[chosen, "latency_ms"].mean()) / 1e3

    def rjcp(self, problem: str, series: Series) -> float:
        """RJCP of the trained pair, mean over seeds; NaN where there is none."""
        models = self.records.models
        chosen = (models["problem"] == problem) & (models["model"] == self.model(series))
        return float(models.loc[chosen, "rjcp"].mean())

    def _key(self, problem: str, series: Series, on: str) -> Key:
        return problem, on, self.model(series), series.method


def _sorted(table: pd.DataFrame) -> dict[Key, pd.DataFrame]:
    by_instance = "step" not in table
    return {
        cast(Key, key): part.set_index(TRIAL) if by_instance else part
        for key, part in table.groupby(["problem", "set", "model", "method"], sort=False)
    }
