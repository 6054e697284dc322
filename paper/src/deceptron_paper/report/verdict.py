"""What to use where: every problem by the methods one could choose, and the choice in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from deceptron_paper.report.captions import caption
from deceptron_paper.report.query import Query
from deceptron_paper.report.tables import case
from deceptron_paper.report.tables.case import Case
from deceptron_paper.report.tables.methods import LEFT_OUT
from deceptron_paper.report.tables.table import Column, number, table
from deceptron_paper.study.names import MODELS

NO_WORSE = 1.05  # times the least error: what is faster and within it is as good
CLEAR = 0.05
WHERE = {
    "test": "In distribution (test)",
    "shifted": "Off distribution (shifted)",
    "extreme": "Far off (extreme)",
}
UNEXPLAINED = 1.2  # a residual of so many times the noise is not noise alone


@dataclass(frozen=True)
class Candidate(Case):
    """A method on one set of a problem, all seeds pooled; ``use`` says whether to take it."""

    pooled: bool = True
    use: str = ""

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


def choices(query: Query) -> list[Choice]:
    """Every planned set of every problem, with the methods that were run there."""
    planned = {axes[2] for axes in query.planned}
    # The model that a user would take: standard, or the first that the study has.
    model = next((name for name in MODELS if name in planned), "standard")
    found = []
    for set in query.sets:
        for problem in query.problems:
            tried = (
                Candidate(query, problem, model, method, set)
                for method in query.planned_methods(problem, model, set=set)
                if method not in LEFT_OUT
            )
            candidates = [one for one in tried if len(one.trials)]
            if candidates:
                found.append(Choice(problem, set, candidates))
    return found


@table(
    "verdict",
    "Which method to use",
    (
        case.PROBLEM,
        case.METHOD,
        Column("use", "use", value=lambda c: c.use),
        case.N,
        replace(case.RMSE, title="error (RMSE)"),
        replace(case.TRUE_RESIDUAL, title="residual / noise", group=""),
        Column("coverage", "in 90% intervals", value=lambda c: c.trials.average("coverage")),
        case.ALONE,
        case.BATCHED,
    ),
    within=f"{NO_WORSE - 1:.0%}",
    clear=CLEAR,
)
def verdict(query: Query) -> Iterator[Candidate]:
    """The test set: what each method leaves and costs, and which to use."""
    for choice in choices(query):
        if choice.set == "test":
            for one in choice.candidates:
                with_simulator = "with the simulator" if one is choice.simulator else ""
                yield replace(one, use="yes" if one is choice.surrogate else with_simulator)


def verdict_words(query: Query) -> list[str]:
    """A sentence or two for each set."""
    sentences = []
    found = choices(query)
    for set in query.sets:
        here = [choice for choice in found if choice.set == set]
        fast = [choice.surrogate for choice in here if choice.surrogate is not None]
        slow = [choice.simulator for choice in here if choice.simulator is not None]
        left = {c.problem: c.over_noise for c in slow or fast if c.over_noise > UNEXPLAINED}
        if fast or slow:
            facts = {"fast": _by_method(fast), "slow": _by_method(slow), "left": left}
            sentences.append(
                caption("verdict-words", query, where=WHERE[set], number=number, **facts)
            )
    return sentences


def _by_method(chosen: list[Candidate]) -> str:
    groups: dict[str, list[str]] = defaultdict(list)
    for one in chosen:
        groups[one.method].append(one.problem)
    if len(groups) == 1 and len(chosen) > 1:
        return f"{next(iter(groups))} everywhere"
    if len(chosen) == 1:
        return chosen[0].method
    return "; ".join(f"{method} on {', '.join(where)}" for method, where in groups.items())
