"""Who calls a simulator: this thread, other processes or other threads, one failure a row.

An engine runs a function on rows and gives back an array of rows, or for each row its result or the
words that say why it has none. The function gets copies: it may write to them.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from deceptron.core.arrays import real_array
from deceptron.core.checks import check_count
from deceptron.core.errors import ConfigError, SimulatorError, in_words
from deceptron.core.processes import follow_parent

Array: TypeAlias = npt.NDArray[Any]
Function: TypeAlias = Callable[..., Any]
# One row, or why there is none.
Answer: TypeAlias = "Array | str"
Answers: TypeAlias = "Array | list[Answer]"

# Pieces for each process where rows are called one by one: rows may take unequal time.
PIECES = 4
# Seconds that may be waited; more is too much for the system's own clocks.
LONGEST = 1e9
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Engine(ABC):
    """Runs a function on rows."""

    _pool: Executor | None = None

    @abstractmethod
    def run(self, function: Function, *arrays: Array) -> Answers:
        """Rows of results; ``arrays`` have the same number of rows."""

    def close(self) -> None:
        """Give up threads and processes, if there are any."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}


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

    def run(self, function: Function, *arrays: Array) -> Answers:
        """Rows of results."""
        self._pool = self._pool or ThreadPoolExecutor(self._workers)
        return list(self._pool.map(lambda *row: _attempt(function, *row), *arrays))


class Processes(Engine):
    """Rows spread over processes of one thread each, which live until ``close``.

    A process that dies costs nothing but the row that killed it: what its company had not finished
    is done again, row by row.
    """

    def __init__(self, workers: int, *, batched: bool) -> None:
        self._workers, self._batched = check_count("workers", workers), batched

    def run(self, function: Function, *arrays: Array) -> Answers:
        """Rows of results."""
        rows = len(arrays[0])
        pieces = min(rows, self._workers * (1 if self._batched else PIECES))
        parts = np.array_split(np.arange(rows), pieces)
        slices = [slice(part[0], part[-1] + 1) for part in parts]
        found = list(self._together(function, slices, arrays))
        arrays_found = [piece for piece in found if isinstance(piece, np.ndarray)]
        if len(arrays_found) == len(found) and len({a.shape[1:] for a in arrays_found}) == 1:
            return np.concatenate(arrays_found)
        return [answer for piece in found for answer in piece]

    def _together(
        self, function: Function, slices: list[slice], arrays: tuple[Array, ...]
    ) -> Iterator[Answers]:
        with _one_thread_each():
            pool = self._started(function)
            futures: list[Future[Answers] | None] = []
            for part in slices:
                pieces = (a[part] for a in arrays)
                try:
                    futures.append(pool.submit(run_here, function, self._batched, *pieces))
                except BrokenExecutor:
                    futures.append(None)
        for part, future in zip(slices, futures, strict=True):
            try:
                if future is None:
                    raise BrokenExecutor
                yield future.result()
            except BrokenExecutor:
                yield [
                    self._alone(function, *(a[k : k + 1] for a in arrays))
                    for k in range(part.start, part.stop)
                ]

    def _alone(self, function: Function, *row: Array) -> Answer:
        with _one_thread_each():
            try:
                pool = self._started(function)
                (answer,) = pool.submit(run_here, function, self._batched, *row).result()
                return answer
            except BrokenExecutor:
                self.close()
                return "its process died (a crash, or no memory left)"

    def _started(self, function: Function) -> Executor:
        if self._pool is not None and not getattr(self._pool, "_broken", False):
            return self._pool
        self.close()
        pool = ProcessPoolExecutor(
            self._workers,
            # Spawned, not forked: the thread pools of torch and JAX do not survive a fork.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_settle,
        )
        try:
            pool.submit(os.getpid).result()
        except BrokenExecutor as error:
            raise SimulatorError(
                f"workers={self._workers}: the processes died as they started. In a script, work "
                "must begin below `if __name__ == '__main__':`"
            ) from error
        try:
            # As bytes, since a worker that cannot make out what it is sent dies without a word.
            pool.submit(pickle.loads, pickle.dumps(function)).result()
        except (AttributeError, ImportError) as error:
            pool.shutdown()
            raise ConfigError(
                f"workers={self._workers}: other processes cannot find the function "
                f"({in_words(error)}). One that was typed into a notebook or a prompt belongs into "
                "a module"
            ) from error
        self._pool = pool
        return pool


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


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes started within use one thread; libraries read this as they are loaded."""
    missing = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, "1"))
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def _settle() -> None:
    torch.set_num_threads(1)
    follow_parent()
