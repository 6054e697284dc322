"""Runs a study: the models first, then the cells that are not there yet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path

import torch

from deceptron import Deceptron, load, save
from deceptron.work import Engine, engine, environment
from deceptron_paper.study import data
from deceptron_paper.study.cell import Cell, ModelKey
from deceptron_paper.study.folder import FAILED, SKIPPED, StudyFolder
from deceptron_paper.study.grid import Study
from deceptron_paper.study.models import NoModel, Provider, describe
from deceptron_paper.study.solving import solve_cell

Watch = Callable[[str, int, int], object]


@dataclass(frozen=True)
class Summary:
    """What became of the planned cells; ``absent`` counts them by the reason they were left out.

    ``failed`` are those that should have been there: not the ones whose model nobody has trained.
    """

    planned: int
    done: int
    earlier: int
    absent: dict[str, int]
    failed: int


def run_study(
    study: Study,
    out: str | os.PathLike[str],
    *,
    runs: str | os.PathLike[str] = "runs",
    executor: object = None,
    workers: int | None = None,
    address: str | None = None,
    watch: Watch | None = None,
) -> Summary:
    """Fill the folder ``out`` with the records of ``study``; what it holds is not done again.

    Args:
        study: the grid.
        out: folder of the records; made if missing, continued if it holds the same study.
        runs: where pairs of earlier training runs are looked for, and trained if the study may.
        executor: who does the work: None for this process, ``"local"``, ``"ray"``, or anything with
            ``submit`` as ``concurrent.futures.Executor`` has it.
        workers: processes of an engine by name.
        address: of a Ray cluster that runs already.
        watch: called as ``watch(phase, done, total)`` whenever some models or a cell are over.
    """
    folder = StudyFolder(out)
    tell = watch or (lambda phase, done, total: None)
    cells, models = study.cells(), study.models()
    own = data.own(
        sorted({cell.problem for cell in cells}),
        sorted({cell.method for cell in cells if cell.model_key is not None}),
    )
    with ExitStack() as stack:
        crew = stack.enter_context(engine(executor, workers=workers, address=address))
        place = {**environment(), "executor": crew.words}
        stack.enter_context(folder.opened({**study.document(), **own.document()}, place))
        waiting = [cell for cell in cells if not folder.is_done(cell)]
        earlier = len(cells) - len(waiting)
        lacking = _prepare(folder, study, Path(runs), models, own, crew, tell)
        for cell in [cell for cell in waiting if cell.model_key in lacking]:
            folder.write_absent(cell, *lacking[cell.model_key])
            waiting.remove(cell)
        over = len(cells) - len(waiting)
        tell("cells", over, len(cells))
        for finished in crew.run(partial(run_cell, folder.path, own), waiting):
            if finished.failure is not None and not folder.is_done(finished.job):
                folder.write_absent(finished.job, FAILED, finished.failure)
            over += 1
            tell("cells", over, len(cells))
        absent = [folder.absent(cell) for cell in cells if not folder.is_done(cell)]
    reasons = Counter(why for _, why in absent)
    failed = sum(outcome != SKIPPED for outcome, _ in absent)
    return Summary(len(cells), len(cells) - len(absent), earlier, dict(reasons), failed)


def run_cell(path: Path, own: data.Own, cell: Cell) -> None:
    """Solve one cell and write its records."""
    own.install()
    folder, key, threads = StudyFolder(path), cell.model_key, torch.get_num_threads()
    split = data.split(cell.problem, cell.seed, cell.set, cell.instances)
    if key is None:
        fields = {name: getattr(split, name)[: cell.instances].numpy() for name in ("x", "y")}
        folder.write_cell(cell, instances=None, steps=None, fields=fields, threads=threads)
        return
    stored = folder.pair_path(key)
    # A folder may be removed and filled anew while this process lives.
    pair = _pair(stored, stored.stat().st_ino, stored.stat().st_mtime_ns)
    result = solve_cell(cell, data.problem(cell.problem), pair, split)
    folder.write_cell(
        cell,
        instances=result.instances,
        steps=result.steps,
        fields=result.fields,
        threads=threads,
        **result.facts,
    )


def prepare_models(
    path: Path, provider: Provider, own: data.Own, models: Sequence[ModelKey]
) -> None:
    """Find or train pairs of one problem and seed, copy them into the study and measure them."""
    own.install()
    folder = StudyFolder(path)
    for key in models:
        try:
            pair, ships = provider.pair(key)
            row = describe(key, pair, ships=ships)
        except NoModel as reason:
            folder.write_model(key, {"outcome": SKIPPED, "why": str(reason)})
        except Exception as error:
            words = f"its model failed: {type(error).__name__}: {error}"
            folder.write_model(key, {"outcome": FAILED, "why": words})
        else:
            save(pair, folder.pair_path(key))
            folder.write_model(key, row)


def _prepare(
    folder: StudyFolder,
    study: Study,
    runs: Path,
    models: list[ModelKey],
    own: data.Own,
    crew: Engine,
    tell: Watch,
) -> dict[ModelKey | None, tuple[str, str]]:
    """See to every model that is not ready; why some cannot be had."""
    provider = Provider(runs, study.missing_models, scratch=folder.models / "smoke")
    wanted = [key for key in models if folder.model(key) is None]
    # Models of one problem and seed share training data, and may share a training run.
    jobs = [tuple(group) for _, group in groupby(wanted, lambda key: (key.problem, key.seed))]
    over = len(models) - len(wanted)
    tell("models", over, len(models))
    for finished in crew.run(partial(prepare_models, folder.path, provider, own), jobs):
        for key in finished.job:
            if finished.failure is not None and folder.model(key) is None:
                folder.write_model(key, {"outcome": FAILED, "why": finished.failure})
        over += len(finished.job)
        tell("models", over, len(models))
    folder.write_models(models)
    return {key: folder.no_model(key) for key in models if folder.model(key) is None}


@lru_cache(maxsize=4)
def _pair(path: Path, *version: int) -> Deceptron:
    return load(path).eval().requires_grad_(False)
