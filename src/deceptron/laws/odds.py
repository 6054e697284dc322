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

Two such functions are fitted. By the *answer* odds a row is answered: they tell which answer is
closest, errors in units of what the start errs by on rows alike, with a price for any answer but
the start, which costs runs; a row counts by what is at stake. By the *open* odds bars are averaged
over what the data leave open: they tell under which kind the truth is likeliest, each standing for
a Gaussian about its answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

START, CORRECTION, FAMILY = range(3)
# Log odds beyond which nothing that is seen changes a mind.
CERTAIN = 1e3
# Independent numbers in a row, by which the mean over its components counts as evidence.
INDEPENDENT = 16.0
# What another kind of answer than the start must lower the error by, in units of the usual one.
PRICE = 0.02
# Answers that are further off than this, in the same units, or in deviations of their bars, count
# as no worse: one row is not the rule.
WORST, FARTHEST = 10.0, 3.0
# Before any row was seen, per kind: a constant, and what a unit of surprise and of misfit add.
# Unexplained by the 99% limit, a correction; surprised by ten, the family.
EXPECTED = ((0.0, 0.0, 0.0), (-6.3, 0.0, 4.0), (-3.0, 1.0, 0.0))
# Rows whose likelihood the expectation weighs as much as.
EXPECTED_ROWS = 8.0
# More than any surprise and misfit.
EVERYTHING = torch.full((3,), 1e9, dtype=torch.float64)
# How badly a start may explain a row.
MISFITS = (3.0, 10.0, 100.0, 1e3, 1e4, 1e6)


def misfit(over_noise: Float[Tensor, " B"], count: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Of an RMS residual over the noise: chi-squared in its deviations from its mean."""
    return (over_noise.double().square() - 1) * (count.double() / 2).sqrt()


@dataclass(frozen=True, eq=False)
class Odds:
    """Of the three kinds: logits are weights times (1, surprise, misfit), the latter two as inverse
    hyperbolic sines; ``answer`` for the choice of an answer, ``open`` for bars. Beyond what was
    ``seen`` of the latter two when weights were fitted, the expectation goes on from there.
    """

    answer: Float[Tensor, "3 kinds"]
    open: Float[Tensor, "3 kinds"]
    seen: Float[Tensor, " 3"] = field(default_factory=lambda: EVERYTHING.clone())

    @staticmethod
    def expected() -> Odds:
        """Where no row has been seen."""
        weights = torch.tensor(EXPECTED, dtype=torch.float64).T.contiguous()
        return Odds(weights, weights)

    @staticmethod
    def of(answer: Any, open: Any, seen: Any = None) -> Odds:
        """Of plain numbers, as a file has them."""
        parts = [torch.tensor(part, dtype=torch.float64) for part in (answer, open)]
        most = EVERYTHING if seen is None else torch.tensor(seen, dtype=torch.float64)
        shapes = [tuple(part.shape) for part in (*parts, most)]
        finite = all(bool(part.isfinite().all()) for part in (*parts, most))
        if shapes != [(3, 3), (3, 3), (3,)] or not finite:
            raise ValueError(
                f"odds must be 3 by 3 finite numbers, twice, and 3 that were seen; got {answer!r}, "
                f"{open!r} and {seen!r}"
            )
        return Odds(parts[0], parts[1], most)

    @staticmethod
    def only(kind: int) -> Odds:
        """Every row is of this kind."""
        weights = torch.zeros(3, 3, dtype=torch.float64)
        weights[0, kind] = CERTAIN
        return Odds(weights, weights)

    @property
    def keeps_starts(self) -> bool:
        """Whether no row is given another answer, however little its start explains it."""
        misfits = torch.tensor(MISFITS, dtype=torch.float64)
        return not bool(self.kinds(torch.zeros_like(misfits), misfits).any())

    def kinds(
        self, surprise: Float[Tensor, " B"], misfit: Float[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        """Of answers."""
        return self._logits(self.answer, surprise, misfit).argmax(1)

    def left_open(
        self, surprise: Float[Tensor, " B"], misfit: Float[Tensor, " B"]
    ) -> Float[Tensor, "B kinds"]:
        """The probability of each kind, as far as two numbers tell."""
        return torch.softmax(self._logits(self.open, surprise, misfit), 1)

    def _logits(
        self, weights: Tensor, surprise: Tensor, misfit: Tensor
    ) -> Float[Tensor, "B kinds"]:
        phi = features(surprise, misfit)
        fitted = torch.minimum(phi, self.seen.to(phi))
        expected = torch.tensor(EXPECTED).to(phi).T
        return fitted @ weights.to(phi) + (phi - fitted) @ expected


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
    error: Float[Tensor, "kinds N n"],
    std: Float[Tensor, "kinds N n"],
) -> Odds:
    """By the errors, without signs, and the bars of each kind of answer on rows of known truth."""
    phi = features(surprise, misfit)
    tiny = torch.finfo(torch.float32).tiny
    rms = error.square().mean(2).sqrt().T
    log_start = rms[:, [START]].clamp_min(tiny).log()
    usual = (phi @ torch.linalg.lstsq(phi, log_start).solution).exp()
    cost = (rms / usual).clamp_max(WORST)
    cost[:, START] -= PRICE
    at_stake = cost.amax(1) - cost.amin(1)
    std = std.clamp_min(tiny)
    density = (-0.5 * (error / std).clamp_max(FARTHEST).square() - std.log()).mean(2).T
    answer = _fitted(phi, -cost, at_stake)
    return Odds(answer, _fitted(phi, density, torch.ones_like(at_stake)), phi.amax(0))


def _fitted(
    phi: Float[Tensor, "N 3"], likelihood: Float[Tensor, "N kinds"], weight: Float[Tensor, " N"]
) -> Float[Tensor, "3 kinds"]:
    """Weights of a logistic regression on what rows of these log likelihoods, a component, say of
    their kinds; each row counts by its weight. Convex, so rows that contradict the expectation are
    heard however sure that was.
    """
    start = Odds.expected().answer
    target = torch.softmax(INDEPENDENT * likelihood, 1)
    weights = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        far = 0.5 * EXPECTED_ROWS * (weights - start).square().mean()
        entropy = -(target * torch.log_softmax(phi @ weights, 1)).sum(1)
        value = far + (weight * entropy).sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(loss)
    return weights.detach()
