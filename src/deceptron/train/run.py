"""One run from data to pair: which stages are done, which is under way, what comes of them."""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deceptron.core.errors import CheckpointError, ConfigError
from deceptron.core.folder import environment
from deceptron.laws.calibration import Calibration
from deceptron.maps import Deceptron, LinearStart, Wiener, load, save
from deceptron.maps.checkpoint import RUN_RESULT
from deceptron.problems import Problem
from deceptron.problems.units import UnitlessProblem
from deceptron.train.calibration import calibrate
from deceptron.train.data import TrainingData, check_maps, prepare
from deceptron.train.folder import RunFolder
from deceptron.train.loop import Row, StageRun, StageState
from deceptron.train.objectives import (
    CONTINUATION,
    REVERSE,
    ForwardObjective,
    ReverseObjective,
    state_error,
)
from deceptron.train.recipe import Recipe, Stage
from deceptron.train.settings import Config
from deceptron.train.streams import stream
from deceptron.train.team import Team
from deceptron.train.watch import Watcher, calibrating, is_shown, simulating, watchers

_States = dict[str, StageState | None]
# Noise so small that the linear estimate does not notice it, yet its matrix is invertible.
LEAST_NOISE = 1e-4
# Of f on measured rows, whose noise hides it, over the noise; squared.
LEAST_ERROR = 0.01


class Training:
    """The stages of a run in order; the folder, if any, says what earlier calls have done."""

    def __init__(
        self,
        problem: Problem,
        recipe: Recipe,
        config: Config,
        folder: RunFolder | None,
        *,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        checkpoint_seconds: float,
        start: dict[str, StageState],
        team: Team,
    ) -> None:
        self._problem, self._recipe, self._config, self._folder = problem, recipe, config, folder
        self._seed, self._device, self._dtype = seed, device, dtype
        self._interval, self._start, self._team = checkpoint_seconds, start, team
        self._stages: dict[str, Stage] = {
            "forward": recipe.forward,
            "reverse": recipe.reverse,
            "jcp": recipe.jcp,
            "plain": recipe.jcp,
        }

    def run(
        self,
        names: tuple[str, ...],
        *,
        progress: bool | None,
        callback: Watcher | None,
        tensorboard: Path | None,
    ) -> Deceptron:
        """Do what is not yet done; ``names`` are branches of stage 3, the first is returned."""
        plan = ("forward", "reverse", *names)
        pair, done, running, rows = self._team.share(lambda: self._so_far(names, plan))
        if pair is not None:
            return pair
        if self._folder is not None:
            self._folder.start_metrics(rows)

        with simulating(self._team.leads and progress is not False) as told:
            data = prepare(
                self._problem,
                self._recipe,
                seed=self._seed,
                dtype=self._dtype,
                device=self._device,
                told=told,
            )
        f, g = self._build(data)
        for name in plan:
            for state in (done[name], running.get(name)):
                if state is not None:
                    _check_fits(name, f if name == "forward" else g, state)
        epochs = {name: self._stages[name].epochs for name in plan}
        with watchers(
            plan=epochs, done=rows, progress=progress, tensorboard=tensorboard, callback=callback
        ) as tell:
            results: dict[str, StageState] = {}
            for name in plan:
                state = done[name]
                if state is None:
                    state = self._stage(name, data, f, g, results, running.get(name), tell)
                results[name] = state
                module = f if name == "forward" else g
                module.load_state_dict(state.best)
        shown = self._team.leads and is_shown(progress)
        return self._team.share(lambda: self._pairs(names, data, f, g, results, shown=shown))

    def _so_far(
        self, names: tuple[str, ...], plan: tuple[str, ...]
    ) -> tuple[Deceptron | None, _States, _States, list[Row]]:
        """The pair if all is done; else the stages that are, those under way, and their epochs."""
        self._take_over()
        done: _States = {name: self._finished(name) for name in plan}
        if (pair := self._stored(names, done)) is not None:
            return pair, done, {}, []
        # Stages trained by an earlier call with other branches keep their lines in metrics.csv.
        others = {name: self._finished(name) for name in self._stages if name not in plan}
        states = {**done, **others}
        running: _States = {
            name: self._folder.running(name)
            for name in plan
            if self._folder is not None and states[name] is None
        }
        rows = [
            row
            for name in self._stages
            if (state := states[name] or running.get(name)) is not None
            for row in state.rows
        ]
        return None, done, running, rows

    def _stage(
        self,
        name: str,
        data: TrainingData,
        f: nn.Module,
        g: nn.Module,
        results: dict[str, StageState],
        saved: StageState | None,
        tell: Watcher,
    ) -> StageState:
        recipe = self._recipe
        objective: ForwardObjective | ReverseObjective
        if name == "forward":
            objective = ForwardObjective(data, recipe, f)
        else:
            f.requires_grad_(False).eval()
            if name == "reverse":
                objective = ReverseObjective(data, recipe, f, g, stage_number=REVERSE)
            else:
                g.load_state_dict(results["reverse"].best)
                objective = ReverseObjective(
                    data,
                    recipe,
                    f,
                    g,
                    stage_number=CONTINUATION,
                    jcp=name == "jcp",
                    guard_limit=self._guard_limit(results["reverse"]),
                )
        run = StageRun(
            name,
            self._stages[name],
            objective,
            recipe,
            row_count=len(data.train),
            seed=self._seed,
            saved=saved,
            team=self._team,
        )
        written = time.monotonic()

        def after_epoch(state: StageState) -> None:
            nonlocal written
            if self._folder is not None:
                self._folder.add_metrics(state.rows[-1])
                if time.monotonic() - written >= self._interval and state.epoch < run.epochs:
                    self._folder.save_running(name, run.snapshot())
                    written = time.monotonic()
            tell(state.rows[-1])

        state = run.run(after_epoch)
        if self._folder is not None:
            self._folder.save_finished(name, state)
        return state

    def _guard_limit(self, reverse: StageState) -> float | None:
        guard = self._recipe.guard
        return None if guard is None else guard * state_error(self._recipe, reverse.best_measured)

    def _build(self, data: TrainingData) -> tuple[nn.Module, nn.Module]:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(stream(self._seed, "modules").initial_seed())
            noise_range = self._recipe.noise_range
            conditioned = {} if noise_range is None else {"noise_range": noise_range}
            generator = stream(self._seed, "build")
            made = self._recipe.build(data.problem, data.dataset, generator, **conditioned)
        if not isinstance(made, tuple) or len(made) != 2:
            raise ConfigError(f"Recipe(build=...) must return (f, g); got {type(made).__name__}")
        for module in made:
            if not isinstance(module, nn.Module):
                kind = type(module).__name__
                raise ConfigError(f"Recipe(build=...) must return two nn.Modules; got a {kind}")
        f, g = (module.to(self._device, self._dtype) for module in made)
        self._team.check(f, g)
        check_maps(data, f.eval(), g.eval())
        self._trainable = [p for m in (f, g) for p in m.parameters() if p.requires_grad]
        return f, g

    def _finished(self, name: str) -> StageState | None:
        own = None if self._folder is None else self._folder.finished(name)
        return own or self._start.get(name)

    def _take_over(self) -> None:
        """Keep what another run has trained, so that this folder is complete without it."""
        for name, state in self._start.items():
            if self._folder is not None and self._folder.finished(name) is None:
                self._folder.save_finished(name, state)

    def _stored(
        self, names: tuple[str, ...], done: dict[str, StageState | None]
    ) -> Deceptron | None:
        """The pair of a run that is complete, without preparing any data."""
        if self._folder is None or any(state is None for state in done.values()):
            return None
        paths = [self._folder.file(_result_name(name, names[0])) for name in names]
        if not all(path.is_file() for path in paths):
            return None
        try:
            return load(paths[0]).to(self._device)
        except CheckpointError:
            return None  # networks of the user's own class: build them again

    def _pairs(
        self,
        names: tuple[str, ...],
        data: TrainingData,
        f: nn.Module,
        g: nn.Module,
        results: dict[str, StageState],
        *,
        shown: bool,
    ) -> Deceptron:
        wiener = self._wiener(data, g)
        # Backwards, so that g ends with the weights of the pair that is returned.
        for name in reversed(names):
            g.load_state_dict(results[name].best)
            pair = Deceptron(
                f,
                g,
                scaler=data.scaler,
                bounds=self._problem.bounds,
                x_shape=self._problem.x_shape,
                y_shape=self._problem.y_shape,
                name=self._problem.name,
                wiener=wiener,
                calibration=self._known(results["forward"], data),
                provenance=self._provenance(name, results),
            ).to(self._device)
            pair = self._calibrated(pair.eval(), data, shown=shown)
            if isinstance(self._problem, UnitlessProblem):
                pair = pair.with_units(self._problem.units, self._problem.original.bounds)
            if self._folder is not None:
                save(pair, self._folder.file(_result_name(name, names[0])))
        for parameter in self._trainable:
            parameter.requires_grad_(True)
        return pair

    def _known(self, forward: StageState, data: TrainingData) -> Calibration:
        noise_std = self._problem.noise_std
        known = bool((torch.as_tensor(noise_std) > 0).all())
        task = forward.best_measured.get("val_task", 0.0)
        if data.problem.carries_noise:
            # What f misses of measured rows is their noise and its own error, which is kept.
            noise = float(data.noise.square().mean())
            task = max(task - noise, LEAST_ERROR * noise)
        return Calibration(noise_std=noise_std if known else None, surrogate_error=task**0.5)

    def _calibrated(self, pair: Deceptron, data: TrainingData, *, shown: bool) -> Deceptron:
        """With error bars, trust and laws; whatever they meet must not cost the training.

        They take maps and simulator, which may be the user's, to points where nobody has been.
        """
        if not bool((data.noise > 0).all()):
            return pair
        for limit in (self._recipe.correction_limit, 0):
            try:
                with calibrating(shown) as told:
                    return calibrate(
                        pair, self._problem, data.dataset, correction_limit=limit, told=told
                    )
            except Exception as error:
                lost = "laws of its rows" if limit else "error bars and trust"
                warnings.warn(f"the pair has no {lost}: {error}", stacklevel=2)
        return pair

    def _wiener(self, data: TrainingData, g: nn.Module) -> nn.Module | None:
        """The ridge estimate, or where that is too large the linear part that g started from."""
        entries = math.prod(self._problem.x_shape) * math.prod(self._problem.y_shape)
        if entries > self._recipe.wiener_limit:
            # Its numbers are buffers in closed form, which training leaves alone.
            return g.linear if isinstance(g, LinearStart) else None
        noise_std = data.noise.clamp_min(LEAST_NOISE)
        return Wiener.fit(data.train.x, data.train.y, noise_std=noise_std)

    def _provenance(self, name: str, results: dict[str, StageState]) -> dict[str, Any]:
        used = {stage: results[stage] for stage in ("forward", "reverse", name)}
        return {
            **self._config,
            "jcp": name == "jcp",
            "environment": {**environment(self._device), "processes": self._team.size},
            "seconds": {stage: round(state.seconds, 3) for stage, state in used.items()},
            "epochs": {stage: state.epoch for stage, state in used.items()},
            "selected_epoch": {stage: state.best_epoch for stage, state in used.items()},
            "validation": {stage: state.best_measured for stage, state in used.items()},
        }


def _check_fits(name: str, module: nn.Module, saved: StageState) -> None:
    """A recipe tells its networks by the name of the function that makes them, which may change."""
    held, made = (
        {key: value.shape for key, value in state.items()}
        for state in (saved.best, module.state_dict())
    )
    if held != made:
        differing = sorted(k for k in held.keys() | made.keys() if held.get(k) != made.get(k))
        raise CheckpointError(
            f"stage {name!r} of this run does not fit the networks that build makes now: "
            f"{differing[0]!r} differs; choose another folder"
        )


def _result_name(name: str, chosen: str) -> str:
    return RUN_RESULT if name == chosen else f"pair-{name}.safetensors"
