"""What sensors would most likely show given the others, by the covariance of the training data.

The mean of N(m, C) given noisy values at some components: ``m + C M' (M C M' + S)^-1 M (y - m)``,
with M the rows that were observed. C is diagonal in a basis, so its product is two transforms; the
system is solved by conjugate gradients, every row until it has converged. They are preconditioned
by ``M (C + s^2)^-1 M'``, s one noise for all sensors of a row: exact but for a matrix whose rank is
the number of gaps.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from deceptron.core.bases import DiagonalGaussian

STEPS, TOLERANCE = 500, 1e-6


def filled(
    family: DiagonalGaussian,
    target: Float[Tensor, "B m"],
    missing: Bool[Tensor, "B m"],
    noise: Float[Tensor, "#B m"],
    *,
    tolerance: float = TOLERANCE,
) -> Float[Tensor, "B m"]:
    """The target with its missing components filled; the others are left as they are."""
    weights = _weights(family, target, missing, noise, tolerance)
    likely = family.mean.to(target.device).double().flatten() + _covariance(family, weights)
    return torch.where(missing, likely.to(target), target)


def surprise(
    family: DiagonalGaussian,
    target: Float[Tensor, "B m"],
    missing: Bool[Tensor, "B m"],
    noise: Float[Tensor, "#B m"],
) -> Float[Tensor, "B m"]:
    """How far each component is from what all others of its row predict, in standard deviations of
    that prediction; 0 where it is missing.

    With ``P = (C + S)^-1`` the distance of component i from its prediction is
    ``(P (y - m))_i / P_ii``, of variance ``1 / P_ii``. P_ii is taken as if nothing were missing,
    and as if the noise were diagonal where C is: with gaps, distances are a little too small.
    """
    weights = _weights(family, target, missing, noise, TOLERANCE)
    variance = torch.where(noise.isinf(), 1.0, noise.double()).square()
    level = torch.stack([family.basis.variances(row) for row in variance])
    spectrum = family.spectrum.to(target.device).double()
    precision = family.basis.diagonal(1 / (spectrum + level))
    return weights / precision.sqrt()


def _weights(
    family: DiagonalGaussian,
    target: Float[Tensor, "B m"],
    missing: Bool[Tensor, "B m"],
    noise: Float[Tensor, "#B m"],
    tolerance: float,
) -> Float[Tensor, "B m"]:
    """``M' (M C M' + S)^-1 M (y - m)``."""
    seen = (~missing).double()
    mean = family.mean.to(target.device).double().flatten()
    spectrum = family.spectrum.to(target.device).double()
    variance = torch.where(noise.isinf(), 1.0, noise.double()).square()

    typical = (_dot(seen, variance.log()) / seen.sum(1).clamp_min(1)).exp()[:, None]

    def preconditioned(v: Tensor) -> Tensor:
        return seen * family.basis.back(family.basis.forward(v) / (spectrum + typical))

    residual = torch.where(missing, 0.0, target).double() * seen - mean * seen
    weights, direction = torch.zeros_like(residual), preconditioned(residual)
    square = _dot(residual, direction)
    goal = tolerance**2 * square
    for _ in range(STEPS):
        going = square > goal
        if not bool(going.any()):
            break
        image = seen * _covariance(family, direction) + variance * direction
        length = torch.where(going, square / _dot(direction, image), 0.0)[:, None]
        weights = weights + length * direction
        residual = residual - length * image
        turned = preconditioned(residual)
        after = torch.where(going, _dot(residual, turned), square)
        share = torch.where(going, after / square.clamp_min(1e-300), 0.0)[:, None]
        direction, square = turned + share * direction, after
    return weights


def _covariance(family: DiagonalGaussian, v: Float[Tensor, "B m"]) -> Float[Tensor, "B m"]:
    spectrum = family.spectrum.to(v.device).double()
    return family.basis.back(spectrum * family.basis.forward(v))


def _dot(a: Tensor, b: Tensor) -> Float[Tensor, " B"]:
    return (a * b).sum(1)
