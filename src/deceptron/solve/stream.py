"""Solve a file of observations that need not fit in memory; a killed run goes on where it was.

Finished chunks wait in a folder beside the result, ``RESULT.parts``, each written under a temporary
name and renamed, with a note of what they belong to. When all are there the result is assembled,
gets its name, and the folder goes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deceptron.core.checks import check_count
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.files import replacing
from deceptron.core.protocols import Pair
from deceptron.core.solution import Solution
from deceptron.core.status import Status
from deceptron.solve.api import solve
from deceptron.solve.files import Array, Rows, check_suffix, open_rows, write_columns
from deceptron.solve.methods import Method, get_method


@dataclass(frozen=True)
class FileSummary:
    """What became of a file: rows, rows reused from an earlier run, and how the rows ended."""

    result: Path
    rows: int
    resumed: int
    statuses: dict[str, int]


def solve_file(
    pair: Pair,
    observations: str | os.PathLike[str],
    result: str | os.PathLike[str],
    *,
    array: str = "y",
    chunk_rows: int = 4096,
    overwrite: bool = False,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    on_chunk: Callable[[int, int], object] | None = None,
    method: str | Method = "guarded",
    **settings: Any,
) -> FileSummary:
    """Solve every row of ``observations`` with ``dc.solve(pair, ..., **settings)``.

    ``result`` gets x, status, iterations, residual and loss (``.npy``: x alone).
    ``on_chunk(rows_done, rows)`` is called after each chunk.

    A run is resumed only if file, pair, method and settings are the same. A pair that is not an
    ``nn.Module`` and a ``forward`` are known by their names alone: remove the parts by hand when
    you change what they do.
    """
    result = Path(result)
    check_suffix("result", result)
    for name in ("callback", "x0", "history", "progress"):
        if name in settings:
            raise ConfigError(f"solve_file takes no {name}: it solves a chunk at a time")
    check_count("chunk_rows", chunk_rows)
    if not result.parent.is_dir():
        raise ConfigError(f"result must lie in a folder that exists; got {result}")
    if result.exists() and not overwrite:
        raise ConfigError(f"result {result} exists already; choose another name or overwrite it")
    with open_rows(observations, name=array) as rows:
        if result.exists() and result.samefile(observations):
            raise ConfigError(f"result must not be the file of the observations; got {result}")
        y_shape = getattr(pair, "y_shape", None)
        if y_shape is not None and tuple(rows.shape[1:]) != tuple(y_shape):
            raise ShapeError(
                f"observations must have shape (rows, {', '.join(map(str, y_shape))}); "
                f"got {tuple(rows.shape)}"
            )
        count = rows.shape[0]
        source = Path(observations).stat()
        note = {
            "observations": [*rows.shape, array, source.st_size, source.st_mtime_ns],
            "chunk_rows": chunk_rows,
            "method": _describe_method(get_method(method), pair),
            "settings": {key: _describe(value) for key, value in sorted(settings.items())},
            "dtype": str(dtype),
            "pair": _describe_pair(pair),
        }
        parts = _Parts(result.with_name(f"{result.name}.parts"), note)
        starts = range(0, count, chunk_rows)
        resumed = 0
        for start in starts:
            stop = min(start + chunk_rows, count)
            if parts.has(start):
                resumed += stop - start
            else:
                y = _tensor(rows, start, stop, dtype, device)
                solution = solve(pair, y, method=method, history=False, **settings)
                parts.write(start, _columns(solution))
            if on_chunk is not None:
                on_chunk(stop, count)
        first = parts.read(0)
        shapes = {key: ((count, *value.shape[1:]), value.dtype) for key, value in first.items()}
        write_columns(result, shapes, _Pieces(parts, starts))
    statuses = parts.statuses(starts)
    parts.remove()
    return FileSummary(result, count, resumed, statuses)


@dataclass(frozen=True)
class _Parts:
    """Finished chunks of one run; a folder left by a different run is refused, not overwritten."""

    folder: Path
    note: dict[str, Any]

    def __post_init__(self) -> None:
        note_file = self.folder / "run.json"
        if note_file.is_file():
            try:
                earlier = json.loads(note_file.read_text())
            except ValueError:
                earlier = {}
            different = [key for key in self.note if earlier.get(key) != self.note[key]]
            if different:
                raise ConfigError(
                    f"{self.folder} holds parts of another run ({', '.join(different)} differ); "
                    "remove it to start afresh"
                )

    def has(self, start: int) -> bool:
        """Whether the chunk that begins at row ``start`` is done."""
        return self._path(start).is_file()

    def write(self, start: int, columns: dict[str, Array]) -> None:
        """Keep a finished chunk; the first one makes the folder, so a refused run leaves none."""
        note_file = self.folder / "run.json"
        if not note_file.is_file():
            self.folder.mkdir(exist_ok=True)
            with replacing(note_file) as temporary:
                temporary.write_text(json.dumps(self.note))
        with replacing(self._path(start)) as temporary:
            np.savez(temporary, **columns)  # type: ignore[arg-type]

    def read(self, start: int) -> dict[str, Array]:
        """A finished chunk."""
        with np.load(self._path(start), allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}

    def statuses(self, starts: range) -> dict[str, int]:
        """How many rows ended in which way."""
        counts = np.zeros(len(Status), dtype=np.int64)
        for start in starts:
            counts += np.bincount(self.read(start)["status"], minlength=len(Status))
        return {s.name: int(counts[s]) for s in Status if counts[s]}

    def remove(self) -> None:
        """The result is whole; the parts are not needed any more."""
        shutil.rmtree(self.folder)

    def _path(self, start: int) -> Path:
        return self.folder / f"{start:012d}.npz"


@dataclass(frozen=True)
class _Pieces:
    """The chunks in order, as often as somebody wants to go through them."""

    parts: _Parts
    starts: range

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return (self.parts.read(start) for start in self.starts)


def _tensor(
    rows: Rows, start: int, stop: int, dtype: torch.dtype, device: torch.device | str | None
) -> Tensor:
    # np.array copies, because the file's own memory is read-only, and brings any byte order and
    # width to one that torch knows.
    wide = np.float64 if dtype == torch.float64 else np.float32
    return torch.as_tensor(np.array(rows[slice(start, stop)], dtype=wide)).to(
        dtype=dtype, device=device
    )


def _columns(solution: Solution) -> dict[str, Array]:
    columns = {"x": solution.x, "status": solution.status, "iterations": solution.iterations}
    columns |= {"residual": solution.residual, "loss": solution.loss}
    return {key: value.cpu().numpy() for key, value in columns.items()}


def _describe_method(method: Method, pair: object) -> str:
    """Every setting: the parts of a method are frozen dataclasses with a full repr."""
    unknowns = math.prod(getattr(pair, "x_shape", None) or (0,))
    settings = {entry.name: getattr(method, entry.name) for entry in fields(method)}
    return str(settings | {"descent": method.descent(unknowns)})


def _describe_pair(pair: object) -> list[str]:
    """Tells two models apart, so that a resumed run does not mix their answers."""
    bounds, error = getattr(pair, "bounds", None), getattr(pair, "surrogate_error", 0.0)
    # Pairs for two noise levels share their weights.
    noise = getattr(pair, "noise_std", None), getattr(getattr(pair, "g", None), "noise_ratio", None)
    known = [type(pair).__name__, _describe(bounds), str(error), str(noise)]
    if isinstance(pair, nn.Module):
        known += [f"{key} {_describe(value)}" for key, value in pair.state_dict().items()]
    return known


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        content = np.ascontiguousarray(value.detach().cpu().numpy()).tobytes()
        return f"{tuple(value.shape)} {hashlib.sha256(content).hexdigest()[:16]}"
    if isinstance(value, (tuple, list)):
        return str([_describe(part) for part in value])
    if callable(value):  # its address differs in the next process
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    return str(value)
