"""The records as figures ask for them: a family of models, seeds pooled, a look per method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from deceptron_paper.report.query import Query, Trials
from deceptron_paper.study.entries import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from deceptron_paper.study.names import STEP_SIZE_METHODS
from deceptron_paper.study.records import MethodRecord

# Widths in inches of one column and of the text block of a two-column page.
COLUMN = 3.3
PAGE = 6.9

MISSING = "#E6E6E6"
RATES = "cividis"  # colour map of success rates, 0 to 1
SPARE_COLORS = (GREEN, PURPLE, SKY, BLUE, VERMILION, ORANGE, BLACK)  # for those without one
SPARE_MARKERS = "osD^vPX*ph<>"
STYLE = Path(__file__).with_name("report.mplstyle")


@dataclass(frozen=True)
class Series:
    """A method, on a pair trained with or without JCP, and how it looks."""

    label: str
    method: str
    color: str
    dashes: tuple[float, ...] = ()
    marker: str = "o"
    filled: bool = True
    jcp: bool = True
    width: float = 1.1

    @classmethod
    def of(cls, method: MethodRecord, spare: int) -> Series:
        """As the study declared it; ``spare`` chooses a colour and marker where it did not."""
        color, marker = method.color, method.marker
        if not color:
            color = SPARE_COLORS[spare % len(SPARE_COLORS)]
            marker = SPARE_MARKERS[spare % len(SPARE_MARKERS)]
        look = (color, tuple(method.dashes), marker, method.filled)
        return cls(method.name, method.name, *look, width=method.width)

    def look(self, *, marker: bool = False) -> dict[str, Any]:
        """Keywords for ``Axes.plot``."""
        return {
            "label": self.label,
            "color": self.color,
            "linestyle": (0, self.dashes) if self.dashes else "-",
            "linewidth": self.width,
            "marker": self.marker if marker else None,
            "zorder": 2.5 if self.dashes else 2,  # through its gaps what it covers is seen
            "markerfacecolor": self.color if self.filled else "white",
        }


def short(problem: str) -> str:
    """The problem's name on two lines, for narrow columns."""
    name, dash, dimension = problem.rpartition("-")
    name = name.replace("advection-diffusion", "adv.-diff.")
    return f"{name}\n{dimension}" if dash else dimension


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

    def problem_looks(self) -> dict[str, tuple[str, str]]:
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
