"""Priors: their powers fit together and their moments are those of the samples."""

from __future__ import annotations

import pytest
import torch

import deceptron as dc
from deceptron.problems.prior import LowRankPrior, SpectralPrior
from tests.problems.small import NAMES, generator, small


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_powers_fit_together(name: str, dtype: torch.dtype) -> None:
    prior = small(name).prior
    v = torch.randn(3, *prior.mean.shape, dtype=dtype, generator=generator())
    tolerance = {"rtol": 1e-3, "atol": 3e-3} if dtype == torch.float32 else {}
    torch.testing.assert_close(prior.sqrt(prior.sqrt(v)), prior.apply(v), **tolerance)
    torch.testing.assert_close(prior.whiten(prior.sqrt(v)), v, **tolerance)
    if dtype == torch.float64:
        torch.testing.assert_close(prior.solve(prior.apply(v)), v, rtol=1e-6, atol=1e-8)
    assert prior.apply(v).dtype == dtype
    w = torch.randn(3, *prior.mean.shape, dtype=dtype, generator=generator(1))
    left, right = (prior.apply(v) * w).sum(), (v * prior.apply(w)).sum()
    torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_variance_is_the_diagonal_of_the_covariance(name: str) -> None:
    prior = small(name).prior
    n = prior.mean.numel()
    unit = torch.eye(n, dtype=torch.float64).reshape(n, *prior.mean.shape)
    diagonal = prior.apply(unit).reshape(n, n).diagonal().reshape(prior.mean.shape)
    torch.testing.assert_close(prior.variance, diagonal)


@pytest.mark.parametrize("name", NAMES)
def test_moments_are_those_of_fresh_samples(name: str) -> None:
    problem = dc.problems.get(name)
    prior = problem.prior
    x = problem.sample(1024, generator=generator(99), dtype=torch.float64)
    assert float((x.mean(0) - prior.mean).abs().max()) < 0.15 * float(x.std(0).max())
    direction = torch.zeros(1, *problem.x_shape, dtype=torch.float64)
    direction.view(-1)[: direction.numel() // 2] = 1.0
    predicted = float((direction * prior.apply(direction)).sum())
    measured = float(((x - x.mean(0)) * direction).flatten(1).sum(1).var())
    assert predicted == pytest.approx(measured, rel=0.2)
    total = float((x - x.mean(0)).square().flatten(1).sum(1).mean())
    draws = prior.sample(512, generator=generator(5), dtype=torch.float64) - prior.mean
    assert float(draws.square().flatten(1).sum(1).mean()) == pytest.approx(total, rel=0.1)


def test_draws_ignore_later_rows() -> None:
    prior = small("darcy-2d").prior
    many, few = (prior.sample(n, generator=generator(1)) for n in (70, 3))
    assert torch.equal(many[:3], few)


def test_low_rank_prior_against_a_dense_covariance() -> None:
    x = torch.randn(500, 6, dtype=torch.float64, generator=generator()) * torch.arange(1, 7)
    prior = LowRankPrior.estimate(x)
    identity = torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(prior.apply(identity), torch.cov(x.T))
    short = LowRankPrior.estimate(x, rank=2)
    values = torch.linalg.eigvalsh(torch.cov(x.T))
    torch.testing.assert_close(
        torch.linalg.eigvalsh(short.apply(identity)),
        torch.cat([values[:4].mean().expand(4), values[4:]]),
    )


def test_randomised_estimate_for_many_unknowns() -> None:
    root = torch.randn(8, 2100, dtype=torch.float64, generator=generator())
    x = torch.randn(2100, 8, dtype=torch.float64, generator=generator(1)) @ root
    state = torch.get_rng_state()
    prior = LowRankPrior.estimate(x, rank=16)
    assert torch.equal(state, torch.get_rng_state())
    v = torch.randn(2, 2100, dtype=torch.float64, generator=generator(2))
    centred = x - x.mean(0)
    exact = (v @ centred.T) @ centred / (len(x) - 1)
    assert float((prior.apply(v) - exact).norm() / exact.norm()) < 1e-3


def test_spectral_prior_is_stationary() -> None:
    prior = dc.problems.get("navier-stokes-2d").prior
    assert isinstance(prior, SpectralPrior)
    v = torch.randn(1, 1, 32, 32, dtype=torch.float64, generator=generator())
    shifted = prior.apply(v.roll((3, 5), (-2, -1)))
    torch.testing.assert_close(shifted, prior.apply(v).roll((3, 5), (-2, -1)))


def test_prior_mistakes() -> None:
    with pytest.raises(dc.ConfigError, match="at least 2 rows"):
        LowRankPrior.estimate(torch.rand(1, 4))
    with pytest.raises(dc.ConfigError, match="all rows are equal"):
        LowRankPrior.estimate(torch.ones(5, 4))
    with pytest.raises(dc.ShapeError, match="v must have shape"):
        small("heat-1d").prior.apply(torch.rand(2, 5))


def test_the_inverse_of_a_small_floor_survives_single_precision() -> None:
    """Inside the span two terms a million times larger than the result cancel."""
    prior = dc.problems.get("heat-1d").prior
    v = prior.sample(4, generator=generator(1)) - prior.mean.float()
    exact = prior.solve(v.double())
    single = prior.solve(v)
    assert single.dtype == torch.float32
    assert float((single - exact).norm() / exact.norm()) < 1e-6


def test_on_a_fine_grid_the_prior_needs_no_full_decomposition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = dc.problems.get("darcy-2d", grid=16).sample(
        400, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    dense = LowRankPrior.estimate(samples, rank=32)
    monkeypatch.setattr("deceptron.problems.prior.LARGEST_DENSE", 1)
    quick = LowRankPrior.estimate(samples, rank=32)
    torch.testing.assert_close(quick.variance, dense.variance, rtol=1e-3, atol=0)
    torch.testing.assert_close(quick.apply(samples), dense.apply(samples), rtol=1e-2, atol=1e-4)
