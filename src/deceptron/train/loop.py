"""One stage, epoch by epoch: train, validate, select; its state can be saved after any epoch."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from deceptron.core.errors import DeceptronError
from deceptron.train.objectives import ALONE, Measured, Objective
from deceptron.train.recipe import Recipe, Stage, learning_rate
from deceptron.train.streams import stream
from deceptron.train.team import Team

Row = dict[str, Any]

# Columns of metrics.csv: one line an epoch, empty where a stage has no such quantity.
COLUMNS = (
    "stage",
    "epoch",
    "loss",
    "task",
    "reconstruction",
    "cycle",
    "pairs",
    "jcp",
    "bias_tie",
    "composition",
    "val_task",
    "val_reconstruction",
    "val_pairs",
    "rjcp",
    "score",
    "eligible",
    "learning_rate",
    "seconds",
)


# After an epoch that diverged the rate is divided by this, so many times at most in a stage.
SLOWER, MOST_SETBACKS = 3.0, 3


class TrainingDiverged(DeceptronError, ArithmeticError):
    """A loss became NaN or infinite, also at lower rates; the message names stage and epoch."""


@dataclass
class StageState:
    """What a stage knows after ``epoch`` epochs; ``best`` are weights, ``current`` are too.

    ``setbacks`` counts the epochs that diverged and were done again at a lower rate.
    """

    epoch: int
    current: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    best: dict[str, Tensor]
    best_epoch: int
    best_score: float
    best_measured: Measured
    rows: list[Row] = field(default_factory=list)
    setbacks: int = 0

    @property
    def seconds(self) -> float:
        """Time spent in the epochs so far."""
        return sum(row["seconds"] for row in self.rows)


class StageRun:
    """Trains ``objective.module`` for one stage from where it stands or from a saved state."""

    def __init__(
        self,
        name: str,
        stage: Stage,
        objective: Objective,
        recipe: Recipe,
        *,
        row_count: int,
        seed: int,
        saved: StageState | None = None,
        team: Team = ALONE,
    ) -> None:
        self.name, self.stage, self._objective, self._recipe = name, stage, objective, recipe
        self._row_count, self._seed, self._team = row_count, seed, team
        self._parameters = [p for p in objective.module.parameters() if p.requires_grad]
        self.epochs = stage.epochs if self._parameters else 0
        self._optimiser: torch.optim.Adam | None = None
        if self._parameters:
            self._optimiser = torch.optim.Adam(
                self._parameters,
                lr=stage.learning_rate,
                weight_decay=recipe.weight_decay,
                fused=self._parameters[0].device.type in ("cpu", "cuda"),
            )
        self.state = self._begin() if saved is None else self._restore(saved)

    def run(self, after_epoch: Callable[[StageState], None]) -> StageState:
        """Do the epochs that are left; the module ends with the selected weights.

        A module without any gradient over a whole epoch, such as one whose output has saturated,
        would stay what it is: the stage ends there.
        """
        while self.state.epoch < self.epochs:
            try:
                learned = self._epoch()
            except TrainingDiverged as error:
                self._go_back(error)
                continue
            after_epoch(self.state)
            if not learned and self.state.epoch < self.epochs:
                self._say_that_it_learns_nothing()
                break
        self._objective.module.load_state_dict(self.state.best)
        return self.state

    def snapshot(self) -> StageState:
        """The state with the current weights and Adam's moments filled in, for a checkpoint."""
        self.state.current = self._objective.module.state_dict()
        self.state.optimiser = {}
        if self._optimiser is not None:
            for index, entry in self._optimiser.state_dict()["state"].items():
                for key, value in entry.items():
                    self.state.optimiser[f"{index}.{key}"] = value
        return self.state

    def _begin(self) -> StageState:
        measured = self._validate(0)
        counts = self._recipe.start_counts and self._objective.eligible(measured)
        return StageState(
            epoch=0,
            current={},
            optimiser={},
            best=self._copied(),
            best_epoch=0,
            best_score=self._objective.score(measured) if counts else math.inf,
            best_measured=measured,
        )

    def _restore(self, saved: StageState) -> StageState:
        self._objective.module.load_state_dict(saved.current)
        if self._optimiser is not None and saved.optimiser:
            entries: dict[int, dict[str, Tensor]] = {}
            for name, value in saved.optimiser.items():
                index, key = name.split(".", 1)
                entries.setdefault(int(index), {})[key] = value
            groups = self._optimiser.state_dict()["param_groups"]
            self._optimiser.load_state_dict({"state": entries, "param_groups": groups})
        return saved

    def _epoch(self) -> bool:
        """Whether any gradient was there to learn from."""
        started = time.perf_counter()
        epoch, objective = self.state.epoch, self._objective
        device = self._parameters[0].device
        order = torch.randperm(self._row_count, generator=self._stream("shuffle"))
        batches = order.to(device).split(self.stage.batch_size)
        objective.begin(epoch)
        sums: dict[str, Tensor] = {}
        rate = self.stage.learning_rate
        slope = torch.zeros((), device=device)
        most = math.inf if self._recipe.clip is None else self._recipe.clip
        assert self._optimiser is not None
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            # Layers that draw for themselves, such as dropout, resume with the epoch too.
            torch.manual_seed(self._stream("modules").initial_seed())
            objective.module.train()
            for step, rows in enumerate(batches):
                rate = learning_rate(self.stage, epoch, step, len(batches))
                rate /= SLOWER**self.state.setbacks
                self._optimiser.param_groups[0]["lr"] = rate
                terms = objective.terms(rows, self._team)
                loss = torch.stack([weight * value for _, weight, value in terms]).sum()
                self._optimiser.zero_grad(set_to_none=True)
                loss.backward()
                self._team.sum([p.grad for p in self._parameters if p.grad is not None])
                slope += torch.nn.utils.clip_grad_norm_(self._parameters, most)
                self._optimiser.step()
                for name, value in (("loss", loss), *((n, v) for n, _, v in terms)):
                    sums[name] = sums.get(name, 0.0) + value.detach() * len(rows)
        self._team.sum(list(sums.values()))
        measured = self._validate(epoch + 1)
        losses = {name: float(value) / self._row_count for name, value in sums.items()}
        if not math.isfinite(losses["loss"]):
            raise self._diverged(epoch + 1, "training loss", losses["loss"])
        score, eligible = objective.score(measured), objective.eligible(measured)
        state = self.state
        if eligible and score < state.best_score:
            state.best, state.best_epoch = self._copied(), epoch + 1
            state.best_score, state.best_measured = score, measured
        state.epoch = epoch + 1
        state.rows.append(
            {
                "stage": self.name,
                "epoch": epoch + 1,
                **losses,
                **measured,
                "score": score,
                "eligible": int(eligible),
                "learning_rate": rate,
                "seconds": time.perf_counter() - started,
            }
        )
        return bool(slope != 0)

    def _go_back(self, error: TrainingDiverged) -> None:
        """To the best weights so far; the epoch is done again, more slowly."""
        state = self.state
        rate = self.stage.learning_rate
        if state.setbacks == MOST_SETBACKS or not math.isfinite(state.best_score):
            raise TrainingDiverged(
                f"{error}; lower learning_rate (now {rate:g}) or clip (now {self._recipe.clip})"
            ) from error
        state.setbacks += 1
        self._objective.module.load_state_dict(state.best)
        assert self._optimiser is not None
        self._optimiser.state.clear()
        warnings.warn(
            f"{error}; it is done again from the weights of epoch {state.best_epoch}, at a "
            f"learning_rate of {rate / SLOWER**state.setbacks:.2g} instead of {rate:g}",
            stacklevel=2,
        )

    def _say_that_it_learns_nothing(self) -> None:
        best, epoch = self.state.best_epoch, self.state.epoch
        warnings.warn(
            f"stage {self.name!r} ends after epoch {epoch} of {self.epochs}: its gradient was "
            f"exactly zero throughout that epoch (epoch {best}, the best, is kept). If its loss "
            f"jumped before, lower learning_rate (now {self.stage.learning_rate:g})",
            stacklevel=2,
        )

    def _validate(self, epoch: int) -> Measured:
        self._objective.module.eval()
        measured = self._team.share(self._objective.validate)
        for name, value in measured.items():
            if not math.isfinite(value):
                raise self._diverged(epoch, name, value)
        return measured

    def _diverged(self, epoch: int, name: str, value: float) -> TrainingDiverged:
        return TrainingDiverged(
            f"training diverged in stage {self.name!r}, epoch {epoch}: {name} is {value}"
        )

    def _stream(self, purpose: str) -> torch.Generator:
        return stream(self._seed, purpose, self._objective.stage_number, self.state.epoch)

    def _copied(self) -> dict[str, Tensor]:
        state = self._objective.module.state_dict()
        return {key: value.detach().clone() for key, value in state.items()}
