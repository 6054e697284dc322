"""Stages 2 and 3 of the published allen-cahn-2d once more, from other initial weights of g.

With seed 7 the tanh at the end of g saturates in epoch 22 of stage 2's 80, so the strongest claim
of the paper would rest on one training that got stuck. Here data and forward network are those of
seed 7 (``benchmarks.paper``), while the initial weights of g and the order of batches are those of
another seed. ``python -m benchmarks.paper_again train 8`` (two hours of one core; resumable, by
Winograd's convolutions), ``... train 8 plain`` beside it the branch without JCP, once stage 2 has
ended, in a folder of its own (its ``plain.safetensors`` then belongs with the others), and
``... evaluate 8`` the methods of ``benchmarks.paper`` and equal numbers of steps.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import deceptron as dc
from benchmarks import paper
from benchmarks.common import publish
from benchmarks.winograd import fewer_products
from deceptron.train import recipe
from deceptron.train.folder import RunFolder
from deceptron.train.run import Training
from deceptron.train.settings import config_of, read_config
from deceptron.train.team import joined

NAME, SEED = "allen-cahn-2d", 7
run_module = importlib.import_module("deceptron.train.run")


class Stages(Training):
    """Nobody asks for error bars of these pairs, whose calibration takes longer than an epoch."""

    def _pairs(self, *results: Any, **shown: Any) -> Any:
        return None


def folder_of(seed: int, branch: str = "") -> Path:
    return paper.FOLDERS["paper"] / f"{NAME}-{SEED}-again-{seed}{branch and f'-{branch}'}"


def train(seed: int, branches: tuple[str, ...], own: str = "") -> None:
    problem = dc.problems.get(NAME)
    plan = recipe(problem, "paper")
    cpu = torch.device("cpu")
    config = config_of(problem, plan, seed=seed, jcp=True, dtype=torch.float32, unitless=False)
    first = paper.FOLDERS["paper"] / f"{NAME}-{SEED}"
    start = {"forward": RunFolder(first, read_config(first / "config.json")).finished("forward")}
    if own:
        early = folder_of(seed)
        start["reverse"] = RunFolder(early, read_config(early / "config.json")).finished("reverse")
    folder = RunFolder(folder_of(seed, own), config)
    prepared = partial(with_data_of_the_first, run_module.prepare)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(run_module, "prepare", prepared))
        stack.enter_context(fewer_products())
        team = stack.enter_context(joined())
        stack.enter_context(folder.opened(resume=True, device=cpu))
        stages = Stages(
            problem,
            plan,
            config,
            folder,
            seed=seed,
            dtype=torch.float32,
            device=cpu,
            checkpoint_seconds=300.0,
            start={stage: state for stage, state in start.items() if state is not None},
            team=team,
        )
        stages.run(branches, progress=None, callback=None, tensorboard=None)


def with_data_of_the_first(prepare: Callable[..., Any], *which: Any, **settings: Any) -> Any:
    return prepare(*which, **{**settings, "seed": SEED})


def evaluate(seed: int) -> None:
    """As ``benchmarks.paper`` does, with the data of seed 7."""
    there = {SEED: folder_of(seed)}
    with mock.patch.object(paper, "folders", return_value=there):
        rows = [row for row in paper.rows_of(NAME, "paper") if row["seed"] != "paper"]
        steps = list(paper.by_steps(NAME, "paper"))
    publish(f"paper_again_{seed}", f"allen-cahn-2d, g from seed {seed}", rows)
    publish(f"paper_again_steps_{seed}", "after equal numbers of steps", steps)


def main() -> None:
    if "paper_again" not in sys.argv[0]:
        return  # among all benchmarks: it takes hours
    torch.set_num_threads(1)
    match sys.argv[1:]:
        case ["train", seed]:
            train(int(seed), ("jcp", "plain"))
        case ["train", seed, branch]:
            train(int(seed), (branch,), own=branch)
        case ["evaluate", seed]:
            evaluate(int(seed))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
