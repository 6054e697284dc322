"""Training and validation rows as tensors in memory, checked once before any work is done."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from deceptron.core.checks import check_rows
from deceptron.core.errors import ConfigError, DeceptronError, ShapeError
from deceptron.core.pieces import rows_at_a_time
from deceptron.core.scaler import Scaler
from deceptron.problems import Dataset, Problem
from deceptron.problems.dataset import Told
from deceptron.problems.units import unresolved
from deceptron.train.recipe import Recipe
from deceptron.train.streams import stream


@dataclass(frozen=True, eq=False)
class Rows:
    """Latents with their noise-free observations, physical and normalised."""

    x: Float[Tensor, "N *x"]
    physical: Float[Tensor, "N *y"]
    y: Float[Tensor, "N *y"]

    def __len__(self) -> int:
        return self.x.shape[0]


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What the stages read; the noise of ``val_noisy`` (normalised units) is drawn once."""

    problem: Problem
    dataset: Dataset
    seed: int
    scaler: Scaler
    train: Rows
    val: Rows
    val_noisy: Float[Tensor, "N *y"]

    @property
    def noise(self) -> Float[Tensor, "*y"]:
        """Standard deviation of the measurement noise, normalised units."""
        std = torch.as_tensor(self.problem.noise_std).to(self.train.y)
        return (std / self.scaler.scale).broadcast_to(self.problem.y_shape)

    def simulate(self, x: Float[Tensor, "B *x"]) -> Float[Tensor, "B *y"]:
        """The problem's own forward map, normalised."""
        return self.scaler.normalise(self.problem.simulate(x)).to(x)

    def noisy(
        self,
        rows: Rows,
        generator: torch.Generator,
        ratio: Float[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "N *y"]:
        """Observations as the sensor gives them, normalised; ``ratio`` multiplies their noise."""
        seen = self.problem.add_noise(rows.physical, generator=generator, ratio=ratio)
        return self.scaler.normalise(seen)


def prepare(
    problem: Problem,
    recipe: Recipe,
    *,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
    told: Told | None = None,
) -> TrainingData:
    """Draw, simulate, check and normalise; the same seed gives the same rows."""
    limited = replace(
        problem,
        train_count=min(problem.train_count, recipe.train_rows or problem.train_count),
        val_count=min(problem.val_count, recipe.val_rows or problem.val_count),
    )
    dataset = replace(limited.dataset(seed, dtype=dtype), told=told)
    splits = {"train": dataset.train, "val": dataset.val}
    for name, split in splits.items():
        check_rows(f"{name}.x", split.x, problem.x_shape)
        check_rows(f"{name}.y", split.y, problem.y_shape)
        for part in ("x", "y"):
            _check_finite(problem, f"{name}.{part}", getattr(split, part))
    words = unresolved(dataset.train.y, problem.noise_std, dtype)
    if words is not None:
        warnings.warn(f"{problem.name!r}: {words}", stacklevel=2)
    # A copy: moving the dataset's own scaler would move it for its other users.
    scaler = Scaler(dataset.scaler.shift, dataset.scaler.scale).to(device=device, dtype=dtype)

    def rows(name: str) -> Rows:
        x, physical = (part.to(device) for part in (splits[name].x, splits[name].y))
        return Rows(x, physical, scaler.normalise(physical))

    data = TrainingData(limited, dataset, seed, scaler, rows("train"), rows("val"), torch.empty(0))
    return replace(data, val_noisy=data.noisy(data.val, stream(seed, "val-noise")))


def check_maps(data: TrainingData, f: nn.Module, g: nn.Module) -> None:
    """Networks of other shapes are an error before training, not a broadcast within."""
    problem, few = data.problem, slice(0, 2)
    for name, module, rows, shape in (
        ("f", f, data.train.x[few], problem.y_shape),
        ("g", g, data.train.y[few], problem.x_shape),
    ):
        try:
            with torch.no_grad():
                out = module(rows)
        except (DeceptronError, RuntimeError, ValueError, IndexError) as error:
            raise ShapeError(
                f"{name} must take rows of shape {tuple(rows.shape[1:])} of {problem.name!r}; "
                f"{type(module).__name__} refused them: {error}"
            ) from error
        wanted = (len(rows), *shape)
        if not isinstance(out, Tensor) or tuple(out.shape) != wanted:
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ShapeError(
                f"{name} must map {tuple(rows.shape)} of {problem.name!r} to {wanted}; "
                f"{type(module).__name__} gave {got}"
            )


def mapped(module: nn.Module, rows: Tensor) -> Tensor:
    """The module on all rows, in chunks and without a graph."""
    with torch.no_grad():
        return torch.cat([module(chunk) for chunk in rows.split(rows_at_a_time(rows))])


def _check_finite(problem: Problem, name: str, values: Tensor) -> None:
    bad = ~values.isfinite()
    if bool(bad.any()):
        row = int(bad.flatten(1).any(1).nonzero()[0])
        raise ConfigError(
            f"dataset of {problem.name!r} must be finite; {name} row {row} holds "
            f"{int(bad[row].sum())} non-finite value(s)"
        )
