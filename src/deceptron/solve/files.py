"""Rows of observations in files, read in pieces so that memory never holds the whole.

``.npy``; ``.npz``, ``.h5`` or ``.hdf5`` (h5py), ``.zarr`` (zarr) and ``.nc`` (xarray) with an array
named ``y`` or only one; ``.csv``, which is read whole once. A file is not believed: nothing here
unpickles, follows a link to another file, or takes memory because a header says so.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from deceptron.core.errors import ConfigError, DeceptronError, ShapeError
from deceptron.core.files import as_path, replacing
from deceptron.solve.text import read_table

Array = npt.NDArray[Any]
# The names of the arrays of a file, and what opens one of them.
Found: TypeAlias = tuple[list[str], Callable[[str], Any]]
SUFFIXES = (".npy", ".npz", ".h5", ".hdf5", ".zarr", ".nc", ".csv")
HDF5 = (".h5", ".hdf5")
_HEADER = 10_000  # bytes; numpy's own limit, which it checks after it has read them
_PIECE = 2**24
# Attributes by which xarray unpacks numbers, and which of them mark numbers that are missing.
_PACKED, _MISSING = {"scale_factor", "add_offset"}, {"_FillValue", "missing_value"}
_ZARR_NOTES = ("zarr.json", ".zarray", ".zmetadata")
_LARGEST_NOTE = 2**24
_LARGEST = 2**30  # bytes of one row, or of one stored chunk, which is decoded whole


@dataclass(frozen=True)
class Source:
    """Where observations are: a file and the name of an array in it."""

    path: Path
    array: str

    @contextmanager
    def opened(self) -> Iterator[Rows]:
        """The rows; errors of the file name it."""
        with _opened(self.path, "observations", SUFFIXES) as (names, look):
            with _reading(self.path):
                rows = Rows(self.path, look(_pick(self, sorted(names))))
                _check_rows(self.path, rows)
            yield rows

    def unpacked(self, folder: Path) -> Source:
        """One whose rows can be read in any order: a compressed member, or what was written in
        words, is laid out in ``folder``.

        Every worker would have to read it up to its rows otherwise.
        """
        if self.path.suffix.lower() not in (".npz", ".csv"):
            return self
        plain = replace(self, path=folder / "observations.npy")
        with self.opened() as rows:
            if isinstance(rows.array, np.memmap):
                return self
            if not plain.path.is_file():
                with replacing(plain.path) as temporary, open(temporary, "wb") as target:
                    write_npy(target, rows)
        return plain


@dataclass(frozen=True)
class Rows:
    """An open array of rows; a slice is read when it is asked for."""

    path: Path
    array: Any
    what: str = "observations"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> Any:
        """Of the numbers."""
        return self.array.dtype

    @property
    def row(self) -> str:
        """What the first dimension is called, by xarray or in a store."""
        names = getattr(self.array, "dims", None)
        if hasattr(self.array, "metadata"):
            noted = self.array.attrs.get("_ARRAY_DIMENSIONS")
            names = getattr(self.array.metadata, "dimension_names", None) or noted
        return str(names[0]) if names and names[0] else "row"

    def __getitem__(self, rows: slice) -> Array:
        with _reading(self.path, self.what):
            found: Array = np.asarray(self.array[rows])
            return found

    def pieces(self) -> Iterator[Array]:
        """All rows in order, some at a time; what is stored together is read together."""
        whole = (getattr(self.array, "chunks", None) or (1,))[0]
        room = _PIECE // max(1, math.prod(self.shape[1:]) * self.dtype.itemsize)
        step = max(1, room // whole) * whole
        for start in range(0, self.shape[0], step):
            yield self[start : start + step]


def check_suffix(what: str, path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> str:
    """The file's kind, or an error that lists the kinds; libraries are needed from the start."""
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise ConfigError(f"{what} must end in {', '.join(suffixes)}; got {path.name!r}")
    if suffix in HDF5:
        library("h5py", "hdf5")
    if suffix == ".nc":
        library("xarray", "zarr")
    return suffix


def library(name: str, extra: str) -> Any:
    """An optional library, or how to get it."""
    try:
        return __import__(name)
    except ImportError:
        raise ConfigError(f"{name} is needed: pip install 'deceptron[{extra}]'") from None


@contextmanager
def arrays(path: Path, names: Collection[str], *, what: str) -> Iterator[dict[str, Rows]]:
    """Those arrays of a file that have one of the names; ``what`` is the file in errors."""
    with _opened(path, what, (".zarr", ".npz", *HDF5)) as (there, look):
        with _reading(path, what):
            found = {name: Rows(path, look(name), what) for name in names if name in there}
        yield found


def write_npy(file: IO[bytes], rows: Rows) -> None:
    """An array of NumPy's, a piece of it at a time."""
    descr = np.lib.format.dtype_to_descr(rows.dtype)
    header = {"descr": descr, "fortran_order": False, "shape": rows.shape}
    np.lib.format.write_array_header_1_0(file, header)
    for piece in rows.pieces():
        file.write(np.ascontiguousarray(piece).tobytes())


@contextmanager
def _opened(path: Path, what: str, suffixes: tuple[str, ...]) -> Iterator[Found]:
    suffix = check_suffix(what, path, suffixes)
    if not (path.is_dir() if suffix == ".zarr" else path.is_file()):
        raise ConfigError(f"{what}: there is no file {path}")
    with ExitStack() as stack:
        with _reading(path, what):
            found = _OPEN[suffix](path, stack)
        yield found


@contextmanager
def _reading(path: Path, what: str = "observations") -> Iterator[None]:
    """What goes wrong while reading is said of the file; what a solve raises is not."""
    try:
        yield
    except DeceptronError:
        raise
    except Exception as error:  # each of the libraries has a family of errors of its own
        words = " ".join(str(error).split())[:300] or type(error).__name__
        raise ConfigError(f"{what}: {path} cannot be read: {words}") from error


def _npy(path: Path, stack: ExitStack) -> Found:
    with open(path, "rb") as file:
        shape, dtype, offset = _npy_header(file)
    # NumPy refuses to map a file that is shorter than that.
    return [path.stem], lambda name: np.memmap(path, dtype, "r", offset, shape)


def _npz(path: Path, stack: ExitStack) -> Found:
    archive = stack.enter_context(zipfile.ZipFile(path))
    members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}

    def member(name: str) -> Any:
        entry = members[name]
        content = stack.enter_context(archive.open(entry))
        shape, dtype, offset = _npy_header(content)
        if entry.file_size != offset + math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{entry.filename} is not as long as its shape {shape} says")
        if entry.compress_type != zipfile.ZIP_STORED:
            return _Unpacking(content, shape, dtype, offset)
        # The local header has its own name and extra field, not those of the directory.
        lengths = np.fromfile(path, "<u2", count=2, offset=entry.header_offset + 26)
        start = entry.header_offset + 30 + int(lengths.sum()) + offset
        return np.memmap(path, dtype, "r", start, shape)

    return list(members), member


@dataclass
class _Unpacking:
    """A compressed member, read as one stream: forward is cheap, backward starts again."""

    stream: IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    header_bytes: int

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])
        size = math.prod(self.shape[1:]) * self.dtype.itemsize
        self.stream.seek(self.header_bytes + start * size)
        content = self.stream.read((stop - start) * size)
        return np.frombuffer(content, self.dtype).reshape(stop - start, *self.shape[1:])


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype and length of an array's header, of which no more is read than it may have."""
    start = io.BytesIO(file.read(_HEADER))
    version = np.lib.format.read_magic(start)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version} of numpy's format is not known")
    narrow = version == (1, 0)
    # Version 3 differs from 2 in the encoding of names of fields, which numbers do not have.
    read = np.lib.format.read_array_header_1_0 if narrow else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(start)
    if any(not 0 <= extent < 2**62 for extent in shape):
        raise ValueError(f"its shape {shape} is impossible")
    if dtype.hasobject:
        raise ValueError("Python objects are not loaded; save numbers")
    if fortran and len(shape) > 1:
        raise ShapeError("observations are stored by columns: save np.ascontiguousarray(y)")
    return tuple(shape), dtype, start.tell()


def _csv(path: Path, stack: ExitStack) -> Found:
    if path.stat().st_size > _LARGEST:
        raise ValueError("text must be at most 1 GiB: save it as .npy")
    return [path.stem], lambda name: read_table(path)


def _hdf5(path: Path, stack: ExitStack) -> Found:
    h5py = library("h5py", "hdf5")
    file = stack.enter_context(h5py.File(path, "r"))
    # What a link leads to is not looked at.
    links = {name for name in file if not isinstance(file.get(name, getlink=True), h5py.HardLink)}

    def dataset(name: str) -> Any:
        if name in links:
            raise ValueError(f"{name} is a link; save it")
        found, noted = file[name], file[name].attrs
        if found.is_virtual or found.external:
            raise ValueError(f"{name} must hold its numbers itself; they lie in other files")
        if found.shape is None:
            raise ValueError(f"{name} is empty")
        _check_chunk(found.chunks, found.dtype)
        packed = _PACKED & set(noted)
        packed |= {key for key in _MISSING & set(noted) if not np.isnan(noted[key]).all()}
        if packed and path.suffix.lower() in HDF5:
            raise ValueError(
                f"{name} in {path.name} is packed ({', '.join(sorted(packed))}): save the numbers "
                "themselves, NaN where one is missing"
            )
        return found

    return [name for name in file if name in links or isinstance(file[name], h5py.Dataset)], dataset


def _zarr(path: Path, stack: ExitStack) -> Found:
    zarr = library("zarr", "zarr")
    # Of the store and of the arrays in it; further down there are only chunks.
    notes = (f"{below}{name}" for below in ("", "*/") for name in _ZARR_NOTES)
    for note in (note for pattern in notes for note in path.glob(pattern)):
        if note.stat().st_size > _LARGEST_NOTE:
            raise ValueError(f"{note.name} must be at most 16 MiB")
        if "pickle" in json.dumps(json.loads(note.read_text())):
            raise ValueError("it holds pickles: save numbers")
    group = zarr.open(path, mode="r")
    alone = isinstance(group, zarr.Array)

    def array(name: str) -> Any:
        found = group if alone else group[name]
        _check_chunk(found.chunks, found.dtype)
        # In version 2, what xarray wrote has its mark for missing numbers in the notes of zarr.
        by_xarray = not alone and "_ARRAY_DIMENSIONS" in found.attrs
        if by_xarray or (_PACKED | _MISSING) & set(found.attrs):
            return _xarray(path, stack, engine="zarr", consolidated=False)[1](name)
        return found

    return [path.stem] if alone else list(group.array_keys()), array


def _netcdf(path: Path, stack: ExitStack) -> Found:
    with open(path, "rb") as file:
        nested = file.read(8) == b"\x89HDF\r\n\x1a\n"
    if nested:
        names, dataset = _hdf5(path, stack)
        for name in names:
            dataset(name)
    return _xarray(path, stack)


def _xarray(path: Path, stack: ExitStack, **how: Any) -> Found:
    xarray = library("xarray", "zarr")
    data = stack.enter_context(xarray.open_dataset(path, cache=False, **how))
    return list(map(str, data.data_vars)), data.__getitem__


_OPEN: dict[str, Callable[[Path, ExitStack], Found]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".zarr": _zarr,
    ".nc": _netcdf,
    ".csv": _csv,
}


def _check_rows(path: Path, rows: Rows) -> None:
    if np.dtype(rows.dtype).kind not in "fiu":
        raise ShapeError(f"observations in {path.name} must be numbers; got dtype {rows.dtype}")
    if len(rows.shape) < 2 or 0 in rows.shape:
        raise ShapeError(
            f"observations in {path.name} must have one or more rows; got shape {rows.shape}"
        )
    _check_chunk(rows.shape[1:], rows.dtype)


def _check_chunk(shape: tuple[int, ...] | None, dtype: Any) -> None:
    size = math.prod(shape or ()) * np.dtype(dtype).itemsize
    if size > _LARGEST:
        raise ShapeError(
            f"observations must be stored in chunks of at most 1 GiB; got {size / 2**30:.3g} GiB"
        )


def _pick(source: Source, names: list[str]) -> str:
    if source.array in names:
        return source.array
    if len(names) == 1:
        return names[0]
    raise ConfigError(
        f"observations: {source.path.name} has no array {source.array!r}; it holds {names[:20]}: "
        "say which by array= (--array)"
    )


def source(path: str | os.PathLike[str], array: str) -> Source:
    """Observations by path; relative ones are for workers elsewhere, too."""
    if not isinstance(array, str):
        raise ConfigError(f"array must be the name of an array; got {array!r}")
    return Source(Path(os.path.abspath(as_path("observations", path))), array)
