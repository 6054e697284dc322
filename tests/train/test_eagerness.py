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


def calibrated(
    bias: float, noise: float = NOISE, spread: float = 1.0
) -> tuple[dc.problems.Problem, dc.Deceptron]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deceptron.problems.registry._DEFINED", {})
        problem = dc.problems.define(
            "many-sensors",
            simulate=Forward(),
            sample=lambda count, g: 0.5 + spread * (torch.rand(count, UNKNOWNS, generator=g) - 0.5),
            bounds=(0.0, 1.0),
            noise_std=noise,
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


class Shifted(nn.Module):
    """A surrogate with the bias of ``Reverse``, so that it sees nothing wrong with it."""

    def forward(self, x):
        return (x - 0.05 * torch.eye(UNKNOWNS)[0].to(x)) @ MATRIX.to(x).T


def test_a_simulator_without_derivatives_is_asked_too(monkeypatch):
    monkeypatch.setattr("deceptron.problems.registry._DEFINED", {})
    simulator = dc.simulators.wrap(lambda x: x @ MATRIX.numpy().T.astype(float))
    problem = dc.problems.define(
        "values-only",
        simulate=simulator,
        sample=lambda count, g: torch.rand(count, UNKNOWNS, generator=g),
        bounds=(0.0, 1.0),
        noise_std=NOISE,
        train_count=200,
        val_count=200,
    )
    pair = dc.Deceptron(forward=Shifted(), reverse=Reverse(0.05), bounds=(0.0, 1.0))
    data = problem.dataset(0)
    assert len(data.train.y) + len(data.val.y) == 400
    simulator.reset()
    calibrate(pair, problem, data)
    assert pair.calibration.corrections.eager == (False, True)
    # Four ways to answer 48 rows, each with a few values a row.
    assert 0 < simulator.calls.values < 4 * 48 * 3 * UNKNOWNS


def test_a_start_that_cannot_be_bettered_costs_one_evaluation():
    problem, pair = calibrated(bias=0.0)
    assert pair.calibration.corrections.eager == (False, False)
    # One row in a hundred misses the limit all the same, most likely by chance.
    assert min(pair.calibration.corrections.chance) > 0
    test = problem.dataset(1).test
    solution = dc.solve(pair, test.y, forward=problem)
    assert float(solution.cost.forward.double().median()) == 1


def test_the_family_answers_where_it_knows_more_than_the_data(tmp_path):
    """Data that tell little, a family that is narrow, and a g that believes the data."""
    problem, pair = calibrated(bias=0.0, noise=2.0)
    corrections = pair.calibration.corrections
    assert corrections.by_family == (True, True)
    assert corrections.eager == (True, True)
    test = problem.dataset(1).test
    solution = dc.solve(pair, test.y, forward=problem)
    # Its answer is the posterior mean, in closed form: f is linear.
    family = pair.calibration.family
    covariance = family.apply(torch.eye(UNKNOWNS, dtype=torch.float64))
    a = MATRIX.double() / 2.0
    precision = a.T @ a + torch.linalg.inv(covariance)
    mean = family.mean.double()
    off = (test.y.double() / 2.0 - mean @ a.T) @ a
    exact = (mean + torch.linalg.solve(precision, off.T).T).clamp(0.0, 1.0)
    kept = solution.explained
    assert float(kept.double().mean()) > 0.9
    # One row in a hundred of the family looks foreign to it by chance.
    same = (solution.x[kept].double() - exact[kept]).abs().amax(1) < 2e-4
    assert float(same.double().mean()) > 0.95
    low, high = solution.interval(0.9)
    held = ((test.x >= low) & (test.x <= high)).double().mean()
    assert 0.85 < float(held) < 0.96
    dc.save(pair, tmp_path / "pair.safetensors")
    again = dc.load(tmp_path / "pair.safetensors", forward=Forward(), reverse=Reverse(0.0))
    torch.testing.assert_close(dc.solve(again, test.y, forward=problem).std, solution.std)


def test_rows_that_are_not_of_the_family_are_not_pulled_to_it():
    problem, pair = calibrated(bias=0.0, spread=0.02)
    assert pair.calibration.corrections.by_family == (True, True)
    # Far away, each of them: the family is a speck at 0.5.
    drawn = torch.rand(50, UNKNOWNS, generator=torch.Generator().manual_seed(3))
    x = torch.where(drawn > 0.5, 0.5 + drawn / 2, drawn / 2)
    y = problem.add_noise(problem.simulate(x), generator=torch.Generator().manual_seed(4))
    solution = dc.solve(pair, y, forward=problem)
    assert float(solution.explained.double().mean()) > 0.9
    assert rmse(solution, x) < 1.05 * rmse(dc.solve(pair, y, method="lm", forward=problem), x)
