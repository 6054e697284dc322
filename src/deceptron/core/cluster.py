"""Ray as an engine: on this machine, or on the cluster that answers at an address."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from deceptron.core.errors import ConfigError, WorkFailed
from deceptron.core.work import ATTEMPTS, Finished, attempt, check_sendable

Job = TypeVar("Job")
_STORE_BYTES = 128 * 2**20  # nothing travels but the pair and the jobs


class Ray:
    """Tasks of one thread and one CPU each; a task whose process or node dies is done again.

    ``workers`` are the CPUs of a Ray that is started here, or the tasks at a time on a cluster. A
    Ray that the program has started itself is used as it is, and left running.
    """

    def __init__(self, workers: int | None = None, *, address: str | None = None) -> None:
        self._workers, self._address, self._ours = workers, address, False
        self._local = address is None or address.startswith(("127.", "localhost:"))
        self._ray = _ray(self._local, starts=address is None)
        self.words = "Ray" if address is None else "a Ray cluster"

    def __enter__(self) -> Ray:
        if not self._ray.is_initialized():
            self._ours = True
            settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
            if self._local:
                settings["_node_ip_address"] = "127.0.0.1"
            if self._address is None:
                settings |= {
                    "num_cpus": self._workers,
                    "include_dashboard": False,
                    "object_store_memory": _STORE_BYTES,
                }
            try:
                self._ray.init(self._address, **settings)
            except (ConnectionError, ValueError, RuntimeError, OSError) as error:
                raise ConfigError(
                    f"address={self._address!r}: Ray does not answer: {error}"
                ) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            self._ours = False
            self._ray.shutdown()

    def run(self, work: Callable[[Job], None], jobs: Sequence[Job]) -> Iterator[Finished[Job]]:
        """Yield each job when it is over."""
        ray = self._ray
        check_sendable(work)
        task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(attempt)
        shared, waiting = ray.put(work), deque(jobs)
        running: dict[Any, Job] = {}
        while waiting or running:
            while waiting and len(running) < self._at_a_time():
                job = waiting.popleft()
                running[task.remote(shared, job, threads=1)] = job
            ready, _ = ray.wait(list(running), num_returns=1)
            for reference in ready:
                job = running.pop(reference)
                try:
                    yield Finished(job, ray.get(reference))
                except ray.exceptions.RayError as error:
                    words = str(error).splitlines()[0]
                    yield Finished(
                        job, WorkFailed(f"its worker was lost {ATTEMPTS} times: {words}")
                    )

    def _at_a_time(self) -> int:
        """So many that no CPU waits for the driver; a cluster may have grown since the last job."""
        ready = 2 * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        return ready if self._workers is None or self._address is None else self._workers


def _ray(local: bool, *, starts: bool) -> Any:
    if starts:
        # Else its workers run only while nobody else wants the processor: beside one other program
        # they took nine times as long to start.
        os.environ.setdefault("RAY_worker_niceness", "0")
    if local:
        # Else Ray takes 127.0.0.1 for an address that other machines reach, and listens there.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError("engine 'ray' needs the extra: pip install 'deceptron[ray]'") from None
    return ray
