"""Who calls a simulator: this thread, other processes or other threads, one failure a row.

An engine runs a function on rows and gives back an array of rows, or for each row its result or the
words that say why it has none. The function gets copies: it may write to them.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from deceptron.core.arrays import real_array
from deceptron.core.checks import check_count
from deceptron.core.errors import ConfigError, SimulatorError, in_words
from deceptron.core.processes import Pool
from deceptron.core.work import unpacked

Array: TypeAlias = npt.NDArray[Any]
Function: TypeAlias = Callable[..., Any]
# One row, or why there is none.
Answer: TypeAlias = "Array | str"
Answers: TypeAlias = "Array | list[Answer]"

# Pieces for each process where rows are called one by one: rows may take unequal time.
PIECES = 4
# Seconds that may be waited; more is too much for the system's own clocks.
LONGEST = 1e9


class Engine(ABC):
    """Runs a function on rows."""

    @abstractmethod
    def run(self, function: Function, *arrays: Array) -> Answers:
        """Rows of results; ``arrays`` have the same number of rows."""

    def close(self) -> None:  # noqa: B027
        """Give up threads and processes, if there are any."""


class Inline(Engine):
    """In this thread: one call for all rows, or with ``batched=False`` one for each."""

    def __init__(self, *, batched: bool) -> None:
        self._batched = batched

    def run(self, function: Function, *arrays: Array) -> Answers:
        """Rows of results."""
        return run_here(function, self._batched, *arrays)


class Whole(Engine):
    """One call for all rows, of a function that neither writes to its input nor fails by row."""

    def run(self, function: Function, *arrays: Array) -> Answers:
        """Rows of results."""
        try:
            found: Array = function(*arrays)
            return found
        except Exception as error:
            raise SimulatorError(f"the simulator fails on any rows: {in_words(error)}") from error


class Threads(Engine):
    """One call a row in several threads, for work that waits: programs, servers."""

    def __init__(self, workers: int) -> None:
        self._workers = check_count("workers", workers)
        self._pool: ThreadPoolExecutor | None = None

    def run(self, function: Function, *arrays: Array) -> Answers:
        """Rows of results."""
        self._pool = self._pool or ThreadPoolExecutor(self._workers)
        return list(self._pool.map(lambda *row: _attempt(function, *row), *arrays))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}


class Processes(Engine):
    """Rows spread over processes of one thread each, which live until ``close``.

    A process that dies costs nothing but the row that killed it: what its company had not finished
    is done again, row by row.
    """

    def __init__(self, workers: int, *, batched: bool) -> None:
        self._pool, self._batched = Pool(workers), batched

    def run(self, function: Function, *arrays: Array) -> Answers:
        """Rows of results."""
        rows = len(arrays[0])
        pieces = min(rows, self._pool.workers * (1 if self._batched else PIECES))
        found = list(
            self._together(pickle.dumps(function), np.array_split(np.arange(rows), pieces), arrays)
        )
        whole = [piece for piece in found if isinstance(piece, np.ndarray)]
        if len(whole) == len(found) and len({piece.shape[1:] for piece in whole}) == 1:
            return np.concatenate(whole)
        return [answer for piece in found for answer in piece]

    def close(self) -> None:
        """End the processes."""
        self._pool.close()

    def _together(
        self, packed: bytes, parts: list[Array], arrays: tuple[Array, ...]
    ) -> Iterator[Answers]:
        futures = [self._submit(packed, part, arrays) for part in parts]
        for part, future in zip(parts, futures, strict=True):
            try:
                yield self._result(future)
            except BrokenExecutor:
                yield [self._alone(packed, row, arrays) for row in part[:, None]]

    def _alone(self, packed: bytes, row: Array, arrays: tuple[Array, ...]) -> Answer:
        try:
            (answer,) = self._result(self._submit(packed, row, arrays))
            return answer
        except BrokenExecutor:
            self._pool.death()
            return "its process died (a crash, or no memory left)"

    def _submit(self, packed: bytes, part: Array, arrays: tuple[Array, ...]) -> Future[Answers]:
        pieces = (a[part] for a in arrays)
        return self._pool.submit(_run_there, packed, self._batched, *pieces)

    def _result(self, future: Future[Answers]) -> Answers:
        try:
            return future.result()
        except (AttributeError, ImportError) as error:
            self.close()
            raise ConfigError(
                f"workers={self._pool.workers}: other processes cannot find the function "
                f"({in_words(error)}). One that was typed into a notebook or a prompt belongs into "
                "a module"
            ) from error


def _run_there(packed: bytes, batched: bool, *arrays: Array) -> Answers:
    """In another process, which is sent bytes: it would die of what it cannot make out."""
    return run_here(unpacked(packed), batched, *arrays)


def check_picklable(**functions: Function | None) -> None:
    """Other processes get a function by its name, or as a pickle."""
    for argument, function in functions.items():
        try:
            pickle.dumps(function)
        except Exception as error:
            raise ConfigError(
                f"wrap({argument}=...) must be picklable for workers > 1: a function at the top "
                f"of a module, not a lambda or a local function; {in_words(error)}"
            ) from None


def run_here(function: Function, batched: bool, *arrays: Array) -> Answers:
    """In this process; a batch that fails is called again row by row, so that only some do."""
    rows = len(arrays[0])
    if not batched:
        return [_attempt(function, *row) for row in zip(*arrays, strict=True)]
    try:
        whole = _call(function, *arrays)
        if len(whole) == rows:
            return whole
        failure = f"returned shape {whole.shape} for {rows} row(s)"
    except (Exception, SystemExit) as error:
        failure = in_words(error)
    if rows == 1:
        return [failure]
    singles = [run_here(function, True, *(a[k : k + 1] for a in arrays)) for k in range(rows)]
    return [single[0] for single in singles]


def _attempt(function: Function, *row: Array) -> Answer:
    try:
        return _call(function, *row)
    except (Exception, SystemExit) as error:
        return in_words(error)


def _call(function: Function, *arrays: Array) -> Array:
    found = function(*(np.array(a) for a in arrays))
    # A copy: the function may return a buffer that it fills again next time.
    return np.atleast_1d(real_array("what it returns", found).astype(np.float64))
