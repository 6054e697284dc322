"""Sine modes are eigenfunctions of the heat equation, so their decay is known exactly."""

from __future__ import annotations

import math

import pytest
import torch

import deceptron as dc
from deceptron.problems.heat import Heat
from deceptron.problems.heat_1d import neighbour_mixing


def mode(n: int, *k: int) -> torch.Tensor:
    x = torch.linspace(0, 1, n + 2, dtype=torch.float64)[1:-1]
    field = torch.ones((), dtype=torch.float64)
    for number in k:
        field = field[..., None] * torch.sin(math.pi * number * x)
    return field


@pytest.mark.parametrize(
    ("name", "k"), [("heat-1d", (3,)), ("heat-2d", (2, 5)), ("heat-3d", (1, 2, 3))]
)
def test_modes_decay_exactly(name: str, k: tuple[int, ...]) -> None:
    problem = dc.problems.get(name)
    assert isinstance(problem, Heat)
    u = mode(problem.grid, *k).reshape(1, *problem.x_shape)
    rate = math.pi**2 * sum(i * i for i in k)
    expected = u * math.exp(-problem.diffusivity * problem.time * rate)
    torch.testing.assert_close(problem.evolve(u), expected, rtol=1e-12, atol=1e-14)


def test_published_sensor_of_heat_1d() -> None:
    problem = dc.problems.get("heat-1d")
    mixing = neighbour_mixing(64, 0.10, torch.float64, torch.device("cpu"))
    torch.testing.assert_close(mixing.sum(1), torch.ones(64, dtype=torch.float64))
    assert float(mixing[5, 6] / mixing[5, 5]) == pytest.approx(0.10)
    u = mode(64, 1)
    z = mixing @ u * math.exp(-0.18 * 0.08 * math.pi**2)
    expected = z + 0.18 * z**3 + 0.08 * torch.sin(3 * z)
    torch.testing.assert_close(problem.simulate(u[None])[0], expected, rtol=1e-10, atol=1e-12)


def test_published_blur_of_heat_3d() -> None:
    problem = dc.problems.get("heat-3d", time=0.0, cubic=0.0, sine=0.0)
    x = torch.zeros(1, 1, 8, 8, 8, dtype=torch.float64)
    x[0, 0, 0, 3, 4] = 1.0
    y = problem.simulate(x)
    assert float(y[0, 0, 0, 3, 4]) == pytest.approx(0.975 + 0.025 * 8 / 14)
    assert float(y[0, 0, 1, 3, 4]) == pytest.approx(0.025 / 14)
    # The neighbour outside the block is lost: zero padding.
    assert float(y.sum()) == pytest.approx(1 - 0.025 / 14)


def test_heat_latents_span_the_unit_interval() -> None:
    problem = dc.problems.get("heat-2d")
    x = problem.sample(8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    flat = x.flatten(1)
    assert torch.equal(flat.amin(1), torch.zeros(8, dtype=torch.float64))
    assert torch.equal(flat.amax(1), torch.ones(8, dtype=torch.float64))


def test_heat_1d_prior_lives_in_ten_modes() -> None:
    problem = dc.problems.get("heat-1d")
    x = problem.sample(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = torch.linalg.svdvals(x)
    assert float(values[10] / values[0]) > 1e-4
    assert float(values[11] / values[0]) < 1e-10  # ten modes and the constant of min-max
