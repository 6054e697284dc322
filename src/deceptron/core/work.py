"""One idea of parallel work: jobs that can be repeated, and an engine that runs them.

The function is importable and writes its result where it belongs, whole or not at all, so that a
job may be run twice without harm: a worker that dies costs time, never a result. Engines are this
process, ``LocalProcesses``, ``Ray``, and whatever has ``submit`` as ``concurrent.futures`` has it
(process pools, ``dask.distributed``, ``mpi4py.futures``, submitit). What a job draws from torch's
global generator depends on the job alone, not on who runs it or what ran before; a process has one
such generator, so threads of a process take turns.
"""

from __future__ import annotations

import pickle
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch

from deceptron.core.checks import check_count
from deceptron.core.errors import ConfigError, WorkFailed, unknown_name
from deceptron.core.identity import digest

Job = TypeVar("Job")
Work = Callable[[Any], None]

ENGINES = ("local", "ray")
ATTEMPTS = 5  # of a job whose worker dies; one that raises is not repeated
_ONE_AT_A_TIME = threading.RLock()  # a job may run jobs of its own


@dataclass(frozen=True)
class Finished(Generic[Job]):
    """A job that is over; ``error`` if it did not do what it should."""

    job: Job
    error: Exception | None = None

    @property
    def failure(self) -> str | None:
        """The error as a sentence."""
        if self.error is None:
            return None
        if isinstance(self.error, WorkFailed):
            return str(self.error)
        return traceback.format_exception_only(self.error)[-1].strip()


@runtime_checkable
class Engine(Protocol):
    """Runs a function on jobs in any order; one failure must not end the others.

    Function and jobs can be pickled. ``words`` describe it in the record of the environment.
    """

    words: str

    def run(self, work: Callable[[Job], None], jobs: Sequence[Job]) -> Iterator[Finished[Job]]:
        """Yield each job when it is over."""


def engine(
    executor: object = None, *, workers: int | None = None, address: str | None = None
) -> AbstractContextManager[Engine]:
    """The engine that ``executor`` names or is; as a context, which ends what it has started.

    Args:
        executor: None for this process, ``"local"``, ``"ray"``, an ``Engine``, or anything with
            ``submit(function, *arguments)``.
        workers: of an engine that is named; processes here, tasks at a time on a Ray cluster.
        address: of a Ray cluster that runs already; without one, Ray is started on this machine.
    """
    named = isinstance(executor, str)
    if address is not None and executor != "ray":
        raise ConfigError(f"address={address!r} is for the engine 'ray'; got {executor!r}")
    if workers is not None:
        check_count("workers", workers)
        if not named:
            raise ConfigError(f"workers={workers} is for an engine by name; got {executor!r}")
    if named:
        if executor == "local":
            from deceptron.core.processes import LocalProcesses

            return LocalProcesses(workers)
        if executor == "ray":
            from deceptron.core.cluster import Ray

            return Ray(workers, address=address)
        raise unknown_name("engine", executor, ENGINES)
    if executor is None:
        return nullcontext(InProcess())
    if isinstance(executor, Engine):
        return nullcontext(executor)
    if callable(getattr(executor, "submit", None)):
        return nullcontext(Futures(executor))
    raise ConfigError(
        f"executor must be {', '.join(map(repr, ENGINES))}, or have submit as "
        f"concurrent.futures.Executor has; got {type(executor).__name__}"
    )


class InProcess:
    """One job after the other, here, with the threads that torch has."""

    words = "in process"

    def run(self, work: Callable[[Job], None], jobs: Sequence[Job]) -> Iterator[Finished[Job]]:
        """Yield each job when it is over."""
        for job in jobs:
            yield Finished(job, attempt(work, job, threads=None))


class Futures:
    """Whatever has ``submit``: the job is sent with the function, and comes back when done.

    What the executor itself reports (a worker lost, a task cancelled) has the job sent again. A
    ``ProcessPoolExecutor`` is of no use after that, so its jobs fail and the next run does them; of
    one that ``survives``, what was under way is done again, a job at a time: each death is of one.
    """

    survives = False

    def __init__(self, executor: Any, at_a_time: int = 64) -> None:
        self._executor, self._at_a_time = executor, at_a_time
        self.words = type(executor).__name__

    def run(self, work: Callable[[Job], None], jobs: Sequence[Job]) -> Iterator[Finished[Job]]:
        """Yield each job when it is over."""
        packed = check_sendable(work)
        waiting: deque[tuple[Job, int]] = deque((job, 1) for job in jobs)
        running: dict[Any, tuple[Job, int]] = {}
        while waiting or running:
            again = any(tries > 1 for _, tries in (*list(waiting)[:1], *running.values()))
            while waiting and len(running) < (1 if again and self.survives else self._at_a_time):
                job, tries = waiting.popleft()
                try:
                    running[self._executor.submit(attempt_there, packed, job)] = (job, tries)
                except (RuntimeError, OSError) as error:
                    yield Finished(job, WorkFailed(f"the executor takes no job: {error}"))
            for future in _first(running):
                job, tries = running.pop(future)
                try:
                    yield Finished(job, future.result())
                except (Exception, futures.CancelledError) as error:
                    words = self._lost(error)
                    if isinstance(error, futures.BrokenExecutor) and not self.survives:
                        yield Finished(job, WorkFailed(f"the executor broke: {error}"))
                    elif tries < ATTEMPTS:
                        waiting.appendleft((job, tries + 1))
                    else:
                        words = f"its worker was lost {tries} times: {words}"
                        yield Finished(job, WorkFailed(words))

    def _lost(self, error: BaseException) -> str:
        return f"{type(error).__name__}: {error}"


def attempt(work: Callable[[Job], None], job: Job, *, threads: int | None) -> Exception | None:
    """Do a job with so many threads and a seed of its own; what it raised comes back as a value."""
    with _ONE_AT_A_TIME, _threads(threads), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_of(job))
        try:
            work(job)
        except Exception as error:
            return error if threads is None else portable(error)
    return None


def attempt_there(packed: bytes, job: Any) -> Exception | None:
    """The same in another process, which is sent bytes: it would die of what it cannot make out."""
    try:
        work = unpacked(packed)
    except Exception as reason:  # what it needs is not there
        return portable(reason)
    return attempt(work, job, threads=1)


@lru_cache(maxsize=1)
def unpacked(packed: bytes) -> Any:
    """What was pickled; a process keeps it for the next job."""
    return pickle.loads(packed)


def seed_of(job: object) -> int:
    """A seed that depends on what the job says it is and on nothing else."""
    return int(digest(job)[:14], 16)


def portable(error: Exception) -> Exception:
    """The error itself if it survives the way to another process, else its words."""
    try:
        twin = pickle.loads(pickle.dumps(error))
        if type(twin) is type(error) and str(twin) == str(error):
            return error
    except Exception:  # whatever a class of the user's does when it is pickled
        pass
    return WorkFailed(traceback.format_exception_only(error)[-1].strip())


def check_sendable(work: Work) -> bytes:
    """The function pickled; a closure or a lambda in it is a mistake that is named here."""
    try:
        return pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            "work for other processes must be picklable: give functions that a module defines, "
            f"not lambdas or functions inside functions; {error}"
        ) from error


def succeed(finished: Iterable[Finished[Job]]) -> Iterator[Job]:
    """The jobs as they end; the first error is raised."""
    for entry in finished:
        if entry.error is not None:
            raise entry.error
        yield entry.job


def _first(running: dict[Any, Any]) -> list[Any]:
    """Futures that are over, at least one; those of submitit can only be asked."""
    if all(isinstance(future, futures.Future) for future in running):
        return list(futures.wait(running, return_when=futures.FIRST_COMPLETED).done)
    while True:
        if ready := [future for future in running if future.done()]:
            return ready
        time.sleep(0.2)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
