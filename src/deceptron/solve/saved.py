"""A solution in a file and back: the columns of a file solve, and what else is known of a row."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from deceptron.core.errors import ConfigError
from deceptron.core.files import temporary_for
from deceptron.core.history import Cost
from deceptron.core.solution import Solution
from deceptron.core.trust import Trust
from deceptron.geometry.posterior import SAMPLES, quantile
from deceptron.solve.files import HDF5, Array, arrays, check_suffix
from deceptron.solve.results import COLUMNS, MARK, Store, columns_of, is_ours, notes_of

SUFFIXES = (".npz", ".zarr", *HDF5)
_NEEDED = ("x", "status", "reason", "iterations", "residual", "cost")
_ONLY_HERE = ("relative_residual", "rule", "loss")
_CHUNK = 4096


def save(solution: Solution, path: str | os.PathLike[str], *, error_bars: bool) -> None:
    """The file appears whole, or not at all."""
    target = Path(path)
    suffix = check_suffix("path", target, SUFFIXES)
    if not target.parent.is_dir():
        raise ConfigError(f"path must lie in a folder that exists; got {target}")
    if not len(solution):
        raise ConfigError("a solution of no rows is not saved")
    columns = columns_of(solution, error_bars=error_bars)
    columns |= {name: getattr(solution, name).cpu().numpy() for name in _ONLY_HERE}
    notes = {"method": solution.method, "seconds": solution.seconds}
    place = Path(os.path.realpath(target))
    if suffix == ".zarr" and place.exists() and not is_ours(place):
        raise ConfigError(f"path {target} is not a store that this library wrote: remove it")
    store = Store(temporary_for(place), len(solution), _CHUNK)
    try:
        store.create(columns, row="row", attributes={MARK: notes, "title": "deceptron solution"})
        for start in range(0, len(solution), _CHUNK):
            rows = slice(start, start + _CHUNK)
            store.write(start, {name: values[rows] for name, values in columns.items()})
        store.publish(place)
    finally:
        shutil.rmtree(store.path, ignore_errors=True)


def load(path: str | os.PathLike[str]) -> Solution:
    """What ``save`` or a file solve wrote; what the latter does not know is NaN, or -1."""
    source = Path(path)
    with arrays(source, COLUMNS, what="solution") as found:
        absent = [name for name in _NEEDED if name not in found]
        if absent:
            raise ConfigError(
                f"solution: {source} must be the result of a solve; it has no {', '.join(absent)}"
            )
        columns = {name: _tensor(rows[:]) for name, rows in found.items()}
    x, status = columns["x"], columns["status"]
    unknown = torch.full_like(columns["residual"], torch.nan)
    notes = notes_of(source)
    return Solution(
        x=x,
        status=status,
        reason=columns["reason"],
        iterations=columns["iterations"],
        residual=columns["residual"],
        relative_residual=columns.get("relative_residual", unknown),
        over_noise=columns.get("over_noise", unknown),
        explained=columns.get("explained", torch.zeros_like(status)) == 1,
        rule=columns.get("rule", torch.full_like(status, -1)),
        loss=columns.get("loss", unknown),
        cost=Cost(*columns["cost"].unbind(1)),
        method=str(notes.get("method", "unknown method")),
        seconds=float(notes.get("seconds", torch.nan)),
        error_bars=SavedBars(x, columns["std"]) if "std" in columns else None,
        judge=partial(_trust, columns["trust"]) if "trust" in columns else None,
    )


def _trust(score: Float[Tensor, " B"]) -> Trust:
    return Trust(score, score > 1, parts={}, worst=[""] * len(score))


def _tensor(values: Array) -> Tensor:
    wide = np.int64 if values.dtype.kind in "iu" else values.dtype.newbyteorder("=")
    return torch.as_tensor(np.array(values, dtype=wide))


@dataclass(frozen=True, eq=False)
class SavedBars:
    """Bars whose deviations are known and whose maps are not: no draws, and no box to clip to."""

    x: Float[Tensor, "B *x"]
    deviations: Float[Tensor, "B *x"]

    def __len__(self) -> int:
        return len(self.x)

    def at(self, rows: Int[Tensor, " k"]) -> SavedBars:
        """Of these rows."""
        return SavedBars(self.x[rows], self.deviations[rows])

    def sample(
        self, samples: int = SAMPLES, *, generator: Generator | None = None
    ) -> Float[Tensor, "S B *x"]:
        """Not from a file."""
        raise ConfigError("draws need the pair: a solution from a file has only .std")

    def std(
        self, samples: int = SAMPLES, *, generator: Generator | None = None
    ) -> Float[Tensor, "B *x"]:
        """As it was saved."""
        return self.deviations

    def ends(
        self, std: Float[Tensor, "B *x"], level: float, *, samples: int = SAMPLES
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        """By Student's law for every row; where a deviation was exact this is 3% too wide."""
        half = quantile(level, samples) * std
        return self.x - half, self.x + half
