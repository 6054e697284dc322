"""The public entry: check what was asked, write it down, run it."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import torch

from deceptron.core.checks import check_device, check_dtype, check_flags, check_range, check_seed
from deceptron.core.errors import ConfigError
from deceptron.core.units import units_of
from deceptron.maps import Deceptron
from deceptron.problems import Problem, get
from deceptron.problems.units import UnitlessProblem
from deceptron.train.folder import RunFolder, early_stages
from deceptron.train.presets import recipe as preset_recipe
from deceptron.train.recipe import Recipe
from deceptron.train.run import Training
from deceptron.train.settings import config_of
from deceptron.train.team import joined
from deceptron.train.watch import Watcher, is_shown


def train(
    problem: str | Problem,
    preset: str | Recipe = "standard",
    out: str | os.PathLike[str] | None = None,
    *,
    seed: int = 7,
    jcp: bool = True,
    both: bool = False,
    start_from: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: bool | None = None,
    callback: Watcher | None = None,
    tensorboard: bool = False,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    checkpoint_seconds: float = 10.0,
) -> Deceptron:
    """Train a pair of networks for ``problem``, and calibrate its error bars and trust::

        pair = dc.train(problem, out="runs/mine")  # call it again to continue after a kill
        print(pair.verdict)

    Rows are drawn from the problem. Where the components of x (of a field, its channels) vary by
    very different amounts, or lie far from zero, the networks take them without units
    (``pair.units``); answers have them. Three stages follow: the surrogate f, the reverse map g,
    and g again with the Jacobian composition penalty (JCP). Then validation rows tell how large the
    errors of both are.

    Args:
        problem: a name (``dc.problems.names()``) or a problem of your own.
        preset: ``"standard"``, ``"paper"``, ``"paper-reduced"``, ``"smoke"``, or a ``Recipe``
            with your own settings.
        out: run folder, made if missing; without one everything stays in memory.
        seed: of data, weights and batches. The same seed gives the same bits on the same machine
            with the same number of threads.
        jcp: whether stage 3 of the returned pair includes the Jacobian composition penalty.
        both: also train the other branch of stage 3, kept in the run folder.
        start_from: folder of another run whose stages 1 and 2 are taken over; it may differ from
            this one only in what stage 3 reads. The result is that of a run from scratch.
        resume: continue a run that ``out`` holds; it must have the same settings.
        progress: False is silent; else a bar, or in a log a line every half minute.
        callback: called with the metrics of each epoch, a dictionary.
        tensorboard: write scalars into ``out/tensorboard`` (needs the extra).
        device: where to train; the CPU by default.
        dtype: precision of data and weights.
        checkpoint_seconds: write a checkpoint after an epoch when the last one is this old.
            A killed run loses at most that much work and one epoch.

    Returns:
        Deceptron: the pair, in evaluation mode; ``dc.load(out)`` reads it again.
    """
    problem = get(problem) if isinstance(problem, str) else problem
    if not isinstance(problem, Problem):
        raise ConfigError(f"problem must be a name or a Problem; got {type(problem).__name__}")
    units = units_of(problem._prior_samples())
    trained = problem if units is None else UnitlessProblem.of(problem, units)
    recipe = preset if isinstance(preset, Recipe) else preset_recipe(trained, preset)
    check_seed(seed)
    check_dtype(dtype)
    check_flags(jcp=jcp, both=both, resume=resume, progress=progress, tensorboard=tensorboard)
    check_range("checkpoint_seconds", checkpoint_seconds, low=0.0)
    if tensorboard and out is None:
        raise ConfigError("tensorboard=True needs a run folder: pass out=...")
    place = check_device("cpu" if device is None else device)
    config = config_of(problem, recipe, seed=seed, jcp=jcp, dtype=dtype, unitless=units is not None)
    start = {} if start_from is None else early_stages(Path(start_from), config)
    with joined() as team, ExitStack() as stack:
        folder = None
        if out is not None and team.leads:
            run = RunFolder(Path(out), config)
            folder = stack.enter_context(run.opened(resume=resume, device=place))
        training = Training(
            trained,
            recipe,
            config,
            folder,
            seed=seed,
            device=place,
            dtype=dtype,
            checkpoint_seconds=checkpoint_seconds,
            start=start,
            team=team,
        )
        chosen, other = ("jcp", "plain") if jcp else ("plain", "jcp")
        pair = training.run(
            (chosen, other) if both or recipe.both else (chosen,),
            progress=progress if team.leads else False,
            callback=callback if team.leads else None,
            tensorboard=folder.file("tensorboard") if folder and tensorboard else None,
        )
        if team.leads and is_shown(progress):
            print(f"{problem.name}: {pair.verdict}", file=sys.stderr)
        return pair
