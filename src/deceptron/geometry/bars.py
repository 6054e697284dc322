"""Error bars of the answers of a solve: how they are made depends on how the answer was.

- *At its start*: the gain of the map that made it (``geometry/posterior.py``), calibrated on such
  answers.
- *By a law*: the posterior of the law that its data chose (``solve/law_bars.py``).

What is left open between the start and the family widens both. Missing sensors add what their
values, told from the other sensors, leave open through the learned gain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from deceptron.core import Bounds, Scaler
from deceptron.core.protocols import RowMap
from deceptron.geometry.posterior import SAMPLES, Posterior, quantile
from deceptron.geometry.trust import into_box
from deceptron.laws.calibration import Calibration

# Half-width of a 90% interval of a normal law.
NORMAL_90 = 1.6449


@dataclass(frozen=True)
class Maps:
    """A pair of plain maps; ``g`` is the one that made the answers, the linear estimate perhaps."""

    f: RowMap
    g: RowMap
    scaler: Scaler
    bounds: Bounds | None
    calibration: Calibration


class LawStd(Protocol):
    """Standard deviations by laws, out of those that rows would have at their start."""

    @property
    def answered(self) -> Bool[Tensor, " B"]:
        """Rows whose answer is that of a law, and not their start."""
        ...

    def __call__(self, at_start: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """Of all rows."""
        ...

    def take(self, index: Int[Tensor, " j"]) -> LawStd:
        """The same for some of them."""
        ...

    def white_to_errors(self, white: Float[Tensor, "S n"]) -> Float[Tensor, "S B n"]:
        """Draws of unit variance whose components go together as those of each row's law do."""
        ...


@dataclass(frozen=True, eq=False)
class AnswerBars:
    """Bars about ``x``: ``at_start`` makes those of all rows as if they were one-shot answers, and
    ``laws`` those of all rows out of them; None: they are what they are at the start.
    """

    x: Float[Tensor, "B *x"]
    bounds: Bounds | None
    at_start: Posterior
    laws: LawStd | None

    def __len__(self) -> int:
        return len(self.x)

    def at(self, rows: Int[Tensor, " j"]) -> AnswerBars:
        """Of these rows."""
        laws = None if self.laws is None else self.laws.take(rows)
        return replace(self, x=self.x[rows], at_start=self.at_start.at(rows), laws=laws)

    def std(
        self, samples: int = SAMPLES, *, generator: Generator | None = None
    ) -> Float[Tensor, "B *x"]:
        """Standard deviation of each component, before clipping."""
        found = self.at_start.complete_std(samples, generator=generator)
        if self.laws is not None:
            found = self.laws(found.flatten(1)).reshape(found.shape).to(found)
        return torch.hypot(found, self.at_start.gap_std(samples, generator=generator))

    def sample(
        self, samples: int = SAMPLES, *, generator: Generator | None = None
    ) -> Float[Tensor, "S B *x"]:
        """Draws about each answer, clipped to the box."""
        draws = self.at_start.sample(samples, generator=generator)
        if self.laws is None:
            return draws
        std = self.std()
        own = (std / self.at_start.std().clamp_min(1e-30))[None]
        draws = self.x + (draws - self.x) * own
        rows = self.laws.answered.nonzero().flatten()
        if len(rows):
            place = None if generator is None else generator.device
            n = self.x[0].numel()
            white = torch.randn(samples, n, dtype=torch.float64, generator=generator, device=place)
            errors = self.laws.take(rows).white_to_errors(white.to(self.x.device))
            errors = errors.reshape(samples, len(rows), *self.x.shape[1:]).to(draws)
            draws[:, rows] = self.x[rows] + errors * std[rows]
        flat = into_box(draws.reshape(-1, *self.x.shape[1:]), self.bounds)
        return flat.reshape(draws.shape)

    def ends(
        self, std: Float[Tensor, "B *x"], level: float, *, samples: int = SAMPLES
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        """Of intervals, component by component, clipped to the box."""
        # Student's where the deviation comes from draws, normal where it is known.
        width = self.x.new_full((len(self.x),), quantile(level, samples))
        if self.laws is not None:
            width[self.laws.answered] = quantile(level, 10**6)
        half = std * width.reshape(-1, *(1,) * (self.x.ndim - 1))
        return into_box(self.x - half, self.bounds), into_box(self.x + half, self.bounds)
