"""A pair of one grid at work on another."""

import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.core.differentiate import Linearisation
from deceptron.maps import MLP


def rows(problem, count=4, seed=0):
    x = problem.sample(count, generator=torch.Generator().manual_seed(seed))
    y = problem.add_noise(problem.simulate(x), generator=torch.Generator().manual_seed(seed + 1))
    return x, y


def rmse(a, b):
    return float((a - b).square().mean().sqrt())


@pytest.mark.parametrize("name", ["darcy-2d", "navier-stokes-2d", "advection-diffusion-2d"])
def test_the_network_errs_on_a_finer_grid_as_on_its_own(name):
    pair = dc.load(name)
    errors = []
    for grid in (32, 64):
        problem = dc.problems.get(name, grid=grid)
        x, y = rows(problem, 16)
        fine = pair.at_grid(grid)
        assert (fine.x_shape, fine.y_shape) == (problem.x_shape, problem.y_shape)
        errors.append(rmse(dc.solve(fine, y, method="one-shot").x, x))
    assert errors[1] < 1.5 * errors[0]


def test_a_fine_pair_works_on_a_coarser_grid_too():
    problem = dc.problems.get("advection-diffusion-2d", grid=24)
    pair = dc.load("advection-diffusion-2d").at_grid(24)
    x, y = rows(problem)
    assert rmse(dc.solve(pair, y, method="one-shot").x, x) < 0.05


def test_the_same_grid_is_the_same_pair():
    pair = dc.load("heat-1d")
    assert pair.at_grid(64) is pair


def test_it_survives_a_file(tmp_path):
    pair = dc.load("heat-2d").at_grid(48)
    _, y = rows(dc.problems.get("heat-2d", grid=48))
    loaded = dc.load(dc.save(pair, tmp_path / "pair"))
    assert (loaded.x_shape, loaded.name) == ((1, 48, 48), "heat-2d")
    for method in ("one-shot", "wiener"):
        a, b = (dc.solve(p, y, method=method).x for p in (pair, loaded))
        assert torch.equal(a, b)


def test_weights_are_shared_and_what_was_calibrated_elsewhere_is_not_kept():
    pair = dc.load("darcy-2d")
    fine = pair.at_grid(64)
    assert fine.g.inner is pair.g
    known = fine.calibration
    assert known.noise_std == pair.noise_std
    assert known.beliefs is known.family is known.interval_factor is None
    assert known.trust == pair.calibration.trust


def test_a_map_conditioned_on_noise_is_told_that_restricting_averages_it():
    pair = dc.load("heat-1d")
    fine = pair.at_grid(256)
    assert fine.g.inner.noise_ratio == pytest.approx(0.5, rel=0.05)
    assert pair.g.noise_ratio == 1.0
    louder = fine.at_noise(4 * pair.noise_std)
    assert louder.g.inner.noise_ratio == pytest.approx(4 * fine.g.inner.noise_ratio, rel=1e-4)


def test_its_derivatives_are_adjoint_to_each_other():
    pair = dc.load("navier-stokes-2d").at_grid(48).double()
    rng = torch.Generator().manual_seed(0)
    x, v = (torch.randn(2, 1, 48, 48, dtype=torch.float64, generator=rng) for _ in range(2))
    w = torch.randn(2, 2, 48, 48, dtype=torch.float64, generator=rng)
    linear = Linearisation(pair.f, 0.3 * x)
    left, right = (linear.jvp(v) * w).sum(), (v * linear.vjp(w)).sum()
    torch.testing.assert_close(left, right)


def test_what_cannot_be_transferred_says_so():
    by_hand = dc.Deceptron(nn.Linear(9, 9), nn.Linear(9, 9), x_shape=(9,), y_shape=(9,))
    with pytest.raises(dc.ConfigError, match="f is a Linear"):
        by_hand.at_grid(18)
    with pytest.raises(dc.ConfigError, match="needs a pair that knows x_shape"):
        dc.Deceptron(nn.Identity(), nn.Identity()).at_grid(18)
    vectors = dc.Deceptron(MLP((9, 9)), MLP((9, 9)))
    with pytest.raises(dc.ConfigError, match=r"state latents=\.\.\., one of periodic, cells"):
        vectors.at_grid(18)
    with pytest.raises(dc.ConfigError, match="latents"):
        vectors.at_grid(18, latents="square")
    few = dc.Deceptron(MLP((9, 4)), MLP((4, 9)))
    with pytest.raises(dc.ConfigError, match=r"needs y on the grid of x, shape \(9,\)"):
        few.at_grid(18, latents="cells", observations="cells")


def test_observations_that_are_not_on_the_grid_stay_as_they_are():
    few = dc.Deceptron(MLP((9, 4)), MLP((4, 9)))
    fine = few.at_grid(27, latents="cells")
    assert (fine.x_shape, fine.y_shape) == ((27,), (4,))
    y = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    x = fine.g(y)
    # Three cells for one: their best coarse field is the one that g gave.
    torch.testing.assert_close(fine.f(x), few.f(few.g(y)), rtol=1e-4, atol=1e-5)
    both = dc.Deceptron(MLP((9, 9)), MLP((9, 9)))
    assert both.at_grid(27, latents="cells").y_shape == (27,)
    assert both.at_grid(27, latents="cells", observations="fixed").y_shape == (9,)
