"""How likely each kind of answer is the right one for a row, from two numbers that cost one run.

A row may be answered by its start as it is, by a correction of it, or about the family's mean.
Scores of different kinds are never compared: a start has seen the data, so a law about it wins even
where it is worse. What tells them apart is learned, on validation rows and on rows made rougher on
purpose, as a logistic function of

- *surprise*: how much better a roughened family explains the data than the family as it is. In
  the coordinates of the data's covariance S both are diagonal, ``S^p`` against ``S``, so that it
  costs no run. Both may say that there is more noise than stated;
- *misfit*: how far the start is from explaining the data at that noise, in deviations of
  chi-squared.

What is fitted is the likelihood of the truths: each kind stands for a Gaussian about its answer, as
wide as its error bars say.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.bases import DiagonalGaussian
from deceptron.laws.noise import price
from deceptron.laws.shapes import FAMILY_POWERS, FAMILY_SIZES

START, CORRECTION, FAMILY = range(3)
# Log odds beyond which nothing that is seen changes a mind.
CERTAIN = 1e3
# Another kind of answer costs runs: it must be so many times as likely as the start.
WORTH = 3.0
# Before any row was seen, per kind: a constant, and what a unit of surprise and of misfit add.
# Unexplained by the 99% limit, a correction; surprised by ten, the family.
EXPECTED = ((0.0, 0.0, 0.0), (-5.0, 0.0, 4.0), (-3.5, 1.0, 0.0))
# Rows whose likelihood the expectation weighs as much as.
EXPECTED_ROWS = 8.0
# Scales of the noise that are tried in the data's own coordinates, and how many groups of these
# there are to a factor of e in their variance.
SCALES = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
BINS = 4.0
# Around the best of these.
FINE = torch.linspace(-0.45, 0.45, 19, dtype=torch.float64).exp()


@dataclass(frozen=True)
class Surprise:
    """Of each row: by how much a roughened family explains it better, in nats, the power and size
    that do best, as places, how many times larger than stated the noise is by them, and how many
    times it may be at most.
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
    family: DiagonalGaussian,
    waves: DiagonalGaussian | None,
    target: Float[Tensor, "B m"],
    noise: Float[Tensor, "#B m"],
    *,
    told: bool,
) -> Surprise:
    """How strange complete rows of data are, in normalised units, by the law of the family's data
    and the same as far as ``waves`` show it: noise that is white in the one may be a field in the
    other.
    """
    first = _Best.of(_Coordinates(family, target, noise), told=told)
    best = first
    if waves is not None:
        best = first.or_better(_Best.of(_Coordinates(waves, target, noise), told=told))
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
        plain, flat = found[:, 0].amin(0), found.flatten(0, 1)
        least, place = flat.min(0)
        place, number = place // found.shape[1], place % found.shape[1]
        noise = scales[place]
        louder = (place > 0).nonzero().flatten()
        if len(louder):
            fine = (noise[louder] * FINE.to(noise)[:, None]).clamp_min(1.0)
            score = rows.of_laws(number[louder], louder, fine) + price(fine, told=told)
            lower, at = score.min(0)
            least = least.index_copy(0, louder, lower)
            noise = noise.index_copy(0, louder, fine.gather(0, at[None])[0])
        sizes = len(FAMILY_SIZES)
        return _Best(plain, least, number // sizes, number % sizes, noise)

    def or_better(self, other: _Best) -> _Best:
        """Row by row."""
        better = other.least < self.least
        mine = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return _Best(*(torch.where(better, b, a) for a, b in mine))


class _Coordinates:
    """Rows of data in the coordinates of a law, those of like variance together: nothing tells
    them apart, so their squares are added up.
    """

    def __init__(
        self, law: DiagonalGaussian, target: Float[Tensor, "B m"], noise: Float[Tensor, "#B m"]
    ) -> None:
        mean = law.mean.to(target.device).double().flatten()
        spectrum = law.spectrum.to(target.device).double()
        self._bins = torch.unique((spectrum.log() * BINS).round(), return_inverse=True)[1]
        self._many = torch.bincount(self._bins).double()
        self._square = self._binned(law.basis.forward(target.double() - mean).square())
        silent = torch.stack([law.basis.variances(row) for row in noise.double().square()])
        self._silent = self._binned(silent) / self._many
        spectrum = self._binned(spectrum[None])[0] / self._many
        laws = [(p, s) for p in FAMILY_POWERS for s in FAMILY_SIZES]
        rougher = torch.stack([s * s * spectrum**p / (self._many @ spectrum**p) for p, s in laws])
        self._variances = rougher * (self._many @ spectrum)

    @property
    def device(self) -> torch.device:
        """Of the rows."""
        return self._square.device

    def score(self, scale: Tensor) -> Float[Tensor, "k B"]:
        """Minus twice the log likelihood under every power and size, the noise so many times that
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


def misfit(over_noise: Float[Tensor, " B"], count: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Of an RMS residual over the noise: chi-squared in its deviations from its mean."""
    return (over_noise.double().square() - 1) * (count.double() / 2).sqrt()


@dataclass(frozen=True, eq=False)
class Odds:
    """Of the three kinds: logits are ``weights`` times (1, surprise, misfit), the latter two as
    inverse hyperbolic sines.
    """

    weights: Float[Tensor, "3 kinds"]

    @staticmethod
    def expected() -> Odds:
        """Where no row has been seen."""
        return Odds.of(torch.tensor(EXPECTED).T.tolist())

    @staticmethod
    def of(weights: Any) -> Odds:
        """Of plain numbers, as a file has them."""
        found = torch.tensor(weights, dtype=torch.float64)
        if found.shape != (3, 3) or not bool(found.isfinite().all()):
            raise ValueError(f"odds must be 3 by 3 finite numbers; got {weights!r}")
        return Odds(found)

    @staticmethod
    def only(kind: int) -> Odds:
        """Every row is of this kind."""
        weights = torch.zeros(3, 3, dtype=torch.float64)
        weights[0, kind] = CERTAIN
        return Odds(weights)

    @property
    def always(self) -> int | None:
        """The kind of every row, if there is one."""
        place = int(self.weights[0].argmax())
        return place if torch.equal(self.weights, Odds.only(place).weights) else None

    def chances(
        self, surprise: Float[Tensor, " B"], misfit: Float[Tensor, " B"]
    ) -> Float[Tensor, "B kinds"]:
        """The probability of each kind."""
        return torch.softmax(features(surprise, misfit) @ self.weights.to(misfit.device), 1)


def kinds(chances: Float[Tensor, "B kinds"]) -> Int[Tensor, " B"]:
    """The likeliest, given what it costs."""
    worth = torch.tensor([WORTH, 1.0, 1.0]).to(chances)
    return (chances * worth).argmax(1)


def features(
    surprise: Float[Tensor, " B"], misfit: Float[Tensor, " B"]
) -> Float[Tensor, "B features"]:
    """What the logits are linear in."""
    # Explained far too well says no more than explained.
    columns = (torch.ones_like(misfit), surprise.asinh(), misfit.clamp_min(-2.0).asinh())
    return torch.stack(columns, 1).nan_to_num(0.0)


def fit_odds(
    surprise: Float[Tensor, " N"],
    misfit: Float[Tensor, " N"],
    likelihood: Float[Tensor, "N kinds"],
) -> Odds:
    """The odds under which the truths are likeliest; ``likelihood`` is the mean over components of
    the log density that each kind of answer gives the truth.
    """
    start = Odds.expected().weights
    phi = features(surprise, misfit)
    weights = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        logits = torch.log_softmax(phi @ weights, 1)
        far = 0.5 * EXPECTED_ROWS * (weights - start).square().mean()
        value = far - torch.logsumexp(logits + likelihood, 1).sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(loss)
    return Odds(weights.detach())
