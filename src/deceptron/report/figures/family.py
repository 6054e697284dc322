"""The records as figures ask for them: the methods of one model family, seeds pooled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from deceptron.report.figures.style import SPARE_COLORS, SPARE_MARKERS, Series
from deceptron.report.query import Query, Trials
from deceptron.study.entries import BLUE
from deceptron.study.names import STEP_SIZE_METHODS

# Models by what trained them; each has a partner that was trained without JCP.
FAMILIES = ("standard", "paper")
DOTTED = (1, 1.4)
DIPG = Series("d-ipg", "d-ipg", BLUE, width=1.8)
PLAIN = replace(DIPG, label="d-ipg without JCP", dashes=DOTTED, filled=False, jcp=False, width=1.4)


@dataclass(frozen=True)
class Family:
    """Trials of the models of one family, by problem, series and set."""

    query: Query
    name: str

    @property
    def models(self) -> tuple[str, str]:
        """Names of the family's models, with JCP and without."""
        return self.name, f"{self.name}-plain"

    @cached_property
    def series(self) -> tuple[Series, ...]:
        """Every method of the study in its order; D-IPG without JCP after D-IPG."""
        made: list[Series] = []
        for spare, method in enumerate(self.query.methods.values()):
            if method.name not in STEP_SIZE_METHODS:
                made.append(Series.of(method, spare))
            if method.name == DIPG.method:
                made.append(PLAIN)
        return tuple(made)

    def pick(self, *labels: str) -> tuple[Series, ...]:
        """Series by label, in the order of display; those that the study does not have are not."""
        return tuple(series for series in self.series if series.label in labels)

    @property
    def direct(self) -> tuple[Series, ...]:
        """Methods that answer without iterating."""
        return tuple(s for s in self.series if self.query.methods[s.method].direct)

    def looks(self) -> dict[str, tuple[str, str]]:
        """A colour and a marker for each problem."""
        return {
            name: (
                entry.color or SPARE_COLORS[k % len(SPARE_COLORS)],
                entry.marker or SPARE_MARKERS[k % len(SPARE_MARKERS)],
            )
            for k, (name, entry) in enumerate(self.query.problems.items())
        }

    def trials(self, problem: str, series: Series, on: str = "test") -> Trials:
        """All seeds together."""
        model = self.models[0 if series.jcp else 1]
        return self.query.recorded(problem, model, series.method, set=on)

    def problems(self, series: Series, on: str = "test") -> list[str]:
        """Problems with records, in the order of display."""
        return [p for p in self.query.problems if len(self.trials(p, series, on))]

    def lost(self) -> int:
        """Instances of the family's models whose RMSE is not a number."""
        rows = self.query.records.instances
        return int((rows["model"].isin(self.models) & rows["rmse"].isna()).sum())
