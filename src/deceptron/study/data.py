"""Problems and their sets, kept by each process: cells of one problem share them."""

from __future__ import annotations

from functools import lru_cache

from deceptron.problems import Problem, Split, get

# Sets are drawn and simulated in blocks of this many rows, so that a row's bits do not depend on
# how many a cell asks for.
BLOCK = 64


@lru_cache
def problem(name: str) -> Problem:
    """The problem of this name, whose prior is then estimated once."""
    return get(name)


def split(name: str, seed: int, chosen: str, rows: int) -> Split:
    """At least the first ``rows`` instances of a set."""
    return _split(name, seed, chosen, -(-rows // BLOCK) * BLOCK)


@lru_cache(maxsize=6)
def _split(name: str, seed: int, chosen: str, rows: int) -> Split:
    made: Split = getattr(get(name, **{f"{chosen}_count": rows}).dataset(seed), chosen)
    return made
