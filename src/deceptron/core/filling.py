"""What missing sensors would most likely have shown, by the covariance of the training data.

The mean of N(m, C) given noisy values at some components: ``m + C M' (M C M' + S)^-1 M (y - m)``,
with M the rows that were observed. C is diagonal in a basis, so its product is two transforms; the
system is solved by conjugate gradients, every row until it has converged.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from deceptron.core.bases import DiagonalGaussian

STEPS, TOLERANCE = 300, 1e-4


def filled(
    family: DiagonalGaussian,
    target: Float[Tensor, "B m"],
    missing: Bool[Tensor, "B m"],
    noise: Float[Tensor, "#B m"],
    *,
    tolerance: float = TOLERANCE,
) -> Float[Tensor, "B m"]:
    """The target with its missing components filled; the others are left as they are."""
    seen = (~missing).double()
    mean = family.mean.to(target.device).double().flatten()
    spectrum = family.spectrum.to(target.device).double()
    variance = torch.where(noise.isinf(), 1.0, noise.double()).square()

    def covariance(v: Tensor) -> Tensor:
        return family.basis.back(spectrum * family.basis.forward(v))

    residual = torch.where(missing, 0.0, target).double() * seen - mean * seen
    weights, direction = torch.zeros_like(residual), residual
    square = _dot(residual, residual)
    goal = tolerance**2 * square
    for _ in range(STEPS):
        going = square > goal
        if not bool(going.any()):
            break
        image = seen * covariance(direction) + variance * direction
        length = torch.where(going, square / _dot(direction, image), 0.0)[:, None]
        weights = weights + length * direction
        residual = residual - length * image
        after = torch.where(going, _dot(residual, residual), square)
        share = torch.where(going, after / square.clamp_min(1e-300), 0.0)[:, None]
        direction, square = residual + share * direction, after
    likely = (mean + covariance(weights)).to(target)
    return torch.where(missing, likely, target)


def _dot(a: Tensor, b: Tensor) -> Float[Tensor, " B"]:
    return (a * b).sum(1)
