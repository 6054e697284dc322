"""What to use where: every problem by the methods one could choose, and the choice in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deceptron.report.query import Query, Trials
from deceptron.report.tables.shift import LEFT_OUT
from deceptron.report.tables.table import Column, Line, Table, Value, count, measured, number
from deceptron.study.names import MODELS

NO_WORSE = 1.05  # times the least error: what is faster and within it is as good
CLEAR = 0.05
WHERE = {
    "test": "In distribution (test)",
    "shifted": "Off distribution (shifted)",
    "extreme": "Far off (extreme)",
}
UNEXPLAINED = 1.2  # a residual of so many times the noise is not noise alone


@dataclass(frozen=True)
class Candidate:
    """A method on one set of a problem."""

    query: Query
    problem: str
    set: str
    method: str
    trials: Trials

    @cached_property
    def rmse(self) -> float:
        """Mean error."""
        return self.trials.average("rmse")

    @cached_property
    def seconds(self) -> float:
        """Of an instance alone; its share of a batch where nobody measured that."""
        alone = self.trials.latency
        return self.trials.average("seconds") if np.isnan(alone) else alone

    @property
    def needs_simulator(self) -> bool:
        """Whether the true simulator is in its objective."""
        return self.query.methods[self.method].physics == "true"

    @property
    def over_noise(self) -> float:
        """Residual of the simulator at the answer, in units of the noise."""
        found = self.trials.in_noise("true_residual")
        return np.nan if found is None else found.value

    def ratio(self, other: Candidate) -> float:
        """Error over that of another, on the trials of both."""
        found = self.trials.ratio(other.trials)
        return np.nan if found is None else found.value


@dataclass(frozen=True)
class Choice:
    """Who to use on one set of a problem; ``simulator`` where it is worth having in the loop."""

    problem: str
    set: str
    candidates: list[Candidate]

    @cached_property
    def surrogate(self) -> Candidate | None:
        """The fastest of those whose error is as good as the least, without the simulator."""
        return _fastest([c for c in self.candidates if not c.needs_simulator])

    @cached_property
    def simulator(self) -> Candidate | None:
        """The same with it, where that is clearly better."""
        chosen = _fastest([c for c in self.candidates if c.needs_simulator])
        if chosen is None or self.surrogate is None:
            return chosen
        found = chosen.trials.against(self.surrogate.trials)
        clear = found is not None and found.p < CLEAR and found.difference.value < 0
        return chosen if clear else None


def _fastest(candidates: list[Candidate]) -> Candidate | None:
    known = [c for c in candidates if np.isfinite(c.rmse)]
    if not known:
        return None
    best = min(known, key=lambda c: c.rmse)
    good = [c for c in known if c is best or c.ratio(best) <= NO_WORSE]
    return min(good, key=lambda c: (c.seconds, c.rmse))


COLUMNS = (
    Column("problem", "problem"),
    Column("method", "method"),
    Column("use", "use"),
    Column("n", "n", value=lambda c: count(c.trials)),
    Column("rmse", "error (RMSE)", value=lambda c: c.trials.mean("rmse")),
    Column(
        "true_residual",
        "residual / noise",
        value=lambda c: c.trials.in_noise("true_residual"),
    ),
    Column("coverage", "in 90% intervals", value=lambda c: c.trials.average("coverage")),
    Column("latency_ms", "alone", "ms an instance", lambda c: 1e3 * c.trials.latency),
    Column(
        "batched_ms", "in a batch", "ms an instance", lambda c: 1e3 * c.trials.average("seconds")
    ),
)


def choices(query: Query) -> list[Choice]:
    """Every planned set of every problem, with the methods that were run there."""
    found = []
    for set in query.sets:
        for problem in query.problems:
            names = _named(query, problem, set)
            trials = {name: query.pooled(problem, _model(query), name, set=set) for name in names}
            candidates = [
                Candidate(query, problem, set, name, own)
                for name, own in trials.items()
                if len(own)
            ]
            if candidates:
                found.append(Choice(problem, set, candidates))
    return found


def verdict_table(found: Iterable[Choice]) -> Table:
    """The test set: what each method leaves and costs, and which to use."""
    lines: list[Line] = []
    for choice in found:
        if choice.set != "test":
            continue
        marks: dict[str, Value] = {}
        if choice.surrogate is not None:
            marks[choice.surrogate.method] = "yes"
        if choice.simulator is not None:
            marks[choice.simulator.method] = "with the simulator"
        for one in choice.candidates:
            label = {"problem": choice.problem, "method": one.method}
            lines.append({**label, "use": marks.get(one.method, ""), **measured(COLUMNS, one)})
    return Table(
        "verdict",
        "Which method to use",
        "Test sets, seeds pooled. Use: the fastest method, an instance at a time, whose error is "
        f"within {NO_WORSE - 1:.0%} of the least without the simulator in the loop; with the "
        f"simulator where that is clearly better (paired, p < {CLEAR}). Residuals are those of "
        "the simulator at the answer: about 1 is explained to the noise. In 90% intervals: the "
        "share of the components of the truth, 0.9 if the error bars are right; a dash where none "
        "were made. "
        "Brackets are 95% bootstrap intervals; * marks fewer than 30 instances.",
        COLUMNS,
        tuple(lines),
    )


def verdict_words(query: Query, found: list[Choice]) -> list[str]:
    """A sentence or two for each set."""
    sentences = []
    for set in query.sets:
        here = [choice for choice in found if choice.set == set]
        fast = [choice.surrogate for choice in here if choice.surrogate is not None]
        slow = [choice.simulator for choice in here if choice.simulator is not None]
        words = f"{WHERE[set]}: "
        if fast:
            words += f"use {_by_method(fast)}."
        if slow:
            words += f" With the simulator in the loop {_by_method(slow)}, clearly better there."
        left = [c for c in slow or fast if c.over_noise > UNEXPLAINED]
        if left:
            names = ", ".join(f"{c.problem} ({number(c.over_noise)})" for c in left)
            words += f" More than noise is left, in units of the noise, on {names}."
        if fast or slow:
            sentences.append(words)
    return sentences


def _by_method(chosen: list[Candidate]) -> str:
    groups: dict[str, list[str]] = defaultdict(list)
    for one in chosen:
        groups[one.method].append(one.problem)
    if len(groups) == 1:
        return f"{next(iter(groups))} everywhere" if len(chosen) > 1 else f"{chosen[0].method}"
    return "; ".join(f"{method} on {', '.join(where)}" for method, where in groups.items())


def _model(query: Query) -> str:
    """The model that a user would take: standard, or the first that the study has."""
    planned = {axes[2] for axes in query.tables.planned}
    return next((name for name in MODELS if name in planned), "standard")


def _named(query: Query, problem: str, set: str) -> list[str]:
    planned = query.planned_methods(problem, _model(query), set=set)
    return [method for method in planned if method not in LEFT_OUT]
