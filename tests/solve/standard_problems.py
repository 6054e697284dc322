"""Standard nonlinear least-squares test problems (More, Garbow and Hillstrom 1981; Bratu)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LeastSquares:
    """Residuals of rows of unknowns; ``minimum`` is the sum of squares at the solution."""

    name: str
    residuals: Callable[[Tensor], Tensor]
    start: tuple[float, ...]
    minimum: float


def rosenbrock(x: Tensor) -> Tensor:
    return torch.stack([10 * (x[:, 1] - x[:, 0] ** 2), 1 - x[:, 0]], 1)


def powell_singular(x: Tensor) -> Tensor:
    a, b, c, d = x.unbind(1)
    return torch.stack(
        [a + 10 * b, math.sqrt(5) * (c - d), (b - 2 * c) ** 2, math.sqrt(10) * (a - d) ** 2], 1
    )


def beale(x: Tensor) -> Tensor:
    a, b = x.unbind(1)
    return torch.stack([y - a * (1 - b**k) for k, y in ((1, 1.5), (2, 2.25), (3, 2.625))], 1)


def wood(x: Tensor) -> Tensor:
    a, b, c, d = x.unbind(1)
    return torch.stack(
        [
            10 * (b - a**2),
            1 - a,
            math.sqrt(90) * (d - c**2),
            1 - c,
            math.sqrt(10) * (b + d - 2),
            (b - d) / math.sqrt(10),
        ],
        1,
    )


def helical_valley(x: Tensor) -> Tensor:
    a, b, c = x.unbind(1)
    theta = torch.atan2(b, a) / (2 * math.pi)
    return torch.stack([10 * (c - 10 * theta), 10 * ((a**2 + b**2).sqrt() - 1), c], 1)


def bard(x: Tensor) -> Tensor:
    data = x.new_tensor(
        [0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39]
    )
    u = torch.arange(1, 16, dtype=x.dtype)
    v = 16 - u
    w = torch.minimum(u, v)
    a, b, c = (column[:, None] for column in x.unbind(1))
    return data - (a + u / (v * b + w * c))


def brown_dennis(x: Tensor) -> Tensor:
    t = torch.arange(1, 21, dtype=x.dtype) / 5
    a, b, c, d = (column[:, None] for column in x.unbind(1))
    return (a + t * b - t.exp()) ** 2 + (c + d * t.sin() - t.cos()) ** 2


def bratu(x: Tensor) -> Tensor:
    """u'' + exp(u) = 0 on (0, 1), u = 0 at both ends, by second differences (scaled by h^2)."""
    h = 1 / (x.shape[1] + 1)
    padded = torch.nn.functional.pad(x, (1, 1))
    return padded[:, 2:] - 2 * x + padded[:, :-2] + h**2 * x.exp()


PROBLEMS = (
    LeastSquares("rosenbrock", rosenbrock, (-1.2, 1.0), 0.0),
    LeastSquares("powell singular", powell_singular, (3.0, -1.0, 0.0, 1.0), 0.0),
    LeastSquares("beale", beale, (1.0, 1.0), 0.0),
    LeastSquares("wood", wood, (-3.0, -1.0, -3.0, -1.0), 0.0),
    LeastSquares("helical valley", helical_valley, (-1.0, 0.0, 0.0), 0.0),
    LeastSquares("bard", bard, (1.0, 1.0, 1.0), 8.21487e-3),
    LeastSquares("brown dennis", brown_dennis, (25.0, 5.0, -5.0, -1.0), 85822.2),
    LeastSquares("bratu 24", bratu, (0.0,) * 24, 0.0),
    LeastSquares("bratu 60", bratu, (0.0,) * 60, 0.0),
)
