"""Rows of arrays in files, read and written in pieces so that memory never holds the whole.

Observations: ``.npy``, ``.npz`` (an array named ``y``, or the only one) and, with h5py, ``.h5`` or
``.hdf5`` (a dataset named ``y``, or the only one). Results: the same kinds; ``.npy`` holds x alone.
Nothing here unpickles: arrays of Python objects are refused.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from deceptron.core.errors import ConfigError, DeceptronError, ShapeError
from deceptron.core.files import replacing

Array = npt.NDArray[Any]
SUFFIXES = (".npy", ".npz", ".h5", ".hdf5")


class Rows(Protocol):
    """What a source of rows looks like: a shape, a dtype and slices of rows."""

    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102

    @property
    def dtype(self) -> Any: ...  # noqa: D102

    def __getitem__(self, rows: slice) -> Array: ...


@contextmanager
def open_rows(path: str | os.PathLike[str], *, name: str = "y") -> Iterator[Rows]:
    """The rows stored in ``path``; ``name`` picks the array of a file that can hold several."""
    path = Path(path)
    suffix = check_suffix("observations", path)
    if not path.is_file():
        raise ConfigError(f"observations: there is no file {path}")
    with ExitStack() as stack:
        with _reading(path):
            rows: Any
            if suffix == ".npy":
                rows = np.load(path, mmap_mode="r", allow_pickle=False)
            elif suffix == ".npz":
                archive = stack.enter_context(zipfile.ZipFile(path))
                member = _pick(path, name, [n.removesuffix(".npy") for n in archive.namelist()])
                rows = _ZippedRows.open(archive, f"{member}.npy")
            else:
                h5py = _h5py()
                file = stack.enter_context(h5py.File(path, "r"))
                arrays = [key for key, item in file.items() if isinstance(item, h5py.Dataset)]
                rows = file[_pick(path, name, arrays)]
            _check_rows(path, rows)
        yield _FileRows(path, rows)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What goes wrong while reading is said of the file; what a solve raises is not."""
    try:
        yield
    except DeceptronError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError(f"observations: {path} cannot be read: {error}") from error


@dataclass(frozen=True)
class _FileRows:
    """Rows whose reading errors name the file."""

    path: Path
    rows: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.rows.shape)

    @property
    def dtype(self) -> Any:
        return self.rows.dtype

    def __getitem__(self, rows: slice) -> Array:
        with _reading(self.path):
            found: Array = np.asarray(self.rows[rows])
            return found


def write_columns(
    path: Path, shapes: dict[str, tuple[tuple[int, ...], Any]], pieces: Iterable[dict[str, Array]]
) -> None:
    """Write columns of rows, piece by piece; the file appears whole or not at all.

    ``shapes`` has the full shape and dtype of each column, ``pieces`` the rows in order; a
    ``.npz`` file takes one column at a time, so ``pieces`` must be iterable more than once.
    """
    with replacing(path) as temporary:
        if path.suffix.lower() == ".npy":
            shape, dtype = shapes["x"]
            table = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=shape)
            _fill({"x": table}, pieces)
            table.flush()
        elif path.suffix.lower() == ".npz":
            with zipfile.ZipFile(temporary, "w") as archive:
                for column, (shape, dtype) in shapes.items():
                    with archive.open(f"{column}.npy", "w", force_zip64=True) as member:
                        header = {
                            "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
                            "fortran_order": False,
                            "shape": shape,
                        }
                        np.lib.format.write_array_header_1_0(member, header)
                        for piece in pieces:
                            member.write(np.ascontiguousarray(piece[column], dtype=dtype).tobytes())
        else:
            with _h5py().File(temporary, "w") as file:
                tables = {c: file.create_dataset(c, s, dtype=d) for c, (s, d) in shapes.items()}
                _fill(tables, pieces)


def check_suffix(what: str, path: Path) -> str:
    """The file's kind, or an error that lists the kinds; HDF5 needs its library from the start."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(f"{what} must end in {', '.join(SUFFIXES)}; got {path.name!r}")
    if suffix in (".h5", ".hdf5"):
        _h5py()
    return suffix


@dataclass
class _ZippedRows:
    """A member of an .npz file, read as one stream: forward is cheap, backward starts again."""

    stream: IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    header_bytes: int

    @classmethod
    def open(cls, archive: zipfile.ZipFile, member: str) -> _ZippedRows:
        stream = archive.open(member)
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise ShapeError(f"{member} has array format {version}, which is not supported")
        shape, fortran, dtype = read(stream)
        if fortran and len(shape) > 1:
            raise ShapeError(f"{member} is stored by columns: save np.ascontiguousarray(y)")
        return cls(stream, shape, dtype, stream.tell())

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])
        size = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        self.stream.seek(self.header_bytes + start * size)
        content = self.stream.read((stop - start) * size)
        return np.frombuffer(content, self.dtype).reshape(stop - start, *self.shape[1:])


def _check_rows(path: Path, rows: Any) -> None:
    if np.dtype(rows.dtype).kind not in "fiu":
        raise ShapeError(f"observations in {path.name} must be numbers; got dtype {rows.dtype}")
    if len(rows.shape) < 2 or rows.shape[0] == 0:
        raise ShapeError(
            f"observations in {path.name} must have one or more rows; got shape {rows.shape}"
        )


def _pick(path: Path, name: str, names: list[str]) -> str:
    if name in names:
        return name
    if len(names) == 1:
        return names[0]
    raise ConfigError(f"observations: {path.name} has no array {name!r}; it holds {names}")


def _fill(tables: dict[str, Any], pieces: Iterable[dict[str, Array]]) -> None:
    done = 0
    for piece in pieces:
        count = len(piece["x"])
        for column, table in tables.items():
            table[done : done + count] = piece[column]
        done += count


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise ConfigError("HDF5 files need the extra: pip install 'deceptron[hdf5]'") from None
    return h5py
