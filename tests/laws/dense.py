"""Small laws, and what dense algebra in float64 says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from deceptron.core.bases import DiagonalGaussian
from deceptron.laws.beliefs import Beliefs
from deceptron.laws.law import Laws, Shape
from deceptron.laws.odds import Odds
from deceptron.laws.shapes import corrections_of
from deceptron.laws.tables import Formed, tabled

N, M = 10, 14


def normal(*shape: int, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=rng)


def covariance(shape: Shape) -> Tensor:
    """K."""
    eye = torch.eye(len(shape.spectrum), dtype=torch.float64)
    return shape.basis.back(shape.basis.forward(eye) * shape.spectrum)


def family_rows(count: int = 200, *, seed: int = 0) -> Tensor:
    return normal(count, N, seed=seed).cumsum(1)


def gaussian_of(rows: Tensor, shape: Shape) -> DiagonalGaussian:
    """The law of samples in the basis of a shape."""
    mean = rows.flatten(1).mean(0)
    spectrum = shape.basis.forward(rows.flatten(1) - mean).square().mean(0)
    return DiagonalGaussian(mean.reshape(rows.shape[1:]), shape.basis, spectrum)


def corrections(*, seed: int = 0, points: int = 1) -> tuple[Laws, list[Tensor]]:
    """Tabled laws of corrections, and the Jacobians, in units of the noise, that they are of."""
    laws = corrections_of(family_rows(seed=seed))
    assert laws is not None
    jacobians = [30 * normal(M, N, seed=seed + k + 1) / laws.scale for k in range(points)]
    return tabled(laws, [Formed(laws.scale * j) for j in jacobians]), jacobians


def log_determinant(shape: Shape, t: float | Tensor, jacobian: Tensor) -> Tensor:
    """``log det (1 + t J K J')``."""
    inner = torch.eye(len(jacobian), dtype=torch.float64)
    inner = inner + t * jacobian @ covariance(shape) @ jacobian.T
    return torch.linalg.slogdet(inner).logabsdet


def odds_of(weights: Any) -> Odds:
    """The same for the choice of answers and for what is left open."""
    return Odds.of(weights, weights)


def believed(laws: Laws, **changes: Any) -> Beliefs:
    """Corrections by these laws where the start does not explain, unless told otherwise."""
    plain = Beliefs(
        corrections=laws,
        family=None,
        data=(),
        start=None,
        surrogate=Odds.expected(),
        simulator=Odds.expected(),
    )
    return replace(plain, **changes)
