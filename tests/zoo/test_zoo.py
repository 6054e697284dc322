"""The models that ship: all seven, small, and as good as their cards say."""

from importlib import resources

import pytest
import torch

import deceptron as dc

# One-shot RMSE on noisy data, with room for 32 instances instead of the cards' 300.
CEILING = {
    "heat-1d": 0.16,
    "heat-2d": 0.0015,
    "heat-3d": 0.0015,
    "darcy-2d": 0.05,
    "advection-diffusion-2d": 0.02,
    "allen-cahn-2d": 0.015,
    "navier-stokes-2d": 0.03,
}
# The same for the linear estimate.
LINEAR_CEILING = {
    "heat-1d": 0.16,
    "heat-2d": 0.002,
    "heat-3d": 0.0015,
    "darcy-2d": 0.19,
    "advection-diffusion-2d": 0.045,
    "allen-cahn-2d": 0.02,
    "navier-stokes-2d": 0.13,
}


def test_every_problem_has_a_model_and_a_card():
    assert set(dc.maps.shipped()) == set(CEILING)
    for name in CEILING:
        files = resources.files("deceptron") / "zoo"
        assert "RMSE" in (files / f"{name}.md").read_text()
        assert len((files / f"{name}.safetensors").read_bytes()) <= 4 * 2**20


@pytest.mark.parametrize("name", CEILING)
def test_the_model_does_what_its_card_says(name):
    pair, problem = dc.load(name), dc.problems.get(name)
    assert pair.name == name
    assert pair.x_shape == problem.x_shape
    assert pair.y_shape == problem.y_shape
    latents, noise = (torch.Generator().manual_seed(seed) for seed in (100, 101))
    x = problem.sample(32, generator=latents)
    with torch.no_grad():
        y = problem.add_noise(problem.simulate(x), generator=noise)
    solution = dc.solve(pair, y, method="one-shot")
    rmse = (solution.x - x).flatten(1).square().mean(1).sqrt().mean()
    assert float(rmse) < CEILING[name]
    linear = dc.solve(pair, y, method="wiener")
    rmse = (linear.x - x).flatten(1).square().mean(1).sqrt().mean()
    assert float(rmse) < LINEAR_CEILING[name]
    # The surrogate predicts the observations about as well as its training noted.
    with torch.no_grad():
        error = (pair.f(x) - pair.scaler.normalise(problem.simulate(x))).square().mean().sqrt()
    assert float(error) < 2 * pair.surrogate_error
