"""Answers on their way to a file: a zarr store, a chunk of rows written whole by whoever solved it.

A store has an array per column, with the names of its dimensions, and a checksum behind every
chunk. ``xarray.open_zarr`` opens it. Other kinds of files are made from the store at the end.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from deceptron.core.errors import ConfigError
from deceptron.core.files import read_json, replacing, sync, temporary_for, writing
from deceptron.core.history import Cost
from deceptron.core.solution import Solution
from deceptron.core.status import Reason, Status
from deceptron.solve.files import HDF5, Array, Rows, library, write_npy

SUFFIXES = (".zarr", ".npz", ".npy", *HDF5)
MARK = "deceptron"  # an attribute that only stores of ours have

_WORDS = {
    "x": "answers",
    "std": "calibrated standard deviation of x",
    "status": "how a row ended",
    "reason": "the rule by which it ended",
    "iterations": "steps that were taken",
    "residual": "RMS misfit of the observation, normalised units",
    "over_noise": "RMS misfit over the measurement noise",
    "explained": "whether that is within what 99% of pure noise stays below",
    "trust": "above 1 the observation does not look like what the pair was trained on",
    "cost": "evaluations that a row asked for",
    "dropped": "sensors that were left out as outliers",
    "relative_residual": "residual over its value at the start",
    "rule": "which rule made the last accepted step",
    "loss": "objective over the number of observed components",
}
COLUMNS = tuple(_WORDS)


def columns_of(solution: Solution, *, error_bars: bool) -> dict[str, Array]:
    """What is kept of a solution; a column that it does not have is left out."""
    costs = [getattr(solution.cost, entry.name) for entry in fields(Cost)]
    columns = {
        "x": solution.x.cpu().numpy(),
        "status": solution.status.cpu().numpy().astype(np.int8),
        "reason": solution.reason.cpu().numpy().astype(np.int8),
        "iterations": solution.iterations.cpu().numpy().astype(np.int32),
        "residual": solution.residual.cpu().numpy(),
        "over_noise": solution.over_noise.cpu().numpy(),
        "explained": solution.explained.cpu().numpy().astype(np.int8),
        "cost": np.stack([cost.cpu().numpy() for cost in costs], axis=1).astype(np.int32),
    }
    with suppress(ConfigError):  # without noise or prior nothing is known about the error
        if error_bars:
            columns["std"] = solution.std.cpu().numpy()
    with suppress(ConfigError):
        columns["trust"] = solution.trust.score.cpu().numpy()
    # A map may lay out its rows as it likes; a file has them one after the other.
    return {name: np.ascontiguousarray(values) for name, values in columns.items()}


@dataclass(frozen=True)
class Store:
    """A zarr store of ``rows`` rows in chunks of ``chunk_rows``."""

    path: Path
    rows: int
    chunk_rows: int

    def create(self, like: dict[str, Array], *, row: str, attributes: dict[str, Any]) -> None:
        """Lay out the columns of ``like``; a store that is there already is left as it is."""
        if (self.path / "zarr.json").is_file():
            return
        zarr = library("zarr", "zarr")
        with writing(self.path):
            shutil.rmtree(self.path, ignore_errors=True)  # a kill came before its last file
            temporary = temporary_for(self.path)
            group = zarr.open_group(temporary, mode="w", zarr_format=3, attributes=attributes)
            for name, values in like.items():
                group.create_array(
                    name,
                    shape=(self.rows, *values.shape[1:]),
                    chunks=(self.chunk_rows, *values.shape[1:]),
                    dtype=values.dtype,
                    fill_value=np.nan if values.dtype.kind == "f" else -1,
                    compressors=[zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()],
                    dimension_names=_dimensions(name, row, values.ndim),
                    attributes=_attributes(name),
                )
            os.replace(temporary, self.path)

    def write(self, start: int, columns: dict[str, Array]) -> None:
        """Keep the rows from ``start``, which begin a chunk and are all of it."""
        stop = min(start + self.chunk_rows, self.rows)
        # Else a chunk of equal values is not written, and reads as one that was lost.
        whole = library("zarr", "zarr").config.set({"array.write_empty_chunks": True})
        with writing(self.path), whole:
            for name, array in self._open("r+").arrays():
                array[start:stop] = columns.get(name, np.nan)
                sync(self._chunk(name, start, array.ndim))

    @property
    def begun(self) -> bool:
        """Whether any chunk is there."""
        return (self.path / "x" / "c").is_dir()

    def holds(self, start: int) -> bool:
        """Whether the chunk is there in every column, with the right checksum."""
        try:
            group = self._open("r")
            for name, array in group.arrays():
                if not self._chunk(name, start, array.ndim).is_file():
                    return False
                array[start : start + self.chunk_rows]
        except Exception:  # whatever zarr makes of damaged bytes: they are written again
            return False
        return True

    def columns(self) -> dict[str, Rows]:
        """What is in it."""
        arrays = dict(self._open("r").arrays())
        return {name: Rows(self.path, arrays[name], "result") for name in COLUMNS if name in arrays}

    def attributes(self) -> dict[str, Any]:
        """Of the store as a whole."""
        return dict(self._open("r").attrs)

    def publish(self, result: Path) -> None:
        """Give the store its name, or make a file of another kind from it; whole or not at all."""
        if result.suffix.lower() == ".zarr":
            self._put(result)
            return
        with replacing(result) as temporary:
            _CONVERT[result.suffix.lower()](self, temporary)

    def _put(self, result: Path) -> None:
        with writing(result), warnings.catch_warnings():
            for litter in self.path.rglob("*.partial"):
                litter.unlink(missing_ok=True)
            # Without it xarray warns; zarr warns that other libraries may not know it.
            warnings.simplefilter("ignore")
            library("zarr", "zarr").consolidate_metadata(self.path)
            if result.exists():
                aside = temporary_for(result)
                os.replace(result, aside)
                os.replace(self.path, result)
                shutil.rmtree(aside, ignore_errors=True)
            else:
                os.replace(self.path, result)

    def _open(self, mode: str) -> Any:
        return library("zarr", "zarr").open_group(self.path, mode=mode, use_consolidated=False)

    def _chunk(self, name: str, start: int, axes: int) -> Path:
        index = str(start // self.chunk_rows)
        return self.path.joinpath(name, "c", index, *["0"] * (axes - 1))


def endings(columns: Mapping[str, Rows]) -> dict[str, Any]:
    """How many rows ended in which way, and by which rule; how many sensors were dropped."""
    found: dict[str, Any] = {}
    for name, column, kinds in (("statuses", "status", Status), ("reasons", "reason", Reason)):
        counts = np.zeros(len(kinds), dtype=np.int64)
        for piece in columns[column].pieces():
            counts += np.bincount(piece, minlength=len(kinds))
        found[name] = {kind.name: int(counts[kind]) for kind in kinds if counts[kind]}
    if "trust" in columns:
        found["flagged"] = sum(int((piece > 1).sum()) for piece in columns["trust"].pieces())
    if "dropped" in columns:
        found["dropped"] = sum(int(piece.sum()) for piece in columns["dropped"].pieces())
    return found


def notes_of(path: Path) -> dict[str, Any]:
    """What the file of a result says of itself: method, pair, observations; none of it is sure."""
    found: Any = None
    with suppress(OSError, ValueError, KeyError):
        if path.is_dir():
            found = ((read_json(path / "zarr.json") or {}).get("attributes") or {}).get(MARK)
        elif path.suffix.lower() in HDF5:
            with library("h5py", "hdf5").File(path, "r") as file:
                found = json.loads(file.attrs.get(MARK, "null"))
        elif path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                found = json.loads(str(archive[MARK])) if MARK in archive else None
    return found if isinstance(found, dict) else {}


def is_ours(path: Path) -> bool:
    """Whether a folder is a store that this library wrote."""
    found = read_json(path / "zarr.json") or {}
    return MARK in (found.get("attributes") or {})


def _dimensions(name: str, row: str, axes: int) -> tuple[str, ...]:
    within = ["evaluation"] if name == "cost" else [f"x_{axis}" for axis in range(axes - 1)]
    return (row, *within)


def _attributes(name: str) -> dict[str, Any]:
    """Words, and for codes what they mean, as the CF conventions have it."""
    about: dict[str, Any] = {"long_name": _WORDS[name]}
    if name in ("status", "reason"):
        codes = Status if name == "status" else Reason
        about |= {
            "flag_values": [int(code) for code in codes],
            "flag_meanings": " ".join(code.name for code in codes),
        }
    if name == "cost":
        about["evaluations"] = [entry.name for entry in fields(Cost)]
    return about


def _npy(store: Store, path: Path) -> None:
    with open(path, "wb") as file:
        write_npy(file, store.columns()["x"])


def _npz(store: Store, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, rows in store.columns().items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_npy(member, rows)
        with archive.open(f"{MARK}.npy", "w") as member:
            np.lib.format.write_array(member, np.array(json.dumps(store.attributes().get(MARK))))


def _hdf5(store: Store, path: Path) -> None:
    h5py = library("h5py", "hdf5")
    with _Disk(path, "w+") as disk:
        with h5py.File(disk, "w") as target:
            target.attrs[MARK] = json.dumps(store.attributes().get(MARK))
            for name, rows in store.columns().items():
                table, done = target.create_dataset(name, rows.shape, dtype=rows.dtype), 0
                table.attrs.update(_attributes(name))
                for piece in rows.pieces():
                    table[done : done + len(piece)] = piece
                    done += len(piece)
                    disk.check()
        disk.check()


class _Disk(io.FileIO):
    """A file that HDF5 writes to and that never fails in its eyes.

    HDF5 crashes when a write fails while it closes a file; what the system said is kept here and
    raised afterwards, when the library is out of the way.
    """

    error: OSError | None = None

    def check(self) -> None:
        """Raise what a write has met."""
        if self.error is not None:
            raise self.error

    def write(self, content: Any) -> int:
        """What the system refuses is lost, and known."""
        view = memoryview(content).cast("B")
        while view and self.error is None:
            try:
                view = view[super().write(view) :]
            except OSError as error:
                self.error = error
        return memoryview(content).nbytes

    def readinto(self, buffer: Any) -> int:
        """Beyond the end there are zeros."""
        view = memoryview(buffer).cast("B")
        count = super().readinto(view)
        view[count:] = bytes(len(view) - count)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """What the system refuses is known."""
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0


_CONVERT = {".npy": _npy, ".npz": _npz, ".h5": _hdf5, ".hdf5": _hdf5}
