"""Random pairs in float64 on which the solvers are tried."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TestPair(nn.Module):
    """Two modules as f and g."""

    __test__ = False  # not a test case, whatever its name says to pytest

    def __init__(self, forward_map: nn.Module, reverse_map: nn.Module) -> None:
        super().__init__()
        self.forward_map, self.reverse_map = forward_map, reverse_map

    def f(self, x: Tensor) -> Tensor:
        return self.forward_map(x)

    def g(self, y: Tensor) -> Tensor:
        return self.reverse_map(y)


class ImplicitInverse(nn.Module):
    """The inverse of ``x + strength tanh(A x)`` by fixed-point iteration, plus a bias."""

    def __init__(self, weight: Tensor, strength: float, bias: float) -> None:
        super().__init__()
        self.weight, self.strength, self.bias = weight, strength, bias

    def forward(self, y: Tensor) -> Tensor:
        x = y
        for _ in range(60):
            x = y - self.strength * torch.tanh(x @ self.weight.T)
        return x + self.bias


class NearIdentity(nn.Module):
    """x + strength tanh(A x), invertible for strength |A| < 1."""

    def __init__(self, weight: Tensor, strength: float) -> None:
        super().__init__()
        self.weight, self.strength = weight, strength

    def forward(self, x: Tensor) -> Tensor:
        return x + self.strength * torch.tanh(x @ self.weight.T)


def invertible_pair(n: int = 6, *, bias: float = 0.0, seed: int = 0) -> TestPair:
    """f and its exact inverse, or an inverse that is off by ``bias`` everywhere."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(n, n, dtype=torch.float64, generator=generator)
    weight = weight / torch.linalg.matrix_norm(weight, 2)
    return TestPair(NearIdentity(weight, 0.6), ImplicitInverse(weight, 0.6, bias))


def fitted_mlp_pair(
    n: int = 8, *, smooth: bool = True, seed: int = 0, steps: int = 300
) -> TestPair:
    """An MLP pair whose g has been trained a little: most steps succeed, some rows stall."""
    torch.manual_seed(seed)
    act = nn.Softplus() if smooth else nn.LeakyReLU(0.1)
    forward = nn.Sequential(nn.Linear(n, n), act).double()
    with torch.no_grad():
        forward[0].weight.copy_(torch.eye(n) + 0.2 * torch.randn(n, n))
    reverse = nn.Sequential(nn.Linear(n, 4 * n), nn.Tanh(), nn.Linear(4 * n, n)).double()
    return _fit(TestPair(forward, reverse), (n,), steps)


def fitted_cnn_pair(grid: int = 6, *, seed: int = 0, steps: int = 200) -> TestPair:
    """A small 2D convolutional pair on rows of shape (1, grid, grid)."""
    torch.manual_seed(seed)
    forward = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.LeakyReLU(0.1)).double()
    with torch.no_grad():
        forward[0].weight.mul_(0.15)
        forward[0].weight[0, 0, 1, 1] += 1.0
    reverse = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(6, 1, 3, padding=1)
    ).double()
    return _fit(TestPair(forward, reverse), (1, grid, grid), steps)


def _fit(pair: TestPair, shape: tuple[int, ...], steps: int) -> TestPair:
    optimiser = torch.optim.Adam(pair.reverse_map.parameters(), 1e-2)
    for _ in range(steps):
        x = torch.rand(64, *shape, dtype=torch.float64)
        loss = (pair.g(pair.f(x).detach()) - x).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return pair.requires_grad_(False)
