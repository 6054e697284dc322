"""Train the pairs that the study compares, one after another, or several at a time.

``python -m tools.train_study_models`` is resumable: what is done is not done again, and a run that
was killed continues. Words on the command line choose the jobs whose folder contains one of them,
for example ``probes`` or ``darcy-2d-7``; ``--engine local --workers 4`` trains four at a time, of
one thread each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import deceptron as dc
from benchmarks.standard import RUNS as STANDARD
from benchmarks.standard import SEEDS
from deceptron.train import recipe
from deceptron.work import engine

MODELS = Path(__file__).parent.parent / "runs" / "models"
REDUCED = MODELS / "paper-reduced"
# What the study needs most comes first.
ORDER = (
    "allen-cahn-2d",
    "navier-stokes-2d",
    "darcy-2d",
    "advection-diffusion-2d",
    "heat-3d",
    "heat-2d",
    "heat-1d",
)
PROBE_PROBLEM, PROBE_COUNTS, SEED = "allen-cahn-2d", (1, 2, 4, 8), 7


@dataclass(frozen=True)
class Job:
    folder: Path
    train: partial[dc.Deceptron]


def jobs() -> Iterator[Job]:
    """Both branches of every problem, and the first of them with other numbers of probes."""
    for name in ORDER:
        folder = REDUCED / f"{name}-{SEED}"
        yield Job(folder, partial(dc.train, name, "paper-reduced", folder, seed=SEED))
    for count in PROBE_COUNTS:
        yield probe_job(count)
    for seed in SEEDS:
        for name in ORDER:
            folder = STANDARD / f"{name}-{seed}"
            yield Job(folder, partial(dc.train, name, "standard", folder, seed=seed, both=True))


def probe_job(count: int) -> Job:
    """Stage 3 of the reduced protocol with ``count`` probes; stages 1 and 2 are shared."""
    base = recipe(dc.problems.get(PROBE_PROBLEM), "paper-reduced")
    chosen = replace(base, name=f"{base.name}-probes-{count}", train_probes=count, both=False)
    folder = MODELS / "probes" / f"{PROBE_PROBLEM}-{SEED}-{count}"
    start = REDUCED / f"{PROBE_PROBLEM}-{SEED}"
    return Job(
        folder, partial(dc.train, PROBE_PROBLEM, chosen, folder, seed=SEED, start_from=start)
    )


def do(job: Job) -> None:
    started = time.perf_counter()
    pair = job.train()
    now, training = time.perf_counter() - started, sum(pair.provenance["seconds"].values())
    print(f"{job.folder.name}: {now:.0f} s now, {training:.0f} s of training in all", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only jobs whose folder contains one of them")
    parser.add_argument("--engine", help="local or ray; by default this process")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--address", help="of a Ray cluster that runs already")
    asked = parser.parse_args()
    words = asked.words
    chosen = [job for job in jobs() if not words or any(w in str(job.folder) for w in words)]
    if not chosen:
        sys.exit(f"no job has {' or '.join(words)} in its folder")
    # Runs that start from another come after all that do not.
    first = [job for job in chosen if "start_from" not in job.train.keywords]
    rounds = (first, [job for job in chosen if job not in first])
    failed = 0
    with engine(asked.engine, workers=asked.workers, address=asked.address) as crew:
        for finished in (entry for some in rounds for entry in crew.run(do, some)):
            if finished.failure is not None:  # for example, another process trains in this folder
                failed += 1
                place = finished.job.folder.relative_to(MODELS.parent)
                print(f"{place}: {finished.failure}", flush=True)
    if failed:
        sys.exit(f"{failed} of {len(chosen)} jobs are not done: run this again")


if __name__ == "__main__":
    main()
