"""Errors and true misfits against what they are defined to be, on a pair that is exact."""

import pytest
import torch

import deceptron as dc
from benchmarks.quality import assess
from deceptron.demo import run_demo
from deceptron.measure import measure


@pytest.fixture(scope="module")
def linear():
    """y = A x + noise: surrogate, inverse and simulator are known in closed form."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.eye(5) + 0.2 * torch.randn(5, 5, generator=generator)
    problem = dc.problems.define(
        "linear-5",
        simulate=lambda x: x @ matrix.T,
        sample=lambda count, g: torch.rand(count, 5, generator=g),
        bounds=(0.0, 1.0),
        noise_std=0.05,
        train_count=400,
        test_count=64,
    )
    return problem, matrix


def test_measure_compares_with_the_truth_and_the_simulator(linear):
    problem, matrix = linear
    f, g = torch.nn.Linear(5, 5, bias=False), torch.nn.Linear(5, 5, bias=False)
    with torch.no_grad():
        f.weight.copy_(matrix)
        g.weight.copy_(torch.linalg.inv(matrix))
    pair = dc.Deceptron(f, g, bounds=problem.bounds)
    test = problem.dataset(3).test
    result = measure(pair, problem, test.x, test.y, label="g", method="one-shot")
    x = (test.y @ torch.linalg.inv(matrix).T).clamp(0, 1)
    torch.testing.assert_close(result.rmse, (x - test.x).square().mean(1).sqrt())
    misfit = ((x @ matrix.T - test.y) / 0.05).square().mean(1).sqrt()
    torch.testing.assert_close(result.true_residual, misfit, rtol=1e-4, atol=1e-5)
    assert result.summary()["RMSE"] == pytest.approx(float(result.rmse.mean()))


def test_assess_knows_an_exact_surrogate_and_an_exact_inverse(linear):
    problem, matrix = linear
    data = problem.dataset(3)
    scale, shift = data.scaler.scale, data.scaler.shift
    forward, reverse = torch.nn.Linear(5, 5), torch.nn.Linear(5, 5)
    with torch.no_grad():
        forward.weight.copy_(matrix / scale[:, None])
        forward.bias.copy_(-shift / scale)
        reverse.weight.copy_(torch.linalg.inv(matrix) * scale)
        reverse.bias.copy_(torch.linalg.inv(matrix) @ shift)
    pair = dc.Deceptron(forward, reverse, scaler=data.scaler, bounds=problem.bounds)
    quality = assess(pair, problem, data)
    assert quality.surrogate_error < 1e-5
    assert quality.surrogate_below_noise
    assert quality.rjcp < 1e-6
    # The ridge knows the prior, the exact inverse only the box; which wins hangs on the matrix.
    assert quality.rmse("wiener") < 1.2 * quality.rmse("one-shot")


def test_demo_refuses_no_instances():
    with pytest.raises(dc.ConfigError, match="count must be an integer >= 1; got 0"):
        run_demo("heat-1d", count=0)
