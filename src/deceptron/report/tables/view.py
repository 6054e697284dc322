"""The records as one table sees them: cells by name, and a note of each that was not there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from deceptron.report.index import Axes, Index
from deceptron.report.words import versions
from deceptron.study.methods import SOLVERS
from deceptron.study.statistics import Interval, mean_interval, rate_interval, succeeded

PAPER_SETTINGS = ("gd", "gn", "lm", "l-bfgs")
TUNED = ("gn-tuned", "lm-tuned", "l-bfgs-tuned")
# Classical methods on the surrogate that compete with D-IPG, by model.
CLASSICS = {"paper": PAPER_SETTINGS, "standard": PAPER_SETTINGS + TUNED}
# Their answer does not depend on the networks; they need to be run with one model only.
MODEL_FREE = tuple(
    name
    for name, solver in SOLVERS.items()
    if name == "wiener" or (solver.physics == "true" and not solver.uses_reverse)
)

_NAMED = 20  # groups of cells that a note names


class View:
    """One table's access to the records.

    ``notes`` names the cells that it looked for in vain, and those whose errors are no numbers.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self._lacking: dict[tuple[str, str, str, int], dict[str, None]] = defaultdict(dict)
        self._unlike: dict[tuple[str, str, int], None] = {}
        self._lost: dict[Axes, str] = {}

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
        rows = self.index.instances.rows(axes)
        lost = int(rows["rmse"].isna().sum())
        if axes is not None and lost:
            self._lost[axes] = f"{', '.join(map(str, axes))}: {lost} of {len(rows)}"
        return rows

    def steps(
        self, problem: str, model: str, method: str, *, set: str = "test", seed: int | None = None
    ) -> pd.DataFrame:
        """A cell's accepted points from step 0, the start; empty where there is no such cell.

        A direct method has no steps but a point: its answer stands as step 0.
        """
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
        """Success rate of a cell under a named rule; an error that is no number is a failure."""
        return rate_interval(succeeded(rows, rule, oracle=self.index.oracle))

    def notes(self, extra: Iterable[str] = ()) -> tuple[str, ...]:
        """What a reader must know: small samples, versions, errors that are none, absent cells."""
        notes = [*extra]
        if self.index.records.small:
            notes.append("Small samples: this study shows that everything runs, not how well.")
        if (warning := versions(self.index.records)) is not None:
            notes.append(warning)
        if self._lost:
            notes.append(
                "RMSE not a number, counted as failures and left out of means and differences: "
                f"{_listed(self._lost.values())}."
            )
        if self._unlike:
            names = (f"{p}, {model}, seed {seed}" for p, model, seed in self._unlike)
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


def _listed(parts: Iterable[str]) -> str:
    named = list(parts)
    rest = len(named) - _NAMED
    more = f"; and {rest} more" if rest > 0 else ""
    return f"{'; '.join(named[:_NAMED])}{more}"
