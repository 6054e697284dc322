"""Processes of this machine that do jobs; one that dies is replaced and its job done again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

import torch

from deceptron.core.checks import check_count
from deceptron.core.errors import ConfigError
from deceptron.core.work import ATTEMPTS, Futures

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Pool:
    """Processes of one thread each, started when they are needed and kept until ``close``.

    When one dies, all that were at work raise ``BrokenExecutor``, and the next call starts others.
    """

    def __init__(self, workers: int) -> None:
        self.workers = check_count("workers", workers)
        self._executor: ProcessPoolExecutor | None = None
        self._context = _Context()
        self._death = ""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a function called by the first process that is free."""
        with _one_thread_each():
            try:
                return self._started().submit(function, *arguments)
            except BrokenExecutor:
                self.death()
                return self._started().submit(function, *arguments)

    def death(self) -> str:
        """How a process has died, in words; the others end with it."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
            # The others are told to end.
            codes = {process.exitcode for process in self._context.made} - {0, -signal.SIGTERM}
            code = codes.pop() if codes else "unknown"
            self._death = f"its process died with exit code {code}"
        return self._death

    def close(self) -> None:
        """End the processes, also in the middle of a job."""
        if self._executor is not None:
            for process in self._context.made:
                process.terminate()
            self._executor.shutdown(cancel_futures=True)
            self._executor = None

    def _started(self) -> ProcessPoolExecutor:
        tries = 0
        while self._executor is None:
            self._context = _Context()
            self._executor = ProcessPoolExecutor(self.workers, self._context, _settle)
            try:
                self._executor.submit(os.getpid).result()
            except BrokenExecutor as error:
                words, tries = self.death(), tries + 1
                if tries == ATTEMPTS:
                    raise ConfigError(
                        f"workers={self.workers}: {words} as it started, {tries} times. In a "
                        "script, work must begin below `if __name__ == '__main__':`"
                    ) from error
        return self._executor

    def __getstate__(self) -> dict[str, Any]:
        return {"workers": self.workers, "_executor": None, "_context": _Context(), "_death": ""}


class _Context(SpawnContext):
    """Spawns, since thread pools of torch and JAX do not survive a fork; notes what it has made."""

    def __init__(self) -> None:
        self.made: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **settings: Any) -> SpawnProcess:  # type: ignore[override]
        """As the executor asks for one."""
        self.made.append(SpawnProcess(*arguments, **settings))
        return self.made[-1]


class LocalProcesses(Futures):
    """Processes of one thread each, which keep what they have loaded from job to job.

    A process that dies (out of memory, a crash in a library, a kill) is replaced, and its job is
    done again; a job that kills five of them fails. Use as a context: the processes live until it
    ends. Without ``workers``, as many as there are cores.
    """

    survives = True

    def __init__(self, workers: int | None = None) -> None:
        self._pool = Pool((os.cpu_count() or 1) if workers is None else workers)
        super().__init__(self._pool, self._pool.workers)
        self.words = f"{self._pool.workers} local process(es)"

    def __enter__(self) -> LocalProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def _lost(self, error: BaseException) -> str:
        return self._pool.death()


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
    """A driver that is killed takes this process with it, also in the middle of a job; Ctrl-C is
    for the driver alone.
    """
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
