"""How strange a row of data is to its family, and how loud, without a run of the simulator.

The laws about the family's mean say what data look like, too: draws of each shape, simulated, give
variances in coordinates of the data, diagonal enough there to compare likelihoods.
The coordinates are those of the covariance of the family's data and, where sensors lie on a grid,
waves as well: what is white in the former may be a field in the latter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.bases import Basis
from deceptron.laws.noise import price

# Scales of the noise that are tried, and those around the best of these.
SCALES = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
FINE = torch.linspace(-0.45, 0.45, 19, dtype=torch.float64).exp()
# Coordinates whose variances are alike to this factor, under the plainest and the roughest shape,
# count as alike.
ALIKE = 1.28


@dataclass(frozen=True, eq=False)
class DataLaws:
    """What each shape of the family's laws, of size one, makes of data: variances in a basis, about
    the family's mean; those of larger sizes are in proportion.
    """

    basis: Basis
    mean: Float[Tensor, " m"]
    spectra: Float[Tensor, "K m"]


@dataclass(frozen=True)
class Surprise:
    """Of each row: by how much another of the family's laws explains it better than the family as
    it is, in nats, the shape and size that do best, as places, how many times larger than stated
    the noise is by them, and how many times it may be at most.
    """

    gain: Float[Tensor, " B"]
    shape: Int[Tensor, " B"]
    size: Int[Tensor, " B"]
    noise: Float[Tensor, " B"]
    loudest: Float[Tensor, " B"]

    @staticmethod
    def none(like: Tensor) -> Surprise:
        """Of rows whose family is not known."""
        rows = torch.zeros_like(like, dtype=torch.int64)
        return Surprise(torch.zeros_like(like), rows, rows, torch.ones_like(like), like + torch.inf)


def surprise(
    laws: Sequence[DataLaws],
    sizes: Sequence[float],
    target: Float[Tensor, "B m"],
    noise: Float[Tensor, "#B m"],
    *,
    told: bool,
) -> Surprise:
    """Of complete rows of data in normalised units; the first laws have the family as it is."""
    first, *others = (_Best.of(_Coordinates(law, sizes, target, noise), told=told) for law in laws)
    best = first
    for other in others:
        best = best.or_better(other)
    gain = (first.plain - best.least).clamp_min(0.0) / 2
    return Surprise(gain, best.shape, best.size, best.noise, best.noise)


@dataclass(frozen=True)
class _Best:
    """The best power, size and noise of each row, their score, and that of the law as it is."""

    plain: Float[Tensor, " B"]
    least: Float[Tensor, " B"]
    shape: Int[Tensor, " B"]
    size: Int[Tensor, " B"]
    noise: Float[Tensor, " B"]

    @staticmethod
    def of(rows: _Coordinates, *, told: bool) -> _Best:
        """Scales of the noise on a coarse grid, then on a fine one for the law that did best."""
        scales = torch.tensor(SCALES, dtype=torch.float64, device=rows.device)
        found = torch.stack([rows.score(v) + price(v, told=told) for v in scales])
        # The family as it is is as likely as all others together.
        found[:, 1:] += 2 * math.log(found.shape[1] - 1)
        plain, flat = found[:, 0].amin(0), found.flatten(0, 1)
        least, place = flat.min(0)
        place, number = place // found.shape[1], place % found.shape[1]
        noise = scales[place]
        louder = (place > 0).nonzero().flatten()
        if len(louder):
            fine = (noise[louder] * FINE.to(noise)[:, None]).clamp_min(1.0)
            score = rows.of_laws(number[louder], louder, fine) + price(fine, told=told)
            other = (number[louder] > 0) * 2 * math.log(found.shape[1] - 1)
            lower, at = (score + other).min(0)
            least = least.index_copy(0, louder, lower)
            noise = noise.index_copy(0, louder, fine.gather(0, at[None])[0])
        return _Best(plain, least, number // rows.sizes, number % rows.sizes, noise)

    def or_better(self, other: _Best) -> _Best:
        """Row by row."""
        better = other.least < self.least
        mine = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return _Best(*(torch.where(better, b, a) for a, b in mine))


class _Coordinates:
    """Rows of data in the basis of laws, coordinates of like variances together: nothing tells them
    apart, so their squares are added up.
    """

    def __init__(
        self,
        laws: DataLaws,
        sizes: Sequence[float],
        target: Float[Tensor, "B m"],
        noise: Float[Tensor, "#B m"],
    ) -> None:
        self.sizes = len(sizes)
        spectra = laws.spectra.to(target.device).double()
        ends = (spectra[[0, -1]].log() / torch.tensor(ALIKE).log()).round()
        self._bins = torch.unique(ends, dim=1, return_inverse=True)[1]
        self._many = torch.bincount(self._bins).double()
        off = target.double() - laws.mean.to(target.device).double()
        self._square = self._binned(laws.basis.forward(off).square())
        silent = torch.stack([laws.basis.variances(row) for row in noise.double().square()])
        self._silent = self._binned(silent) / self._many
        squares = torch.tensor(sizes, dtype=torch.float64, device=target.device).square()
        spectra = self._binned(spectra) / self._many
        self._variances = (squares[:, None] * spectra[:, None]).flatten(0, 1)

    @property
    def device(self) -> torch.device:
        """Of the rows."""
        return self._square.device

    def score(self, scale: Tensor) -> Float[Tensor, "k B"]:
        """Minus twice the log likelihood under every shape and size, the noise so many times that
        stated.
        """
        total = self._variances[:, None] + scale.square() * self._silent
        return (self._square / total + self._many * total.log()).sum(2)

    def of_laws(
        self, number: Int[Tensor, " b"], rows: Int[Tensor, " b"], scale: Float[Tensor, "S b"]
    ) -> Float[Tensor, "S b"]:
        """The same of one law a row."""
        silent = self._silent if len(self._silent) == 1 else self._silent[rows]
        total = self._variances[number] + scale[:, :, None].square() * silent
        return (self._square[rows] / total + self._many * total.log()).sum(2)

    def _binned(self, values: Float[Tensor, "k m"]) -> Float[Tensor, "k b"]:
        found = values.new_zeros(len(values), len(self._many))
        return found.index_add(1, self._bins, values)
