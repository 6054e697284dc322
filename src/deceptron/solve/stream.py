"""Solve a file of observations that need not fit in memory, by as many workers as there are.

The rows are solved in chunks. Finished chunks wait in a folder beside the result, ``RESULT.parts``,
each with a checksum; a killed run goes on from there. When all are there the result gets its name,
and the folder goes::

    .lock, run.json                one process at a time, for this work and no other
    store-RUN/                     the zarr store that becomes the result, see ``results``
    observations.npy               those of a compressed file or of text, unpacked
"""

from __future__ import annotations

import copy
import math
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deceptron.core.arrays import mistaken, real_tensor, weight_of
from deceptron.core.checks import check_count, check_device, check_dtype
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.files import as_path, destination, read_json, remove_litter, writing
from deceptron.core.folder import LOCK, Folder
from deceptron.core.identity import describe, digest, fingerprint
from deceptron.core.protocols import Pair
from deceptron.core.work import engine, succeed
from deceptron.solve.api import solve
from deceptron.solve.files import Rows, Source, arrays, check_suffix, source
from deceptron.solve.forward import judged_together
from deceptron.solve.methods import Method, get_method
from deceptron.solve.outliers import outliers
from deceptron.solve.results import (
    COLUMNS,
    MARK,
    SUFFIXES,
    Store,
    columns_of,
    endings,
    is_ours,
    notes_of,
)

_NUMBERS = 2**18  # of y in a chunk, unless told otherwise: a mebibyte
_MOST_CHUNKS = 10**6
_NOT_HERE = ("callback", "x0", "history", "progress")


@dataclass(frozen=True)
class FileSummary:
    """What became of a file.

    Attributes:
        result: the file that was written.
        rows: in it.
        resumed: rows that an earlier run had solved.
        statuses: how many rows ended with each status.
        reasons: how many ended for each reason.
        dropped: sensor values that were left out as outliers, in all rows.
        flagged: rows that trust flags as unlike the training data.
    """

    result: Path
    rows: int
    resumed: int
    statuses: dict[str, int]
    reasons: dict[str, int]
    dropped: int = 0
    flagged: int = 0


def solve_file(
    pair: Pair,
    observations: str | os.PathLike[str],
    result: str | os.PathLike[str],
    *,
    executor: object = None,
    workers: int | None = None,
    address: str | None = None,
    array: str = "y",
    chunk_rows: int | None = None,
    error_bars: bool = True,
    drop_outliers: bool = False,
    overwrite: bool = False,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    on_chunk: Callable[[int, int], object] | None = None,
    method: str | Method = "guarded",
    **settings: Any,
) -> FileSummary:
    """Solve every row of ``observations`` with ``dc.solve(pair, ..., **settings)``.

    The result is a zarr store (``.zarr``), or made from one at the end (``.npz``, ``.h5``;
    ``.npy``: x alone), with x, std and trust where the pair knows them, status, reason,
    iterations, residual and cost. A run is resumed only if observations, pair, method and settings
    are the same, down to the code of a ``forward``, though not of what that calls.

    Args:
        pair: what ``dc.solve`` takes.
        observations: ``.npy``, ``.npz``, ``.h5``, ``.zarr``, ``.nc`` or ``.csv``.
        result: the file to write; it appears whole or not at all.
        executor: who solves: None for this process, ``"local"``, ``"ray"``, or anything with
            ``submit`` as ``concurrent.futures.Executor`` has it. Others than this process need a
            pair and settings that can be pickled, and a folder that they all see.
        workers: processes of an engine by name.
        address: of a Ray cluster that runs already.
        array: name of the array in files that can hold several.
        chunk_rows: rows in memory at a time, the unit of work; by default a mebibyte of y.
        error_bars: whether to write ``std``; it costs more than most solves.
        drop_outliers: leave out sensors that ``dc.outliers`` finds to be wrong; the column
            ``dropped`` says how many of each row.
        overwrite: replace a result that is there.
        dtype: precision in which to solve, with a copy of a pair that has another; by default that
            of the pair's weights, float32 if it has none.
        device: where to solve, likewise.
        on_chunk: called as ``on_chunk(rows_done, rows)`` after each chunk.
        method: as in ``dc.solve``.
        settings: anything else that ``dc.solve`` takes; a ``noise_std`` with a row for every
            observation goes with its rows.
    """
    for name in _NOT_HERE:
        if name in settings:
            raise ConfigError(f"solve_file takes no {name}: it solves a chunk at a time")
    result = as_path("result", result)
    origin = source(observations, array)
    weight = weight_of(pair)
    if dtype is None:
        dtype = torch.float32 if weight is None else weight.dtype
    check_dtype(dtype)
    if device is not None:
        check_device(device)
    if on_chunk is not None and not callable(on_chunk):
        raise ConfigError(f"on_chunk must be a function; got {type(on_chunk).__name__}")
    with writing(result):
        place = _check_result(result, overwrite)
    if Path(os.path.realpath(origin.path)) in place.parents:
        raise ConfigError(f"result must not lie within the observations; got {result}")
    if settings.get("noise_std") is not None:
        settings["noise_std"] = real_tensor("noise_std", settings["noise_std"])
    crew = engine(executor, workers=workers, address=address)
    with origin.opened() as rows:
        if place.exists() and place.samefile(observations):
            raise ConfigError(f"result must not be the file of the observations; got {result}")
        here = _converted(pair, dtype, device)
        job = _Job(here, origin, method, settings, dtype, device, error_bars, drop_outliers)
        first = job.probe(rows)
        count, size = rows.shape[0], math.prod(rows.shape[1:])
        row = rows.row
    if chunk_rows is None:
        chunk_rows = max(1, min(4096, _NUMBERS // size))
    chunk_rows = min(check_count("chunk_rows", chunk_rows), count)
    if count > _MOST_CHUNKS * chunk_rows:
        raise ConfigError(f"chunk_rows must be larger for {count} rows; got {chunk_rows}")
    chosen = _portable(get_method(method), math.prod(first["x"].shape[1:]))
    identity = {
        "format": 1,
        "library": metadata.version("deceptron"),
        "observations": [count, array, fingerprint(origin.path)],
        "chunk_rows": chunk_rows,
        "method": describe(chosen),
        "settings": {key: describe(value) for key, value in sorted(settings.items())},
        "dtype": str(dtype),
        "device": str(device or "cpu"),
        "pair": digest(pair),
        "columns": sorted(first),
    }
    parts = _Parts(place.with_name(f"{place.name}.parts"), identity, count, chunk_rows)
    goes_on = parts.path.exists()
    with parts.taken():
        remove_litter(place.parent, place)
        if goes_on and notes_of(place).get("run") == parts.run:  # killed when it was made
            with arrays(place, COLUMNS, what="result") as columns:
                ended = endings(columns)
            parts.remove()
            return FileSummary(result, count, count, **ended)
        if place.exists() and not overwrite:
            raise _exists(result)
        about = {"run": parts.run, "library": identity["library"], "method": chosen.name}
        about |= {"pair": str(getattr(pair, "name", None)), "observations": origin.path.name}
        store = parts.store
        store.create(first, row=row, attributes={MARK: about, "title": "deceptron solve"})
        waiting = [start for start in range(0, count, chunk_rows) if not store.holds(start)]
        done = resumed = count - sum(min(chunk_rows, count - start) for start in waiting)
        tell = on_chunk or (lambda done, rows: None)
        if resumed:
            tell(done, count)
        if waiting:
            plain = origin.unpacked(parts.path)
            work = replace(job, source=plain, method=chosen, store=store)
            with crew as workforce:
                for start in succeed(workforce.run(work, waiting)):
                    done += min(chunk_rows, count - start)
                    tell(done, count)
        ended = endings(store.columns())
        store.publish(place)
        parts.remove()
    return FileSummary(result, count, resumed, **ended)


@dataclass(frozen=True)
class _Job:
    """Solves the chunk from a row on and keeps it; travels to whoever does that."""

    pair: Any
    source: Source
    method: str | Method
    settings: dict[str, Any]
    dtype: torch.dtype
    device: torch.device | str | None
    error_bars: bool
    drop_outliers: bool
    store: Store | None = None

    def __call__(self, start: int) -> None:
        assert self.store is not None
        with self.source.opened() as rows, judged_together() as witness:
            columns = self._solve(rows, start, min(start + self.store.chunk_rows, rows.shape[0]))
        if not self.store.begun:  # else it has answered rows of another chunk
            witness.raise_if_silent()
        self.store.write(start, columns)

    def probe(self, rows: Rows) -> dict[str, np.ndarray[Any, Any]]:
        """The first row solved: a mistake shows before there is a folder, and so do the columns."""
        y_shape = getattr(self.pair, "y_shape", None)
        if y_shape is not None and tuple(rows.shape[1:]) != tuple(y_shape):
            raise ShapeError(
                f"observations must have shape (rows, {', '.join(map(str, y_shape))}); "
                f"got {tuple(rows.shape)}{mistaken(tuple(rows.shape), tuple(y_shape))}"
            )
        with judged_together():  # a row that fails is not the file
            return self._solve(rows, 0, 1)

    def _solve(self, rows: Rows, start: int, stop: int) -> dict[str, np.ndarray[Any, Any]]:
        y = _tensor(rows, start, stop, self.dtype, self.device)
        settings = dict(self.settings)
        if _by_row(settings.get("noise_std"), rows):
            settings["noise_std"] = settings["noise_std"][start:stop]
        found = {}
        if self.drop_outliers:
            wrong = outliers(self.pair, y, noise_std=settings.get("noise_std"))
            y = y.masked_fill(wrong, torch.nan)
            found["dropped"] = wrong.flatten(1).sum(1).cpu().numpy().astype(np.int32)
        solution = solve(self.pair, y, method=self.method, history=False, **settings)
        return columns_of(solution, error_bars=self.error_bars) | found


@dataclass(frozen=True)
class _Parts:
    """Finished chunks of one run; a folder of another run, or of somebody else, is refused."""

    path: Path
    identity: dict[str, Any]
    rows: int
    chunk_rows: int

    @property
    def run(self) -> str:
        """A short name of this run."""
        return digest(self.identity)[:16]

    @property
    def store(self) -> Store:
        """Where the answers go; a straggler of another run has another one."""
        return Store(self.path / f"store-{self.run}", self.rows, self.chunk_rows)

    def taken(self) -> Any:
        """Hold the folder."""
        folder = Folder(self.path, "file solve", "run.json", shared=False)
        return folder.taken(self.identity, check=self._check)

    def _check(self, note: Path) -> None:
        earlier = read_json(note) or {}
        different = [key for key in self.identity if earlier.get(key) != self.identity[key]]
        if different:
            raise ConfigError(
                f"{self.path} holds parts of another run ({', '.join(different)} differ); "
                "remove it to start afresh"
            )

    def remove(self) -> None:
        """Remove what this run has made; the folder stays if somebody put something there."""
        shutil.rmtree(self.store.path, ignore_errors=True)
        for name in ("observations.npy", "run.json", LOCK):
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()


def _portable(method: Method, unknowns: int) -> Method:
    """With one descent for every number of unknowns, not a function that may not travel."""
    return replace(method, descent=partial(_always, method.descent(unknowns)))


def _always(descent: Any, unknowns: int) -> Any:
    return descent


def _converted(pair: Any, dtype: torch.dtype, device: torch.device | str | None) -> Any:
    """The pair itself, or a copy of a module whose weights are of another kind."""
    weight = weight_of(pair)
    if weight is None:
        return pair
    wanted = weight.to(dtype=dtype, device=device)
    if (wanted.dtype, wanted.device) == (weight.dtype, weight.device):
        return pair
    return copy.deepcopy(pair).to(wanted)


def _check_result(result: Path, overwrite: bool) -> Path:
    """Where the result goes, links followed; a mistake is found before anything is read."""
    kind = check_suffix("result", result, SUFFIXES)
    place = Path(os.path.realpath(result))
    if not place.parent.is_dir():
        raise ConfigError(f"result must lie in a folder that exists; got {result}")
    unfinished = place.with_name(f"{place.name}.parts").exists()
    if place.exists() and not overwrite and not unfinished:
        raise _exists(result)
    if kind != ".zarr":
        return destination(result)
    if place.exists() and not is_ours(place):
        raise ConfigError(f"result {result} is not a store that this library wrote: remove it")
    return place


def _exists(result: Path) -> ConfigError:
    return ConfigError(
        f"result {result} exists already: choose another name, or overwrite=True (--overwrite)"
    )


def _by_row(noise_std: Any, rows: Rows) -> bool:
    """Whether there is one for every observation, as ``dc.solve`` tells it: by the axes."""
    shape = tuple(getattr(noise_std, "shape", ()))
    if len(shape) != len(rows.shape) or shape[0] == 1:
        return False
    if shape[0] != rows.shape[0]:
        raise ShapeError(f"noise_std must have {rows.shape[0]} rows, or one; got {shape[0]}")
    return True


def _tensor(
    rows: Rows, start: int, stop: int, dtype: torch.dtype, device: torch.device | str | None
) -> Tensor:
    # np.array copies, because the file's own memory is read-only, and brings any byte order and
    # width to one that torch knows.
    wide = np.float64 if dtype == torch.float64 else np.float32
    return torch.as_tensor(np.array(rows[slice(start, stop)], dtype=wide)).to(
        dtype=dtype, device=device
    )
