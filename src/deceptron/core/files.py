"""Files that appear whole or not at all, never through a link's back or in a device's place."""

from __future__ import annotations

import json
import os
import re
import reprlib
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deceptron.core.errors import ConfigError, FileError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link that leads to itself",
}


def as_path(name: str, value: Any) -> Path:
    """What was given for a file."""
    try:
        return Path(value)
    except TypeError:
        raise ConfigError(f"{name} must be a path; got {reprlib.repr(value)}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, of the same suffix, that takes its place at the end.

    A link is followed, so that what it leads to is replaced and the link stays. If the block
    fails, what was at ``path`` stays and nothing is left behind; an error of the system becomes a
    ``FileError``. A kill can leave the temporary file, whose name starts with a dot, but never
    half a file at ``path``: ``remove_litter`` knows such names.
    """
    with writing(path):
        place = destination(path)
        temporary = temporary_for(place)
        try:
            yield temporary
            sync(temporary)
            os.replace(temporary, place)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system refuses is said of the file, in the library's words."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error.strerror or str(error)) from error


def make_folder(path: Path) -> None:
    """A folder, and those that it lies in."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def destination(path: Path) -> Path:
    """Where a file called ``path`` is to be written, links followed; only a file is replaced."""
    place = Path(os.path.realpath(path))
    try:
        kind = stat.S_IFMT(place.lstat().st_mode)
    except FileNotFoundError:
        return place
    if kind != stat.S_IFREG:
        raise cannot_write(path, f"it is {_KINDS.get(kind, 'no regular file')}")
    return place


def cannot_write(path: Path, why: str) -> FileError:
    """The error for a file that could not be written."""
    return FileError(f"cannot write {path}: {why}")


def temporary_for(path: Path) -> Path:
    """A fresh hidden name beside ``path``."""
    return path.with_name(f".{path.stem}.{secrets.token_hex(4)}.partial{path.suffix}")


def sync(path: Path) -> None:
    """Bring a file to the disk: a rename may get there before what it names."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def remove_litter(folder: Path, like: Path | None = None) -> None:
    """Remove what killed processes left half written in ``folder``, or of one file, ``like``.

    Only for somebody who holds the lock of the folder: a live process looks the same.
    """
    stem, suffix = (".*", ".*") if like is None else map(re.escape, (like.stem, like.suffix))
    name = re.compile(rf"\.{stem}\.[0-9a-f]{{8}}\.partial{suffix}", re.DOTALL)
    for litter in folder.glob(".*.partial*"):
        if not name.fullmatch(litter.name):
            continue
        if litter.is_dir() and not litter.is_symlink():
            shutil.rmtree(litter, ignore_errors=True)
        else:
            litter.unlink(missing_ok=True)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON object that people can read."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None if the file is not there or holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
