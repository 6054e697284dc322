"""Starts are left as they are where validation rows gained nothing by corrections.

y = x^2 does not show the sign of x: the mean of both answers, zero, is the best guess, explains
nothing, and every correction of it is one of them.
"""

import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.core.status import Reason
from deceptron.laws.calibration import Calibration
from deceptron.train import calibrate

UNKNOWNS = 4


class Forward(nn.Module):
    def __init__(self, power: int) -> None:
        super().__init__()
        self.power = power

    def forward(self, x):
        return x**self.power


class Mean(nn.Module):
    """Of both signs, but for a little that tells a correction where to go."""

    def forward(self, y):
        return 0.05 * torch.tanh(3 * y - 3)


def calibrated(power: int) -> tuple[dc.problems.Problem, dc.Deceptron]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deceptron.problems.registry._DEFINED", {})
        problem = dc.problems.define(
            f"power-{power}",
            simulate=Forward(power),
            sample=lambda count, g: torch.randn(count, UNKNOWNS, generator=g),
            bounds=(-6.0, 6.0),
            noise_std=0.05,
            train_count=200,
            val_count=200,
            test_count=200,
        )
    pair = dc.Deceptron(
        forward=Forward(power),
        reverse=Mean(),
        bounds=(-6.0, 6.0),
        x_shape=(UNKNOWNS,),
        y_shape=(UNKNOWNS,),
    )
    calibrate(pair, problem, problem.dataset(0))
    return problem, pair


def rmse(x: torch.Tensor, truth: torch.Tensor) -> float:
    return float((x - truth).square().mean(1).sqrt().mean())


def test_a_mean_of_several_answers_is_not_traded_for_one_of_them(tmp_path):
    problem, pair = calibrated(power=2)
    assert pair.calibration.corrections.keep == (True, True)
    assert max(pair.calibration.corrections.chance) < 0  # hardly a row is explained
    assert "several x may give the same y" in pair.verdict
    dc.save(pair, tmp_path / "pair.safetensors")
    again = dc.load(tmp_path / "pair.safetensors", forward=Forward(2), reverse=Mean())
    assert again.calibration.corrections.keep == (True, True)

    test = problem.dataset(1).test
    first = dc.solve(pair, test.y, method="one-shot")
    for forward in (None, problem):
        solution = dc.solve(pair, test.y, forward=forward)
        torch.testing.assert_close(solution.x, first.x)
        assert bool((solution.reason[~solution.explained] == Reason.START_IS_BETTER).all())
        assert not bool((solution.status[~solution.explained] == dc.Status.CONVERGED).any())
        low, high = solution.interval(0.9)
        assert 0.85 < float(((test.x >= low) & (test.x <= high)).double().mean()) < 0.96
    # Whoever wants an answer that explains the data asks for steps.
    asked = dc.solve(pair, test.y, forward=problem, max_iterations=6)
    assert float(asked.over_noise.median()) < 0.2 * float(first.over_noise.median())
    assert rmse(asked.x, test.x) > 1.1 * rmse(first.x, test.x)


class Wavy(nn.Module):
    """A surrogate that is right but for one row in ten, the large ones, which it never learned."""

    def forward(self, x):
        return torch.where(x.norm(dim=1, keepdim=True) < 2.8, x, 0.3 * x.flip(1))


class Echo(nn.Module):
    """The best answer, for every row."""

    def forward(self, y):
        return y


def test_a_surrogate_that_errs_corrects_nothing_unless_validation_rows_gain_by_it():
    problem = calibrated(power=1)[0]
    pair = dc.Deceptron(
        forward=Wavy(),
        reverse=Echo(),
        bounds=(-6.0, 6.0),
        x_shape=(UNKNOWNS,),
        y_shape=(UNKNOWNS,),
        calibration=Calibration(noise_std=0.05, surrogate_error=0.2),
    )
    calibrate(pair, problem, problem.dataset(0))
    assert pair.calibration.corrections.keep == (True, False)
    test = problem.dataset(1).test
    first = dc.solve(pair, test.y, method="one-shot")
    solution = dc.solve(pair, test.y)
    torch.testing.assert_close(solution.x, first.x)
    left = solution.reason == Reason.START_IS_BETTER
    assert 5 < int(left.sum()) < 60
    assert not bool(solution.explained[left].any())
    # On the simulator nothing stands in the way.
    assert bool(dc.solve(pair, test.y, forward=problem).explained.float().mean() > 0.9)


def test_a_poor_start_is_corrected_where_the_data_have_one_answer():
    problem, pair = calibrated(power=1)
    assert pair.calibration.corrections.keep == (False, False)
    test = problem.dataset(1).test
    assert rmse(dc.solve(pair, test.y, forward=problem).x, test.x) < 0.1


class Level(nn.Module):
    """A surrogate on which no correction does anything, so that none does harm."""

    def forward(self, x):
        return torch.ones_like(x) + 0 * x


@pytest.mark.parametrize("differentiable", [True, False])
def test_whether_corrections_do_harm_on_a_simulator_is_asked_of_the_simulator(differentiable):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deceptron.problems.registry._DEFINED", {})
        problem = dc.problems.define(
            "squares",
            simulate=lambda x: x.detach().square() if not differentiable else x.square(),
            sample=lambda count, g: torch.randn(count, UNKNOWNS, generator=g),
            bounds=(-6.0, 6.0),
            noise_std=0.05,
            differentiable=differentiable,
            train_count=200,
            val_count=200,
            test_count=200,
        )
    pair = dc.Deceptron(
        forward=Level(),
        reverse=Mean(),
        bounds=(-6.0, 6.0),
        x_shape=(UNKNOWNS,),
        y_shape=(UNKNOWNS,),
    )
    calibrate(pair, problem, problem.dataset(0))
    assert pair.calibration.corrections.keep[1]
    test = problem.dataset(1).test
    solution = dc.solve(pair, test.y, forward=problem)
    torch.testing.assert_close(solution.x, dc.solve(pair, test.y, method="one-shot").x)


def test_stating_the_noise_does_not_turn_the_errors_of_linearisations_into_signal():
    # Reflection of a thin film: interference, so bent that few rows are explained by any start.
    wavelength = torch.linspace(0.4, 0.8, 50)

    def simulate(x):
        index, path = 1.3 + x[:, 1:2], (1 + 4 * x[:, :1]) * (0.1 + 0.3 * x[:, 2:])
        mirror = ((index - 1) / (index + 1)) ** 2
        finesse = 4 * mirror / (1 - mirror) ** 2
        wave = finesse * torch.sin(2 * torch.pi * index * path / wavelength.to(x)) ** 2
        return wave / (1 + wave)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deceptron.problems.registry._DEFINED", {})
        problem = dc.problems.define(
            "film",
            simulate=simulate,
            sample=lambda count, g: torch.rand(count, 3, generator=g),
            bounds=(0.0, 1.0),
            noise_std=0.01,
            train_count=400,
            val_count=100,
            test_count=80,
        )
    pair = dc.train(problem, "smoke", progress=False)
    rows = problem.dataset(17).test
    stated = dc.solve(pair, rows.y, forward=problem, noise_std=problem.noise_std)
    low, high = stated.interval(0.9)
    assert ((rows.x >= low) & (rows.x <= high)).double().mean() > 0.8
