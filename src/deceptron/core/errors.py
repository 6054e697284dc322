"""The errors of the library: each names the argument, the rule and the value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class DeceptronError(Exception):
    """Base of everything this library raises on purpose."""


class ConfigError(DeceptronError, ValueError):
    """A setting is outside its range, unknown, or contradicts another one."""


class ShapeError(DeceptronError, ValueError):
    """A tensor has the wrong shape, number of rows, dtype or device."""


class CheckpointError(DeceptronError, ValueError):
    """A file is not a checkpoint of this library, is damaged, or belongs to something else."""


class FileError(CheckpointError):
    """The system refuses to write a file or a folder, or what is there is nothing to write over."""


class WorkFailed(DeceptronError, RuntimeError):
    """A job failed where it was run: in another process, or on another machine."""


class SolveFailed(DeceptronError, RuntimeError):
    """Raised by ``Solution.raise_if_failed``; never by a solve itself."""


class SimulatorError(DeceptronError, RuntimeError):
    """A simulator raises, cannot be reached, or has not answered for any row so far."""


@contextmanager
def calling(what: str) -> Iterator[None]:
    """What a user's function raises is said of it; where, its own traceback tells."""
    try:
        yield
    except DeceptronError:
        raise
    except (Exception, SystemExit) as error:
        raise SimulatorError(f"{what} raises {in_words(error)}") from error


def in_words(error: BaseException) -> str:
    """The kind of an error and its first line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def unknown_name(kind: str, name: object, known: Iterable[str]) -> ConfigError:
    """Build the error for a name that is not in a registry, with the nearest one that is."""
    known = list(known)
    near = get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ConfigError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(known)}")
