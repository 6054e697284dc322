"""How likely each kind of answer is the right one for a row, from two numbers that cost one run.

A row may be answered by its start as it is, by a correction of it, or about the family's mean.
Scores of different kinds are never compared: a start has seen the data, so a law about it wins even
where it is worse. What tells them apart is learned, on validation rows and on rows made rougher on
purpose, as a logistic function of

- *surprise*: how much better a roughened family explains the data than the family as it is, both
  in coordinates of the data, so that it costs no run (``laws/data.py``). Both may say that there is
  more noise than stated;
- *misfit*: how far the start is from explaining the data at that noise, in deviations of
  chi-squared.

What is fitted is the likelihood of the truths: each kind stands for a Gaussian about its answer
that is as wide as it was off, so that a twentieth less error counts the same everywhere. That much
is the price of any answer but the start, which costs runs; what bars are averaged by is without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

START, CORRECTION, FAMILY = range(3)
# Log odds beyond which nothing that is seen changes a mind.
CERTAIN = 1e3
# Independent numbers in a row, by which the log of its error counts as evidence.
INDEPENDENT = 16.0
# Any other kind of answer than the start costs runs: by how much, in the log of the error, it must
# be better.
PRICE = 0.05
# Before any row was seen, per kind: a constant, and what a unit of surprise and of misfit add.
# Unexplained by the 99% limit, a correction; surprised by ten, the family.
EXPECTED = ((0.0, 0.0, 0.0), (-5.0, 0.0, 4.0), (-3.5, 1.0, 0.0))
# Rows whose likelihood the expectation weighs as much as.
EXPECTED_ROWS = 8.0


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
        self, surprise: Float[Tensor, " B"], misfit: Float[Tensor, " B"], *, priced: bool
    ) -> Float[Tensor, "B kinds"]:
        """The probability of each kind to be the best one, at its price or whatever it costs."""
        logits = features(surprise, misfit) @ self.weights.to(misfit.device)
        if not priced:
            logits[:, START] -= INDEPENDENT * PRICE
        return torch.softmax(logits, 1)


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
    error: Float[Tensor, "N kinds"],
) -> Odds:
    """The odds under which the truths are likeliest; ``error`` is that of each kind of answer."""
    likelihood = -INDEPENDENT * error.clamp_min(torch.finfo(torch.float32).tiny).log()
    likelihood[:, START] += INDEPENDENT * PRICE
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
