"""A cell's tables against a problem whose every iterate is known in closed form."""

import numpy as np
import pytest
import torch

import deceptron as dc
from deceptron_paper.study.cell import Cell
from deceptron_paper.study.solving import solve_cell
from deceptron_paper.study.tables import INSTANCES, STEPS

ROWS = 70  # more than are solved together


@pytest.fixture(scope="module")
def linear():
    """y = A x + noise with its exact surrogate and inverse; answers stay inside the box."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.eye(4) + 0.2 * torch.randn(4, 4, generator=generator)
    problem = dc.problems.define(
        "linear-4",
        simulate=lambda x: x @ matrix.T,
        sample=lambda count, g: 0.3 + 0.4 * torch.rand(count, 4, generator=g),
        bounds=(0.0, 1.0),
        noise_std=0.01,
        train_count=200,
        test_count=ROWS,
    )
    f, g = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        f.weight.copy_(matrix)
        g.weight.copy_(torch.linalg.inv(matrix))
    data = problem.dataset(3)
    wiener = dc.maps.Wiener.fit(data.train.x, data.train.y, noise_std=0.01)
    pair = dc.Deceptron(f, g, bounds=problem.bounds, x_shape=(4,), wiener=wiener)
    return problem, pair.requires_grad_(False), data.test


def run(linear, method, **changes):
    settings = {"instances": ROWS, "max_iterations": 6, **changes}
    return solve_cell(Cell("linear-4", "test", "standard", 7, method, **settings), *linear)


def test_steps_follow_the_closed_form_of_the_published_method(linear):
    """While step size 1 is accepted, x_t = g(y) + 0.6^t (x_0 - g(y))."""
    _, pair, split = linear
    result = run(linear, "d-ipg-free")
    assert list(result.steps.columns) == list(STEPS)
    assert list(result.instances.columns) == list(INSTANCES)
    answer = pair.g(split.y)
    for t in (0, 1, 6):
        x = answer - 0.6**t * answer
        rows = result.steps[result.steps["step"] == t].sort_values("instance")
        assert list(rows["instance"]) == list(range(ROWS))
        rmse = (x - split.x).square().mean(1).sqrt().numpy()
        np.testing.assert_allclose(rows["rmse"], rmse, rtol=1e-4)
        np.testing.assert_allclose(rows["relative_residual"], 0.6**t, rtol=1e-4)
    moved = result.steps[result.steps["step"] > 0]
    first = result.steps[result.steps["step"] == 0].set_index("instance")["residual"]
    expected = first[moved["instance"]].to_numpy() * 0.6 ** (moved["step"] - 1) * 0.4
    np.testing.assert_allclose(moved["decrease"], expected, rtol=1e-4)
    assert (moved["step_size"] == 1.0).all()
    assert (moved["trials"] == 1).all()
    assert result.steps[result.steps["step"] == 0]["cosine"].isna().all()


def test_instances_hold_what_the_solve_returned(linear):
    _, pair, split = linear
    result = run(linear, "d-ipg-tuned", max_iterations=30)
    table = result.instances
    alone = dc.solve(pair, split.y, method="d-ipg", noise_std=0.01, max_iterations=30)
    assert list(table["instance"]) == list(range(ROWS))
    assert list(table["iterations"]) == alone.iterations.tolist()
    assert set(table["status"]) == {"CONVERGED"}
    assert set(table["reason"]) == {"DISCREPANCY"}
    np.testing.assert_allclose(table["residual"], alone.residual, rtol=1e-5)
    np.testing.assert_allclose(
        table["rmse"], (alone.x - split.x).square().mean(1).sqrt(), rtol=1e-4
    )
    misfit = (alone.x @ pair.f.weight.T - split.y).square().mean(1).sqrt()
    np.testing.assert_allclose(table["true_residual"], misfit, rtol=1e-3)
    np.testing.assert_allclose(table["noise_level"], 0.01, rtol=1e-5)
    # f at the start and at each trial; one g a step; one vjp a step.
    assert (table["f"] == 1 + table["iterations"]).all()
    assert (table["g"] == table["iterations"]).all()
    assert (table["evaluations"] == table[["f", "g", "jvp", "vjp"]].sum(axis=1)).all()
    assert (table["accepted_fraction"] == 1.0).all()
    # The pair is an exact inverse: the composition has no defect, measured on the first rows.
    assert (table["rjcp"].iloc[:64] < 1e-9).all()
    assert table["rjcp"].iloc[64:].isna().all()
    last = result.steps.groupby("instance").last()
    assert list(last["evaluations"]) == list(table["evaluations"])
    np.testing.assert_allclose(last["seconds"], table["seconds"], rtol=1e-9)
    assert result.facts["latency_ms"] > 0
    assert result.fields["x"].shape == (3, 4)


def test_a_direct_method_is_one_point(linear):
    result = run(linear, "one-shot", max_iterations=None)
    assert (result.steps["step"] == 0).all()
    assert len(result.steps) == ROWS
    assert set(result.instances["reason"]) == {"DIRECT"}
    assert result.instances["accepted_fraction"].isna().all()
    np.testing.assert_allclose(result.instances["rmse"], result.steps["rmse"])


def test_methods_without_g_have_no_composition_defect(linear):
    result = run(linear, "lm-true", instances=3)
    assert result.instances["rjcp"].isna().all()
    assert (result.instances["linear_steps"] > 0).any() or (result.instances["jvp"] > 0).all()


def posterior_mean(linear, count):
    """For a linear problem and a Gaussian prior: m + C A' (A C A' + S)^-1 (y - A m)."""
    problem, pair, split = linear
    matrix, prior = pair.f.weight.double(), problem.prior
    covariance = prior.apply(torch.eye(4, dtype=torch.float64))
    innovation = matrix @ covariance @ matrix.T + 1e-4 * torch.eye(4)
    gain = covariance @ matrix.T @ torch.linalg.inv(innovation)
    return prior.mean + (split.y[:count].double() - matrix @ prior.mean) @ gain.T


def test_the_oracle_is_the_mean_of_the_posterior(linear):
    _, pair, split = linear
    result = run(linear, "gn-prior", instances=5, max_iterations=None)
    np.testing.assert_allclose(result.fields["x"], posterior_mean(linear, 3), atol=1e-4)
    start = result.steps[result.steps["step"] == 0]["rmse"]
    linear_estimate = pair.wiener(split.y[:5]).clamp(0, 1)
    error = (linear_estimate - split.x[:5]).square().mean(1).sqrt()
    np.testing.assert_allclose(start, error, rtol=1e-4)


@pytest.mark.parametrize("method", ["gn-cold", "lm-cold", "l-bfgs-cold", "guarded-prior"])
def test_methods_with_the_prior_end_at_the_mean_of_the_posterior(linear, method):
    problem, _, split = linear
    result = run(linear, method, instances=5, max_iterations=None)
    # They stop at a share of the first gradient, which on this problem is close enough.
    np.testing.assert_allclose(result.fields["x"], posterior_mean(linear, 3), atol=1e-2)
    assert "latency_ms" not in result.facts
    if method != "guarded-prior":
        start = result.steps[result.steps["step"] == 0]["rmse"]
        error = (problem.prior.mean - split.x[:5].double()).square().mean(1).sqrt()
        np.testing.assert_allclose(start, error, rtol=1e-4)
        assert (result.instances["g"] == 0).all()
