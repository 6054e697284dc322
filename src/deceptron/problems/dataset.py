"""Training and test sets of a problem: fixed by the seed, each split made when first asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from deceptron.core.errors import ConfigError
from deceptron.core.scaler import Scaler
from deceptron.problems.fields import BLOCK

if TYPE_CHECKING:
    from deceptron.problems.base import Problem

# Of the rows of a split, by a simulator that may fail; beyond that the box is wrong, or it is.
MOST_LOST = 0.5
SPLITS = ("train", "val", "test", "shifted", "extreme")
# Hears of which split how many rows are simulated, and how many there will be.
Told: TypeAlias = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Split:
    """Latents and their observations, row by row, in physical units.

    Attributes:
        x: the latents.
        y: their observations.
    """

    x: Float[Tensor, "N *x"]
    y: Float[Tensor, "N *y"]

    def __len__(self) -> int:
        return self.x.shape[0]

    def __repr__(self) -> str:
        return f"Split(x {tuple(self.x.shape)}, y {tuple(self.y.shape)}, {self.x.dtype})"


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows of a problem, by split; each split is made when it is first used.

    ``train`` and ``val`` are noise-free; ``test``, ``shifted`` and ``extreme`` are noisy.

    Attributes:
        problem: whose rows these are.
        seed: fixes every split, whichever are asked for and in whatever order.
        dtype: of the rows.
        told: hears how far the simulations of a split are.
    """

    problem: Problem
    seed: int
    dtype: torch.dtype
    told: Told | None = None

    def __repr__(self) -> str:
        return f"Dataset({self.problem.name}, seed {self.seed}, {self.dtype})"

    @cached_property
    def train(self) -> Split:
        """Prior latents, noise-free observations."""
        return self._make("train", "prior", self.problem.train_count, noisy=False)

    @cached_property
    def val(self) -> Split:
        """As ``train``, other draws."""
        return self._make("val", "prior", self.problem.val_count, noisy=False)

    @cached_property
    def test(self) -> Split:
        """Prior latents, noisy observations."""
        return self._make("test", "prior", self.problem.test_count, noisy=True)

    @cached_property
    def shifted(self) -> Split:
        """More and rougher structure than in training, noisy."""
        return self._make("shifted", "shifted", self.problem.shifted_count, noisy=True)

    @cached_property
    def extreme(self) -> Split:
        """Amplitude or count beyond training, and more noise."""
        return self._make("extreme", "extreme", self.problem.extreme_count, noisy=True)

    @cached_property
    def scaler(self) -> Scaler:
        """Statistics of the training observations; by component, no scale is below the noise.

        A sensor that hardly varies shows its noise alone, which should not count for more than one.
        """
        problem, y = self.problem, self.train.y
        if problem.scaling != "component":
            return Scaler.fit(y, per=problem.scaling)
        return Scaler.fit(y, least=torch.as_tensor(problem.noise_std).broadcast_to(y.shape[1:]))

    def _make(self, split: str, family: str, count: int, *, noisy: bool) -> Split:
        return self.problem._split(self, split, family, count, noisy)

    def _simulated(self, split: str, family: str, count: int, noisy: bool) -> Split:
        """Rows drawn from a family and simulated: what a split is unless the problem has others."""
        problem, index = self.problem, SPLITS.index(split)
        latents, noise = (_generator(self.seed, index, part) for part in range(2))
        x = problem.sample(count, generator=latents, family=family, dtype=self.dtype)
        blocks: list[Tensor] = []
        with torch.no_grad():
            for rows in x.split(BLOCK):
                blocks.append(problem.simulate(rows))
                if self.told is not None:
                    self.told(split, min(len(blocks) * BLOCK, count), count)
        y = torch.cat(blocks).to(x)
        if noisy:
            y = problem.add_noise(y, generator=noise, family=family)
        return _answered(problem, split, x, y)


def _answered(problem: Problem, split: str, x: Tensor, y: Tensor) -> Split:
    """The rows that the simulator has an answer for."""
    good = y.isfinite().flatten(1).all(1)
    lost = int((~good).sum())
    if lost > MOST_LOST * len(y):
        raise ConfigError(
            f"simulate of {problem.name!r} has no answer for {lost} of {len(y)} rows of {split}, "
            f"which is more than the share {MOST_LOST:g} that may be left out"
        )
    if lost:
        warnings.warn(
            f"simulate of {problem.name!r} has no answer for {lost} of {len(y)} rows of {split}: "
            "they are left out",
            RuntimeWarning,
            stacklevel=2,
        )
    return Split(x[good], y[good])


def _generator(seed: int, *path: int) -> Generator:
    """An own stream for each part of a dataset, so that parts can be made in any order."""
    state = np.random.SeedSequence((seed, *path)).generate_state(1, np.uint64)[0]
    return Generator().manual_seed(int(state) >> 2)
