"""Wrong sensors: found where the others can tell, and nobody suspected for being unusual."""

from __future__ import annotations

import pytest
import torch

import deceptron as dc
from deceptron.core.bases import DiagonalGaussian, principal
from deceptron.core.filling import surprise

ROWS = 24


def dense_surprise(mean, covariance, noise, row):
    """Each component against its mean given all others, by the textbook."""
    found = torch.zeros_like(row)
    whole = covariance + noise.square().diag()
    for k in range(len(row)):
        rest = [i for i in range(len(row)) if i != k]
        gain = torch.linalg.solve(whole[rest][:, rest], whole[rest, k])
        likely = mean[k] + gain @ (row[rest] - mean[rest])
        variance = whole[k, k] - gain @ whole[rest, k]
        found[k] = (row[k] - likely) / variance.sqrt()
    return found


def test_distances_are_those_of_the_textbook():
    draw = torch.Generator().manual_seed(0)
    mixing = torch.randn(6, 6, generator=draw, dtype=torch.float64)
    rows = torch.randn(500, 6, generator=draw, dtype=torch.float64) @ mixing
    basis, spectrum = principal(rows, 6)
    family = DiagonalGaussian(rows.mean(0), basis, spectrum)
    noise = torch.full((6,), 0.3, dtype=torch.float64)
    found = surprise(family, rows[:5], torch.zeros(5, 6, dtype=torch.bool), noise[None])
    covariance = family.apply(torch.eye(6, dtype=torch.float64))
    expected = [dense_surprise(family.mean, covariance, noise, row) for row in rows[:5]]
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module", params=["heat-1d", "darcy-2d", "navier-stokes-2d"])
def case(request):
    problem, pair = dc.problems.get(request.param), dc.load(request.param)
    x = problem.sample(ROWS, generator=torch.Generator().manual_seed(0))
    y = problem.add_noise(problem.simulate(x), generator=torch.Generator().manual_seed(1))
    return problem, pair, x, y


def spoiled(problem, y, size, count=2):
    draw, n = torch.Generator().manual_seed(2), y[0].numel()
    places = torch.stack([torch.randperm(n, generator=draw)[:count] for _ in y])
    wrong = torch.zeros(len(y), n, dtype=torch.bool).scatter_(1, places, True).reshape(y.shape)
    return torch.where(wrong, y + size * problem.noise_std, y), wrong


def test_wrong_sensors_are_found_and_no_others(case):
    problem, pair, _, y = case
    off, wrong = spoiled(problem, y, 20.0)
    found = dc.outliers(pair, off)
    assert found.shape == y.shape
    assert float((found & wrong).sum() / wrong.sum()) > 0.85
    assert int((found & ~wrong).sum()) <= 1
    assert int(dc.outliers(pair, y).sum()) <= 1


def test_answers_are_those_without_the_mistake(case):
    problem, pair, x, y = case
    off, _ = spoiled(problem, y, 40.0)
    mended = off.masked_fill(dc.outliers(pair, off), torch.nan)
    clean, hurt, again = (
        float((dc.solve(pair, rows, method="one-shot").x - x).square().mean().sqrt())
        for rows in (y, off, mended)
    )
    assert hurt > 1.02 * clean
    assert again < clean + 0.25 * (hurt - clean)


def test_gaps_broken_numbers_and_noise_that_is_told(case):
    problem, pair, _, y = case
    off, wrong = spoiled(problem, y, 20.0)
    gappy = off.clone()
    gone = torch.rand(y.shape, generator=torch.Generator().manual_seed(3)) < 0.2
    gappy[gone] = torch.nan
    found = dc.outliers(pair, gappy)
    assert not bool((found & gone).any())
    assert float((found & wrong).sum() / (wrong & ~gone).sum()) > 0.75
    broken = y.clone()
    broken[3].view(-1)[5] = torch.inf
    assert bool(dc.outliers(pair, broken)[3].view(-1)[5])
    # Ten times the noise, told or not, makes nobody wrong.
    draw = torch.Generator().manual_seed(4)
    noisy = y + 10 * problem.noise_std * torch.randn(y.shape, generator=draw)
    for told in (None, 10 * problem.noise_std):
        assert int(dc.outliers(pair, noisy, noise_std=told).sum()) <= 2
    assert not bool(dc.outliers(pair, off, noise_std=10 * problem.noise_std).any())


def test_rows_unlike_the_training_data_are_left_alone():
    for name in ("heat-2d", "heat-3d", "darcy-2d", "navier-stokes-2d"):
        problem, pair = dc.problems.get(name), dc.load(name)
        data = problem.dataset(7)
        for rows in (data.shifted.y[:ROWS], data.extreme.y[:ROWS]):
            assert int(dc.outliers(pair, rows).sum()) <= 2


def test_rows_are_judged_alone(case):
    problem, pair, _, y = case
    off, _ = spoiled(problem, y, 20.0)
    together = dc.outliers(pair, off)
    assert torch.equal(dc.outliers(pair, off[4:5])[0], together[4])
    noise = torch.full((ROWS, *(1,) * (y.ndim - 1)), float(problem.noise_std))
    assert torch.equal(dc.outliers(pair, off, noise_std=noise), together)


def test_mistakes_are_named():
    plain = dc.Deceptron(torch.nn.Identity(), torch.nn.Identity(), x_shape=(4,), y_shape=(4,))
    with pytest.raises(dc.ConfigError, match="outliers needs a calibrated pair"):
        dc.outliers(plain, torch.zeros(2, 4))
    pair = dc.load("heat-1d")
    for wrong in ({"limit": 0.0}, {"most": 1.5}, {"noise_std": 0.0}):
        with pytest.raises(dc.ConfigError, match=next(iter(wrong))):
            dc.outliers(pair, torch.zeros(2, 64), **wrong)
