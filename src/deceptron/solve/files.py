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
import shutil
import zipfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from deceptron.core.errors import ConfigError, DeceptronError, ShapeError
from deceptron.core.files import as_path, cannot_write, replacing
from deceptron.solve.text import read_table

Array = npt.NDArray[Any]
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
        suffix = check_suffix("observations", self.path)
        if not (self.path.is_dir() if suffix == ".zarr" else self.path.is_file()):
            raise ConfigError(f"observations: there is no file {self.path}")
        with ExitStack() as stack:
            with _reading(self.path):
                rows = _OPEN[suffix](self, stack)
                _check_rows(self.path, rows)
            yield rows

    def unpacked(self, folder: Path) -> Source:
        """One whose rows can be read in any order: a compressed member, or what was written in
        words, is laid out in ``folder``.

        Every worker would have to read it up to its rows otherwise.
        """
        suffix = self.path.suffix.lower()
        if suffix not in (".npz", ".csv"):
            return self
        plain = replace(self, path=folder / "observations.npy")
        if suffix == ".csv":
            with _reading(self.path):
                table = read_table(self.path)
            with replacing(plain.path) as temporary, open(temporary, "wb") as target:
                np.save(target, table)
            return plain
        with ExitStack() as stack, _reading(self.path):
            archive = stack.enter_context(zipfile.ZipFile(self.path))
            member = _member(self, archive)
            if member.compress_type == zipfile.ZIP_STORED:
                return self
            content = stack.enter_context(archive.open(member))
            shape, dtype, offset = _npy_header(content)
            size = offset + math.prod(shape) * dtype.itemsize
            if not plain.path.is_file() or plain.path.stat().st_size != size:
                if shutil.disk_usage(folder).free < size:
                    raise cannot_write(plain.path, f"it needs {size / 2**30:.1f} GiB")
                content.seek(0)
                with replacing(plain.path) as temporary, open(temporary, "wb") as target:
                    shutil.copyfileobj(content, target, _PIECE)
        return plain


@dataclass(frozen=True)
class Rows:
    """An open array of rows; a slice is read when it is asked for."""

    path: Path
    array: Any
    row: str = "row"  # what its first dimension is called
    what: str = "observations"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> Any:
        """Of the numbers."""
        return self.array.dtype

    def __getitem__(self, rows: slice) -> Array:
        with _reading(self.path, self.what):
            found: Array = np.asarray(self.array[rows])
            return found


def check_suffix(what: str, path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> str:
    """The file's kind, or an error that lists the kinds; libraries are needed from the start."""
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise ConfigError(f"{what} must end in {', '.join(suffixes)}; got {path.name!r}")
    if suffix in HDF5:
        library("h5py", "hdf5")
    if suffix in (".zarr", ".nc"):
        library("zarr" if suffix == ".zarr" else "xarray", "zarr")
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
    suffix = check_suffix(what, path, (".zarr", ".npz", *HDF5))
    if not (path.is_dir() if suffix == ".zarr" else path.is_file()):
        raise ConfigError(f"{what}: there is no file {path}")
    with ExitStack() as stack:
        with _reading(path, what):
            there = [name for name in names if name in _names(path, suffix)]
            found = {name: _OPEN[suffix](Source(path, name), stack) for name in there}
        yield {name: replace(rows, what=what) for name, rows in found.items()}


def _names(path: Path, suffix: str) -> list[str]:
    if suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    if suffix in HDF5:
        with library("h5py", "hdf5").File(path, "r") as file:
            return list(file)
    return list(library("zarr", "zarr").open_group(path, mode="r").array_keys())


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


def _npy(source: Source, stack: ExitStack) -> Rows:
    with open(source.path, "rb") as file:
        shape, dtype, offset = _npy_header(file)
    return _mapped(source.path, shape, dtype, offset, source.path.stat().st_size)


def _npz(source: Source, stack: ExitStack) -> Rows:
    archive = stack.enter_context(zipfile.ZipFile(source.path))
    member = _member(source, archive)
    content = stack.enter_context(archive.open(member))
    shape, dtype, offset = _npy_header(content)
    if member.file_size != offset + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{member.filename} is not as long as its shape {shape} says")
    if member.compress_type == zipfile.ZIP_STORED:
        # The local header has its own name and extra field, not those of the directory.
        with open(source.path, "rb") as file:
            file.seek(member.header_offset)
            local = file.read(30)
        lengths = (int.from_bytes(local[at : at + 2], "little") for at in (26, 28))
        start = member.header_offset + 30 + sum(lengths)
        return _mapped(source.path, shape, dtype, start + offset, start + member.file_size)
    return Rows(source.path, _Unpacking(content, shape, dtype, offset))


def _member(source: Source, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
    return members[_pick(source, list(members))]


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
    """Shape, dtype and length of an array's header, from a stream that has nothing else before."""
    start = file.read(8)
    wide = {1: 2, 2: 4, 3: 4}.get(start[6] if len(start) == 8 else 0)
    if start[:6] != np.lib.format.MAGIC_PREFIX or wide is None:
        raise ValueError("it does not start like an array of numpy")
    length = file.read(wide)
    size = int.from_bytes(length, "little")
    if size > _HEADER:
        raise ValueError(f"its header must be at most {_HEADER} bytes; it claims {size}")
    header = start + length + file.read(size)
    # Version 3 differs from 2 in the encoding of names of fields, which numbers do not have.
    read = np.lib.format.read_array_header_1_0 if wide == 2 else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(io.BytesIO(header[8:]))
    if any(not 0 <= extent < 2**62 for extent in shape):
        raise ValueError(f"its shape {shape} is impossible")
    if dtype.hasobject:
        raise ConfigError("observations: Python objects are not loaded; save numbers")
    if fortran and len(shape) > 1:
        raise ShapeError("observations are stored by columns: save np.ascontiguousarray(y)")
    return tuple(shape), dtype, len(header)


def _mapped(path: Path, shape: tuple[int, ...], dtype: Any, offset: int, end: int) -> Rows:
    """Beyond the end of a mapped file lies not an error but the death of the process."""
    wanted = offset + math.prod(shape) * dtype.itemsize
    if wanted > min(end, path.stat().st_size):
        raise ValueError(f"shape {shape} needs {wanted} bytes, and the file has {end}")
    if 0 in shape:
        return Rows(path, np.empty(shape, dtype))
    return Rows(path, np.memmap(path, dtype, mode="r", offset=offset, shape=shape))


def _csv(source: Source, stack: ExitStack) -> Rows:
    if source.path.stat().st_size > _LARGEST:
        raise ConfigError(
            f"observations: {source.path.name} must be at most 1 GiB of text: save it as .npy"
        )
    return Rows(source.path, read_table(source.path))


def _hdf5(source: Source, stack: ExitStack) -> Rows:
    found = _dataset(source, stack)
    missing = [key for key in _MISSING & set(found.attrs) if not np.isnan(found.attrs[key]).all()]
    if missing or _PACKED & set(found.attrs):
        how = ", ".join(sorted({*missing, *(_PACKED & set(found.attrs))}))
        raise ConfigError(
            f"observations: {found.name} in {source.path.name} is packed ({how}): save the numbers "
            "themselves, NaN where one is missing"
        )
    return Rows(source.path, found)


def _dataset(source: Source, stack: ExitStack) -> Any:
    h5py = library("h5py", "hdf5")
    file = stack.enter_context(h5py.File(source.path, "r"))
    links = {key: file.get(key, getlink=True) for key in file}
    ours = {key for key, link in links.items() if isinstance(link, h5py.HardLink)}
    if source.array in links and source.array not in ours:
        raise ConfigError(f"observations: {source.array} in {source.path.name} is a link; save it")
    arrays = [key for key in sorted(ours) if isinstance(file[key], h5py.Dataset)]
    found = file[_pick(source, arrays)]
    if found.is_virtual or found.external:
        raise ConfigError(
            f"observations: {found.name} in {source.path.name} must hold its numbers itself; they "
            "lie in other files"
        )
    if found.shape is None:
        raise ConfigError(f"observations: {found.name} in {source.path.name} is empty")
    _check_chunk(found.chunks, found.dtype)
    return found


def _zarr(source: Source, stack: ExitStack) -> Rows:
    zarr = library("zarr", "zarr")
    # Of the store and of the arrays in it; further down there are only chunks.
    notes = (f"{below}{name}" for below in ("", "*/") for name in _ZARR_NOTES)
    for note in (path for pattern in notes for path in source.path.glob(pattern)):
        if note.stat().st_size > _LARGEST_NOTE:
            raise ConfigError(f"observations: {note} must be at most 16 MiB")
        if "pickle" in json.dumps(json.loads(note.read_text())):
            raise ConfigError(f"observations: {source.path.name} holds pickles: save numbers")
    found = zarr.open(source.path, mode="r")
    alone = isinstance(found, zarr.Array)
    if not alone:
        found = found[_pick(source, sorted(found.array_keys()))]
    _check_chunk(found.chunks, found.dtype)
    names = getattr(found.metadata, "dimension_names", None) or found.attrs.get("_ARRAY_DIMENSIONS")
    # In version 2, what xarray wrote has its mark for missing numbers in the notes of zarr.
    by_xarray = not alone and "_ARRAY_DIMENSIONS" in found.attrs
    if by_xarray or (_PACKED | _MISSING) & set(found.attrs):
        return _xarray(source, stack)
    return Rows(source.path, found, str(names[0]) if names and names[0] else "row")


def _xarray(source: Source, stack: ExitStack) -> Rows:
    xarray = library("xarray", "zarr")
    if source.path.is_file():
        with open(source.path, "rb") as file:
            if file.read(8) == b"\x89HDF\r\n\x1a\n":
                _dataset(source, stack)
    how = {"engine": "zarr", "consolidated": False} if source.path.is_dir() else {}
    data = stack.enter_context(xarray.open_dataset(source.path, cache=False, **how))
    found = data[_pick(source, list(map(str, data.data_vars)))]
    return Rows(source.path, found, str(found.dims[0]) if found.dims else "row")


_OPEN = {
    ".npy": _npy,
    ".npz": _npz,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".zarr": _zarr,
    ".nc": _xarray,
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
