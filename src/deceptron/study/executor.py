"""Who does the work: processes of this machine, or whatever else can run a function on jobs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Generic, Protocol, TypeVar

import torch

from deceptron.core.checks import check_count

Job = TypeVar("Job")


@dataclass(frozen=True)
class Finished(Generic[Job]):
    """A job that is over; ``failure`` is a sentence if it did not do what it should."""

    job: Job
    failure: str | None = None


class Executor(Protocol):
    """Runs a function on jobs in any order; one failure must not end the others.

    The function is importable and its jobs can be pickled, so that a cluster engine can fill this.
    ``words`` describe it in the record of the environment.
    """

    words: str

    def run(self, work: Callable[[Job], None], jobs: Sequence[Job]) -> Iterator[Finished[Job]]:
        """Yield each job when it is over."""


class InProcess:
    """One job after the other, here."""

    words = "in process"

    def run(self, work: Callable[[Job], None], jobs: Sequence[Job]) -> Iterator[Finished[Job]]:
        """Yield each job when it is over."""
        for job in jobs:
            yield Finished(job, _attempt(work, job))


class LocalProcesses:
    """Processes of one thread each, which keep what they have loaded from job to job.

    A process that dies (out of memory, a crash in a library) costs the job that it had; another
    one takes its place. Use as a context: the processes live until it ends.
    """

    def __init__(self, workers: int = 2) -> None:
        self._count = check_count("workers", workers)
        self._workers: list[_Worker] = []
        self.words = f"{workers} local process(es)"

    def __enter__(self) -> LocalProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers.clear()

    def run(self, work: Callable[[Job], None], jobs: Sequence[Job]) -> Iterator[Finished[Job]]:
        """Yield each job when it is over."""
        waiting, workers = deque(jobs), self._workers
        while waiting or any(worker.busy for worker in workers):
            busy = sum(worker.busy for worker in workers)
            while len(workers) < min(self._count, busy + len(waiting)):
                workers.append(_Worker())
            for worker in workers:
                if waiting and not worker.busy:
                    worker.give(work, waiting.popleft())
            ready = wait([worker.pipe for worker in workers if worker.busy])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                job, failure = worker.job, worker.take()
                if not worker.alive:
                    workers.remove(worker)
                yield Finished(job, failure)


class _Worker:
    """A process, the pipe to it, and the job it has."""

    def __init__(self) -> None:
        # Spawned, not forked: torch's thread pools do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.busy, self.alive = False, True
        self.job: Any = None

    def give(self, work: Callable[[Any], None], job: Any) -> None:
        self.busy, self.job = True, job
        with suppress(OSError):  # a process that has died is noticed when it is asked for a result
            self.pipe.send((work, job))

    def take(self) -> str | None:
        self.busy = False
        try:
            failure: str | None = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            failure = f"its process died with exit code {self._process.exitcode}"
            self.stop()
        return failure

    def stop(self) -> None:
        self.alive = False
        self.pipe.close()
        self._process.terminate()
        self._process.join()
        self._process.close()


def _serve(pipe: Any) -> None:
    """Work until the pipe closes."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the study's own process handles Ctrl-C
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_attempt(*pipe.recv()))


def _end_with_parent() -> None:
    """A study that is killed takes its processes with it, also in the middle of a job."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _attempt(work: Callable[[Job], None], job: Job) -> str | None:
    try:
        work(job)
    except Exception as error:
        return traceback.format_exception_only(error)[-1].strip()
    return None
