"""A start that explains its data is corrected where validation rows say that it pays."""

import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.train import calibrate

SENSORS, UNKNOWNS, NOISE = 120, 3, 0.05
MATRIX = torch.randn(SENSORS, UNKNOWNS, generator=torch.Generator().manual_seed(0)) / 4


class Forward(nn.Module):
    def forward(self, x):
        return x @ MATRIX.to(x).T


class Reverse(nn.Module):
    """Least squares, off by ``bias`` in the first unknown."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, y):
        x = y @ torch.linalg.pinv(MATRIX).to(y).T
        return x + self.bias * torch.eye(UNKNOWNS)[0].to(y)


def calibrated(bias: float) -> tuple[dc.problems.Problem, dc.Deceptron]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deceptron.problems.registry._DEFINED", {})
        problem = dc.problems.define(
            "many-sensors",
            simulate=Forward(),
            sample=lambda count, g: torch.rand(count, UNKNOWNS, generator=g),
            bounds=(0.0, 1.0),
            noise_std=NOISE,
            train_count=200,
            val_count=200,
            test_count=200,
        )
    pair = dc.Deceptron(forward=Forward(), reverse=Reverse(bias), bounds=(0.0, 1.0))
    calibrate(pair, problem, problem.dataset(0))
    return problem, pair


def rmse(solution: dc.Solution, x: torch.Tensor) -> float:
    return float((solution.x - x).square().mean().sqrt())


def test_a_start_that_is_off_by_less_than_the_data_show_is_corrected(tmp_path):
    problem, pair = calibrated(bias=0.05)
    assert pair.calibration.corrections.eager == (True, True)
    dc.save(pair, tmp_path / "pair.safetensors")
    again = dc.load(tmp_path / "pair.safetensors", forward=Forward(), reverse=Reverse(0.05))
    assert again.calibration.corrections.eager == (True, True)

    test = problem.dataset(1).test
    first = dc.solve(pair, test.y, method="one-shot")
    assert float(first.explained.double().mean()) > 0.8  # no test of the misfit sees it
    for forward in (None, problem):
        solution = dc.solve(pair, test.y, forward=forward)
        assert rmse(solution, test.x) < 0.8 * rmse(first, test.x)
        low, high = solution.interval(0.9)
        held = ((test.x >= low) & (test.x <= high)).double().mean()
        assert 0.84 < float(held) < 0.97
        explained = solution.status[solution.explained]
        assert bool((explained == dc.Status.CONVERGED).all())


def test_a_start_that_cannot_be_bettered_costs_one_evaluation():
    problem, pair = calibrated(bias=0.0)
    assert pair.calibration.corrections.eager == (False, False)
    test = problem.dataset(1).test
    solution = dc.solve(pair, test.y, forward=problem)
    assert float(solution.cost.forward.double().median()) == 1
