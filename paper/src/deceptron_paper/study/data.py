"""Problems and their sets, kept by each process: cells of one problem share them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from deceptron import ConfigError, problems
from deceptron.problems import Problem, Split
from deceptron.work import problem_document
from deceptron_paper.study import entries, methods
from deceptron_paper.study.entries import ProblemEntry
from deceptron_paper.study.method_entry import MethodEntry

# Sets are drawn and simulated in blocks of this many rows, so that a row's bits do not depend on
# how many a cell asks for.
BLOCK = 64
_SENT: dict[str, Problem] = {}  # a user's problems, in processes that have not defined them


@dataclass(frozen=True)
class Own:
    """What a user has defined and declared beside the library, for processes that have not."""

    problems: dict[str, Problem]
    entries: dict[str, ProblemEntry]
    methods: dict[str, MethodEntry]

    def document(self) -> dict[str, Any]:
        """What the problems are, for study.json: a name says nothing of what it stands for."""
        return {"own": {name: problem_document(one) for name, one in self.problems.items()}}

    def install(self) -> None:
        """Make it known in this process."""
        for name in self.problems.keys() - set(problems.names()):
            _SENT[name] = self.problems[name]
        entries.ENTRIES.update(self.entries)
        methods.ENTRIES.update(self.methods)


def own(named_problems: list[str], named_methods: list[str]) -> Own:
    """Those of these names that the library does not have; each must have a simulator."""
    found = {name: problem(name) for name in named_problems if name not in entries.PROBLEMS}
    for name, one in found.items():
        if not one.has_simulator:
            raise ConfigError(f"problem {name!r} was made from data: a study needs its simulator")
    return Own(
        found,
        {name: entries.problem_entry(name) for name in found},
        {n: methods.method_entry(n) for n in named_methods if n not in methods.METHODS},
    )


def problem(name: str) -> Problem:
    """The problem of this name, whose prior is then estimated once."""
    if name in entries.PROBLEMS:
        return _library(name)
    return _SENT[name] if name in _SENT else problems.get(name)


def split(name: str, seed: int, chosen: str, rows: int) -> Split:
    """At least the first ``rows`` instances of a set that the simulator has an answer for."""
    one, count = problem(name), -(-rows // BLOCK) * BLOCK
    # Two definitions of one name may compare equal.
    while len(made := _split(one, id(one), seed, chosen, count)) < rows:
        count *= 2
    return made


@lru_cache
def _library(name: str) -> Problem:
    return problems.get(name)


@lru_cache(maxsize=6)
def _split(one: Problem, identity: int, seed: int, chosen: str, rows: int) -> Split:
    sized: Problem = replace(one, **{f"{chosen}_count": rows})  # type: ignore[arg-type]
    return getattr(sized.dataset(seed), chosen)
