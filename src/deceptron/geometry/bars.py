"""Error bars of the answers of a solve: how they are made depends on how the answer was.

- *At its start*: the gain of the map that made it (``geometry/posterior.py``), calibrated on such
  answers.
- *Corrected*: the posterior of the correction that the evidence chose. Where its span was all of
  space it is the row's own; else the one tabled for such a correction. What the start may have been
  off by is added where the data have not decided: in the share of the correction's variance that
  they leave.
- *Regressed*: what such answers erred by on validation rows.

Missing sensors add what their values, told from the other sensors, leave open through the learned
gain. A row that leaves more than the noise has bars wider by that ratio (the Birge ratio), up to
what the family allows (``geometry/posterior.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from deceptron.core import Bounds, Scaler
from deceptron.core.calibration import Calibration
from deceptron.core.corrections import Member
from deceptron.core.protocols import RowMap
from deceptron.geometry.posterior import SAMPLES, Posterior, quantile
from deceptron.geometry.trust import into_box

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


class Combine(Protocol):
    """Standard deviations of corrected rows, out of those they would have at their start."""

    def __call__(self, at_start: Float[Tensor, "k n"]) -> Float[Tensor, "k n"]:
        """Of all of them."""

    def take(self, index: Int[Tensor, " j"]) -> Combine:
        """The same for some of them."""


@dataclass(frozen=True, eq=False)
class AnswerBars:
    """Bars about ``x``: ``at_start`` makes those of all rows as if they were one-shot answers, and
    ``combine`` those of the rows ``corrected`` out of them, whose errors look like draws of
    ``shapes[member]``.
    """

    x: Float[Tensor, "B *x"]
    bounds: Bounds | None
    at_start: Posterior
    corrected: Int[Tensor, " k"]
    combine: Combine | None
    shapes: tuple[Member, ...]
    member: Int[Tensor, " k"]

    def __len__(self) -> int:
        return len(self.x)

    def at(self, rows: Int[Tensor, " j"]) -> AnswerBars:
        """Of these rows."""
        place = torch.full_like(self.x.flatten(1)[:, 0], -1, dtype=torch.int64)
        place[self.corrected] = torch.arange(len(self.corrected), device=place.device)
        place = place[rows]
        chosen = place[place >= 0]
        return replace(
            self,
            x=self.x[rows],
            at_start=self.at_start.at(rows),
            corrected=(place >= 0).nonzero().flatten(),
            combine=None if self.combine is None else self.combine.take(chosen),
            member=self.member[chosen],
        )

    def std(
        self, samples: int = SAMPLES, *, generator: Generator | None = None
    ) -> Float[Tensor, "B *x"]:
        """Standard deviation of each component, before clipping."""
        found = self.at_start.complete_std(samples, generator=generator)
        if len(self.corrected) and self.combine is not None:
            mine = self.combine(found[self.corrected].flatten(1))
            found[self.corrected] = mine.reshape(-1, *self.x.shape[1:]).to(found)
        return torch.hypot(found, self.at_start.gap_std(samples, generator=generator))

    def sample(
        self, samples: int = SAMPLES, *, generator: Generator | None = None
    ) -> Float[Tensor, "S B *x"]:
        """Draws about each answer, clipped to the box."""
        draws = self.at_start.sample(samples, generator=generator)
        if len(self.corrected):
            std = self.std()[self.corrected].flatten(1)
            mine = self._drawn(std, samples, generator)
            draws[:, self.corrected] = mine.reshape(samples, -1, *self.x.shape[1:])
        flat = into_box(draws.reshape(-1, *self.x.shape[1:]), self.bounds)
        return flat.reshape(draws.shape)

    def ends(
        self, std: Float[Tensor, "B *x"], level: float, *, samples: int = SAMPLES
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        """Of intervals, component by component, clipped to the box."""
        # Student's where the deviation comes from draws, normal where it is known.
        width = self.x.new_full((len(self.x),), quantile(level, samples))
        width[self.corrected] = quantile(level, 10**6)
        half = std * width.reshape(-1, *(1,) * (self.x.ndim - 1))
        return into_box(self.x - half, self.bounds), into_box(self.x + half, self.bounds)

    def _drawn(
        self, std: Float[Tensor, "k n"], samples: int, generator: Generator | None
    ) -> Float[Tensor, "S k n"]:
        """Errors of this spread whose components go together as those of the prior do."""
        n = std.shape[1]
        place = None if generator is None else generator.device
        white = torch.randn(samples, n, dtype=torch.float64, generator=generator, device=place)
        white = white.to(std.device)
        fields = std.new_zeros(samples, *std.shape)
        for number in self.member.unique().tolist():
            rows = (self.member == number).nonzero().flatten()
            shape = self.shapes[number]
            spread = shape.basis.diagonal(shape.spectrum[None].to(white.device))[0].sqrt()
            fields[:, rows] = (shape.root(white) / spread)[:, None].to(std)
        return self.x[self.corrected].flatten(1) + fields * std
