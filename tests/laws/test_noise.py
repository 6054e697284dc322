"""What it costs to say that a row is noisier than was stated, and who pays."""

import math

import pytest
import torch

from deceptron.laws.noise import MISTOLD, PREFERENCE, noise_limit, price, priced
from tests.laws.dense import normal

ROWS = 4000


def chi_squared(count, *, scale=1.0, seed=0):
    """Quadratic forms of rows of pure noise."""
    return (scale * normal(ROWS, count, seed=seed)).square().sum(1)


def told_or_not(value, count, *, told, loudest=math.inf):
    each = torch.full_like(value, float(count))
    return priced(value, each, torch.full_like(value, loudest), told=told)


@pytest.mark.parametrize("count", [8, 60, 1000])
def test_a_row_of_right_noise_is_not_said_to_be_noisier(count):
    """Once in some hundred rows, three deviations out, where the noise was told."""
    value = chi_squared(count)
    cost, noise = told_or_not(value, count, told=True)
    assert float((noise > 1).double().mean()) < 0.01
    assert torch.equal(cost[noise == 1], value[noise == 1])


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("scale", [2.0, 10.0])
def test_ten_times_the_noise_is_found_to_a_tenth(told, scale):
    count = 400  # its root mean square is off by 3.5%
    _, noise = told_or_not(chi_squared(count, scale=scale), count, told=told)
    assert float(noise.median()) == pytest.approx(scale, rel=0.01)
    assert float((noise / scale - 1).abs().max()) < 0.2
    assert float(((noise / scale - 1).abs() < 0.1).double().mean()) > 0.99


@pytest.mark.parametrize("told", [True, False])
def test_what_is_louder_than_it_may_be_is_as_loud_as_it_may_be(told):
    value = chi_squared(100, scale=10.0)
    _, noise = told_or_not(value, 100, told=told, loudest=3.0)
    assert bool((noise == 3.0).all())
    cost, none = told_or_not(value, 100, told=told, loudest=1.0)
    assert bool((none == 1.0).all())
    assert torch.equal(cost, value)


@pytest.mark.parametrize("told", [True, False])
def test_the_cost_is_minus_twice_the_log_posterior_of_the_noise(told):
    """``v^-PREFERENCE`` times the density of the data under ``v^2``, and the odds of a mistake."""
    count = 30
    value = chi_squared(count, scale=4.0)[:50]
    cost, noise = told_or_not(value, count, told=told)
    assert bool((noise > 1).all())
    data = count * (2 * noise.log() + math.log(2 * math.pi)) + value / noise**2
    prior = -PREFERENCE * noise.log() + (math.log(MISTOLD) if told else 0.0)
    exact = data - 2 * prior
    torch.testing.assert_close(cost, exact - count * math.log(2 * math.pi))


def test_the_price_of_the_stated_noise_is_nothing_and_more_costs_more():
    v = torch.tensor([1.0, 1.0001, 2.0, 4.0], dtype=torch.float64)
    free, told = price(v, told=False), price(v, told=True)
    assert float(free[0]) == float(told[0]) == 0.0
    assert bool((free.diff() > 0).all() & (told.diff() > 0).all())
    torch.testing.assert_close(
        (told - free)[1:], torch.full((3,), -2 * math.log(MISTOLD), dtype=torch.float64)
    )


@pytest.mark.parametrize("count", [20, 200])
def test_pure_noise_stays_below_its_limit_in_99_rows_of_100(count):
    limit = noise_limit(torch.tensor([float(count)], dtype=torch.float64))
    below = chi_squared(count, seed=3).div(count).sqrt() <= limit
    assert 0.98 < float(below.double().mean()) < 0.997
