"""Flow through porous rock: recover the permeability from the pressure it causes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from deceptron.core.checks import check_range
from deceptron.core.errors import ConfigError
from deceptron.problems.base import Family, SampledProblem
from deceptron.problems.elliptic import face_transmissibilities, solve_elliptic
from deceptron.problems.fields import normal, smooth_field


@dataclass(frozen=True, kw_only=True)
class RockFamily(Family):
    """x = sigmoid(gain * w), w a smooth Gaussian field of unit variance and this length."""

    length: float = 0.2
    gain: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("length", self.length, low=0.0, open_low=True)
        check_range("gain", self.gain, low=0.0, open_low=True)


@dataclass(frozen=True, kw_only=True)
class Darcy2D(SampledProblem[RockFamily]):
    """-div(a grad u) = 1 on the unit square, u = 0 on its edge, log a = log 0.2 + x log 25.

    Finite volumes on square cells with harmonic face averages; the boundary is half a cell away.
    Solved to round-off by elimination, once for all derivatives at a point.

    Behaviour: pressure is smooth and scales like 1 / a. It says nothing about a where its own
    gradient vanishes, which is at least at its maximum.

    Arguments: ``grid`` cells per axis, ``lowest`` and ``highest`` permeability (x = 0 and x = 1),
    ``source``, ``noise_std``, split sizes, and three ``RockFamily``: ``latents`` (correlation
    exp(-(r / l)^2) with l = 0.2, x = sigmoid(2 w)), ``shifted`` (l = 0.1) and ``extreme``
    (l = 0.07 and x = sigmoid(5 w), nearly two-valued rock, noise x3).

    Pitfalls: ``noise_std`` is 1% of the standard deviation of u over a default training set,
    rounded; it does not follow when other fields change.

    Good values: any contrast; grid up to 128, since work grows with its fourth power.
    """

    name: str = "darcy-2d"
    equation: str = field(
        default="-∇·(a ∇u) = 1, u=0 on edge, log a = log 0.2 + x log 25; y = u", repr=False
    )
    paper: str = field(default="Darcy-2D: described in words, numbers ours", repr=False)
    noise_std: float | Tensor = 2.75e-4
    grid: int = 32
    lowest: float = 0.2
    highest: float = 5.0
    source: float = 1.0
    latents: RockFamily = RockFamily()
    shifted: RockFamily = RockFamily(length=0.1)
    extreme: RockFamily = RockFamily(length=0.07, gain=5.0, noise_factor=3.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid * self.latents.length < 1:
            raise ConfigError(
                f"grid must be at least {math.ceil(1 / self.latents.length)}, a cell per "
                f"correlation length {self.latents.length:g} of the prior; got {self.grid}"
            )
        check_range("lowest", self.lowest, low=0.0, open_low=True)
        check_range("highest", self.highest, low=self.lowest, open_low=True)

    def permeability(self, x: Tensor) -> Tensor:
        """The coefficient a of latents x."""
        return self.lowest * torch.exp(x * math.log(self.highest / self.lowest))

    def _simulate(self, x: Tensor) -> Tensor:
        t1, t2 = face_transmissibilities(self.permeability(x[:, 0]))
        return solve_elliptic(t1, t2, torch.full_like(x[:, 0], self.source)).unsqueeze(1)

    def _draw(self, generator: Generator, family: RockFamily) -> Tensor:
        field = smooth_field(normal(generator, self.grid, self.grid), family.length)
        return torch.sigmoid(family.gain * field).unsqueeze(1)
