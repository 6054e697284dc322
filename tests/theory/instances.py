"""Random nonlinear pairs that satisfy a theorem's assumptions exactly, row by row, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deceptron.core.differentiate import dense_jacobian

ROWS, N, M = 8, 4, 6


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def times(matrix: Tensor, vector: Tensor) -> Tensor:
    return torch.einsum("bij,bj->bi", matrix, vector)


@dataclass
class Instance:
    """``f`` smooth and nonlinear; ``g(y) = x_t + G (y - y_t) + curvature * |y - y_t|^2 term``.

    One pair holds ROWS different x_t, so g is told its row by position: rows are kept in order.
    By construction g(f(x_t)) = x_t and J_g(f(x_t)) = G, whatever the curvature.
    """

    weight: Tensor
    mixing: Tensor
    x: Tensor
    reverse: Tensor
    curvature: Tensor

    @classmethod
    def random(cls, seed: int, *, n: int = N, m: int = M) -> Instance:
        weight = randn(m, n, seed=seed) / n**0.5
        mixing = randn(m, n, seed=seed + 1) / n**0.5
        x = randn(ROWS, n, seed=seed + 2)
        curvature = randn(ROWS, n, m, m, seed=seed + 3) / m
        return cls(weight, mixing, x, torch.zeros(ROWS, n, m, dtype=x.dtype), curvature)

    def f(self, x: Tensor) -> Tensor:
        return (
            x @ self.weight.T + 0.3 * torch.tanh(x @ self.mixing.T) + 0.1 * (x @ self.weight.T) ** 2
        )

    def g(self, y: Tensor) -> Tensor:
        repeat = len(y) // ROWS  # dense_jacobian repeats each row n times, next to each other
        each = [
            t.repeat_interleave(repeat, 0) for t in (self.x, self.y, self.reverse, self.curvature)
        ]
        x_t, y_t, reverse, curvature = each
        d = y - y_t
        return x_t + times(reverse, d) + torch.einsum("bijk,bj,bk->bi", curvature, d, torch.sin(d))

    @property
    def y(self) -> Tensor:
        return self.f(self.x)

    @property
    def jacobian(self) -> Tensor:
        return dense_jacobian(self.f, self.x)

    @property
    def pseudo_inverse(self) -> Tensor:
        return torch.linalg.pinv(self.jacobian)
