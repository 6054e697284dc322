"""What a study consists of: blocks of problems x sets x models x seeds x methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from deceptron import ConfigError
from deceptron.core import unknown_name
from deceptron_paper.study.cell import Cell, ModelKey, digest
from deceptron_paper.study.entries import (
    PROBLEMS,
    check_count,
    known_problems,
    problem_entry,
    shown_problem,
)
from deceptron_paper.study.methods import known_methods, method_entry
from deceptron_paper.study.models import POLICIES, Policy
from deceptron_paper.study.names import MODELS, PROBE_MODELS, SETS, TRUTH
from deceptron_paper.study.solving import FIELDS, RJCP_PROBES, RJCP_ROWS

PROBE_PROBLEM = "allen-cahn-2d"
NAMED = ("problems", "sets", "models", "methods")


def known(axis: str) -> tuple[str, ...]:
    """The names that an axis may have now, in the order of display."""
    if axis == "problems":
        return known_problems()
    if axis == "methods":
        return known_methods()
    return {"sets": SETS, "models": MODELS}.get(axis, ())


@dataclass(frozen=True, kw_only=True)
class Block:
    """Every combination of its axes, on the first ``instances`` of each set.

    Costly methods stand in blocks of their own with fewer instances; instance k is the same row
    everywhere, so methods still pair. Of the first ``error_bars`` of them the 90% intervals are
    held against the truth, which costs more than most solves.
    """

    problems: tuple[str, ...] = PROBLEMS
    sets: tuple[str, ...] = ("test",)
    models: tuple[str, ...] = ("standard",)
    seeds: tuple[int, ...] = (7,)
    methods: tuple[str, ...]
    instances: int
    max_iterations: int | None = None
    error_bars: int = 0

    def __post_init__(self) -> None:
        for axis in NAMED:
            for name in _names(axis, getattr(self, axis)):
                if name not in known(axis):
                    raise unknown_name(axis.removesuffix("s"), name, known(axis))
        for seed in _names("seeds", self.seeds):
            check_count("seeds", seed, low=0)
        check_count("instances", self.instances)
        check_count("error_bars", self.error_bars, low=0)
        if self.max_iterations is not None:
            check_count("max_iterations", self.max_iterations)
        probes = [model for model in self.models if model in PROBE_MODELS]
        if probes and self.problems != (PROBE_PROBLEM,):
            raise ConfigError(
                f"model {probes[0]!r} exists for {PROBE_PROBLEM} only; "
                f"got problems {', '.join(self.problems)}"
            )

    def cells(self) -> Iterator[Cell]:
        """All combinations."""
        axes = (self.problems, self.seeds, self.models, self.sets, self.methods)
        for problem, seed, model, chosen, method in product(*axes):
            yield Cell(
                problem,
                chosen,
                model,
                seed,
                method,
                self.instances,
                self.max_iterations,
                self.error_bars,
            )


@dataclass(frozen=True, kw_only=True)
class Study:
    """Blocks that together make a grid; no cell may come from two of them.

    ``small`` marks results that nothing may be concluded from. ``missing_models`` says what to do
    about a pair that is neither shipped nor among earlier runs: skip it, train it, or put one in
    its place that was trained for seconds.
    """

    name: str
    blocks: tuple[Block, ...]
    small: bool = False
    missing_models: Policy = "skip"

    def __post_init__(self) -> None:
        if self.missing_models not in POLICIES:
            raise ConfigError(
                f"missing_models must be one of {', '.join(map(repr, POLICIES))}; "
                f"got {self.missing_models!r}"
            )
        if not self.blocks:
            raise ConfigError(f"study {self.name!r} must have at least one block")
        seen: set[tuple[Any, ...]] = set()
        for cell in (cell for block in self.blocks for cell in block.cells()):
            axes = (cell.problem, cell.set, cell.model, cell.seed, cell.method)
            if axes in seen:
                where = ", ".join(map(str, axes))
                raise ConfigError(f"study {self.name!r} has the cell ({where}) twice")
            seen.add(axes)

    def cells(self) -> list[Cell]:
        """The grid, one problem and model after the other, each set with its truth."""
        cells = [cell for block in self.blocks for cell in block.cells()]
        sets = dict.fromkeys((cell.problem, cell.set, cell.seed) for cell in cells)
        truths = [Cell(p, s, "", seed, TRUTH, FIELDS) for p, s, seed in sets]
        return sorted([*truths, *cells], key=_place)

    def models(self) -> list[ModelKey]:
        """The pairs that its cells need, in order."""
        return list(dict.fromkeys(c.model_key for c in self.cells() if c.model_key is not None))

    def restricted(
        self,
        *,
        problems: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Study:
        """The part of the grid with these problems, methods and seeds."""
        wanted = {"problems": problems, "methods": methods, "seeds": seeds}
        for axis, chosen in wanted.items():
            if chosen is not None and not chosen:
                raise ConfigError(f"{axis} must name one or more; got none")
            kind = axis.removesuffix("s")
            held = [name for block in self.blocks for name in getattr(block, axis)]
            for name in chosen or ():
                if name not in held:
                    names = known(axis) or tuple(map(str, dict.fromkeys(held)))
                    if name in names:
                        raise ConfigError(f"study {self.name!r} has no {kind} {name!r}")
                    raise unknown_name(kind, name, names)
        blocks = []
        for block in self.blocks:
            kept = {
                axis: tuple(n for n in getattr(block, axis) if chosen is None or n in chosen)
                for axis, chosen in wanted.items()
            }
            if all(kept.values()):
                blocks.append(replace(block, **kept))  # type: ignore[arg-type]
        if not blocks:
            given = (f"{axis} {', '.join(map(str, c))}" for axis, c in wanted.items() if c)
            raise ConfigError(f"study {self.name!r} has no cell with {' and '.join(given)}")
        return replace(self, blocks=tuple(blocks))

    def document(self) -> dict[str, Any]:
        """The content of study.json; ``key`` changes with every setting, not with what is shown."""
        cells = [cell.document() for cell in self.cells()]
        labels = _sorted("methods", {cell["method"] for cell in cells} - {TRUTH})
        names = _sorted("problems", {cell["problem"] for cell in cells})
        entries = {name: problem_entry(name) for name in names}
        decisive = {
            **asdict(self),
            "methods": {label: method_entry(label).document() for label in labels},
            "paper_tolerance": {name: entry.tolerance for name, entry in entries.items()},
            "paper_iterations": {name: entry.iterations for name, entry in entries.items()},
            "rjcp": {"rows": RJCP_ROWS, "probes": RJCP_PROBES},
        }
        shown = {
            "methods": {label: method_entry(label).shown() for label in labels},
            "problems": {name: shown_problem(name) for name in names},
        }
        return {"key": digest(decisive), **decisive, "shown": shown, "cells": cells}


def _sorted(axis: str, names: set[str]) -> list[str]:
    """Names in the order of display."""
    return [name for name in known(axis) if name in names]


def _names(axis: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, tuple) or not values:
        raise ConfigError(f"{axis} must be a non-empty list; got {values!r}")
    return values


def _place(cell: Cell) -> tuple[int, ...]:
    """Cells that share data and pairs stand together; the truth comes first."""
    model, method = -1, -1
    if cell.method != TRUTH:
        model, method = MODELS.index(cell.model), known_methods().index(cell.method)
    return known_problems().index(cell.problem), cell.seed, model, SETS.index(cell.set), method
