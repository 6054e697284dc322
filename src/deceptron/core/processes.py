"""Processes of this machine that do jobs; one that dies is replaced and its job done again."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any, TypeVar

from deceptron.core.checks import check_count
from deceptron.core.errors import WorkFailed
from deceptron.core.work import ATTEMPTS, Finished, attempt, check_sendable, portable

Job = TypeVar("Job")


class LocalProcesses:
    """Processes of one thread each, which keep what they have loaded from job to job.

    A process that dies (out of memory, a crash in a library, a kill) is replaced, and its job is
    done again; a job that kills five of them fails. Use as a context: the processes live until it
    ends. Without ``workers``, as many as there are cores.
    """

    def __init__(self, workers: int | None = None) -> None:
        count = (os.cpu_count() or 1) if workers is None else workers
        self._count = check_count("workers", count)
        self._workers: list[_Worker] = []
        self.words = f"{count} local process(es)"

    def __enter__(self) -> LocalProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers.clear()

    def run(self, work: Callable[[Job], None], jobs: Sequence[Job]) -> Iterator[Finished[Job]]:
        """Yield each job when it is over."""
        packed, workers = check_sendable(work), self._workers
        waiting = deque((job, 1) for job in jobs)
        while waiting or any(worker.busy for worker in workers):
            busy = sum(worker.busy for worker in workers)
            while len(workers) < min(self._count, busy + len(waiting)):
                workers.append(_Worker())
            for worker in workers:
                if waiting and not worker.busy:
                    worker.give(packed, *waiting.popleft())
            ready = wait([worker.pipe for worker in workers if worker.busy])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                job, tries = worker.job, worker.tries
                try:
                    yield Finished(job, worker.take())
                except _Died as death:
                    workers.remove(worker)
                    if tries < ATTEMPTS:
                        waiting.append((job, tries + 1))
                    else:
                        yield Finished(job, WorkFailed(f"{death}, {tries} times"))


class _Died(Exception):
    """In words, how the process of a job ended."""


class _Worker:
    """A process, the pipe to it, and the job it has."""

    def __init__(self) -> None:
        # Spawned, not forked: torch's thread pools do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.busy = False
        self.job: Any = None
        self.tries = 0
        self._knows: bytes | None = None

    def give(self, work: bytes, job: Any, tries: int) -> None:
        self.busy, self.job, self.tries = True, job, tries
        with suppress(OSError):  # a process that has died is noticed when it is asked for a result
            self.pipe.send((None if work == self._knows else work, job))
        self._knows = work

    def take(self) -> Exception | None:
        self.busy = False
        try:
            error: Exception | None = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            death = _Died(f"its process died with exit code {self._process.exitcode}")
            self.stop()
            raise death from None
        return error

    def stop(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.join()
        self._process.close()


def _serve(pipe: Any) -> None:
    """Work until the pipe closes."""
    follow_parent()
    work: Any = None
    with suppress(EOFError, OSError):
        while True:
            packed, job = pipe.recv()
            try:
                work = work if packed is None else pickle.loads(packed)
                error = attempt(work, job, threads=1)
            except Exception as reason:  # what it needs is not there: it cannot be unpickled
                error = portable(reason)
            pipe.send(error)


def follow_parent() -> None:
    """A driver that is killed takes this process with it, also in the middle of a job; Ctrl-C is
    for the driver alone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
