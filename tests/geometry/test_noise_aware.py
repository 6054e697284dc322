"""Noise-aware RJCP and the distance to the best gain, against dense closed forms."""

import pytest
import torch

import deceptron as dc
from deceptron.geometry import gain_distance, gain_errors, noise_aware_rjcp, optimal_gain, rjcp
from deceptron.maps import MLP
from deceptron.problems.prior import LowRankPrior
from tests.geometry.linear import N, generator, linear_case


class Identity:
    """C = I: the published penalty's prior."""

    variance = torch.ones(N, dtype=torch.float64)

    def sqrt(self, v):
        return v


@pytest.fixture(scope="module")
def case():
    return linear_case()


def settings(case, **more):
    return {"prior": case.prior, "noise_std": case.noise, **more}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, 1.3])
def test_the_diagnostic_is_the_trace_of_the_joseph_form(case, share):
    gain = share * case.best_gain
    value = noise_aware_rjcp(
        case.pair(gain),
        case.prior.mean.expand(2, N),
        **settings(case, probes=20000, generator=generator()),
    )
    wanted = case.covariance_of(gain).trace() / case.covariance.trace()
    torch.testing.assert_close(value, wanted.expand(2), rtol=0.03, atol=0)
    assert share > 0 or float(wanted) == pytest.approx(1.0)


def test_draws_have_the_joseph_covariance(case):
    gain = case.best_gain + 0.1
    errors = gain_errors(
        case.pair(gain),
        case.prior.mean[None],
        **settings(case, probes=40000, generator=generator()),
    )[0]
    wanted = case.covariance_of(gain)
    scale = wanted.diagonal().sqrt()
    deviation = (torch.cov(errors.T) - wanted) / scale[:, None] / scale
    assert float(deviation.abs().max()) < 0.04
    assert float((errors.mean(0) / scale).abs().max()) < 0.03


def test_the_best_gain_attains_the_trace_of_the_posterior(case):
    j, noise = case.jacobian, case.normalised_noise
    posterior = torch.linalg.inv(
        torch.linalg.inv(case.covariance) + j.T @ (j / noise.square()[:, None])
    )
    best = optimal_gain(case.pair(0 * case.best_gain), case.prior.mean[None], **settings(case))[0]
    torch.testing.assert_close(best, case.best_gain, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(case.covariance_of(best), posterior, rtol=1e-8, atol=1e-10)
    # Every other gain leaves more.
    for seed in range(5):
        other = best + 0.05 * torch.randn(best.shape, dtype=best.dtype, generator=generator(seed))
        assert case.covariance_of(other).trace() > posterior.trace()


def test_identity_prior_without_noise_is_the_published_penalty():
    maps = (MLP((N, 8, 6), activation="silu", generator=generator(1)) for _ in range(1))
    pair = dc.Deceptron(*maps, MLP((6, 8, N), activation="silu", generator=generator(2))).double()
    x = torch.randn(3, N, dtype=torch.float64, generator=generator(4))
    ours = noise_aware_rjcp(
        pair, x, prior=Identity(), noise_std=0.0, probes=4000, generator=generator()
    )
    theirs = rjcp(pair, x, probes=4000, kind="normal", generator=generator(9))
    torch.testing.assert_close(ours, theirs, rtol=0.1, atol=0)


def test_a_nonlinear_pair_against_its_dense_jacobians():
    """Same probes, dense algebra: equal to round-off."""
    pair = dc.Deceptron(
        MLP((N, 9, 6), activation="silu", generator=generator(1)),
        MLP((6, 9, N), activation="silu", generator=generator(2)),
    ).double()
    samples = torch.randn(50, N, dtype=torch.float64, generator=generator(3))
    prior = LowRankPrior.estimate(samples)
    x = torch.randn(3, N, dtype=torch.float64, generator=generator(4))
    found = gain_errors(pair, x, prior=prior, noise_std=0.3, probes=4, generator=generator(5))
    white = torch.randn(144, dtype=torch.float64, generator=generator(5))[: 3 * 4 * 11]
    white = white.reshape(3, 4, 11)
    for row in range(3):
        jacobian = torch.autograd.functional.jacobian(lambda z: pair.f(z[None])[0], x[row])
        y = pair.f(x[row : row + 1])[0].detach()
        gain = torch.autograd.functional.jacobian(lambda z: pair.g(z[None])[0], y)
        xi = prior.sqrt(white[row, :, :N])
        wanted = xi - (xi @ jacobian.T + 0.3 * white[row, :, N:]) @ gain.T
        torch.testing.assert_close(found[row], wanted, rtol=1e-10, atol=1e-12)


def test_distance_to_the_best_gain(case):
    x = case.prior.mean.expand(2, N)
    best, covariance = case.best_gain, case.jacobian @ case.covariance @ case.jacobian.T
    seen = covariance + case.normalised_noise.square().diag()

    def distance(gain, probes=16):
        return gain_distance(
            case.pair(gain), x, **settings(case, probes=probes, generator=generator())
        )

    torch.testing.assert_close(distance(best), torch.zeros(2).double(), rtol=0, atol=1e-18)
    torch.testing.assert_close(distance(0 * best), torch.ones(2).double())
    other = best + 0.1
    difference = other - best
    wanted = (difference @ seen @ difference.T).trace() / (best @ seen @ best.T).trace()
    torch.testing.assert_close(distance(other, 20000), wanted.expand(2), rtol=0.03, atol=0)


def test_the_simulator_can_stand_for_the_surrogate(case):
    """A useless f does not matter when J comes from the simulator."""
    pair = case.pair(case.best_gain)
    with torch.no_grad():
        pair.f.weight.mul_(0.1)
    x = case.prior.mean[None]
    arguments = settings(case, probes=2000, generator=generator())
    value = noise_aware_rjcp(pair, x, forward=lambda z: z @ case.matrix.T, **arguments)
    wanted = case.covariance_of(case.best_gain).trace() / case.covariance.trace()
    assert float(value) == pytest.approx(float(wanted), rel=0.1)


def test_rows_do_not_depend_on_later_rows(case):
    pair = case.pair(case.best_gain + 0.1)
    x = torch.randn(6, N, dtype=torch.float64, generator=generator(8))
    many = noise_aware_rjcp(pair, x, **settings(case, generator=generator()))
    few = noise_aware_rjcp(pair, x[:2], **settings(case, generator=generator()))
    torch.testing.assert_close(many[:2], few)
    assert not many.requires_grad


def test_mistakes(case):
    pair, x = case.pair(case.best_gain), case.prior.mean[None]
    with pytest.raises(dc.ConfigError, match="noise_std must be >= 0; got -1"):
        noise_aware_rjcp(pair, x, prior=case.prior, noise_std=-1.0)
    with pytest.raises(dc.ShapeError, match=r"noise_std must broadcast to one row of y"):
        noise_aware_rjcp(pair, x, prior=case.prior, noise_std=torch.ones(3))
    with pytest.raises(dc.ConfigError, match="noise_std must be > 0 for an optimal gain; got 0"):
        gain_distance(pair, x, prior=case.prior, noise_std=0.0)
    with pytest.raises(dc.ConfigError, match="probes must be an integer >= 1; got 0"):
        noise_aware_rjcp(pair, x, prior=case.prior, noise_std=1.0, probes=0)
    with pytest.raises(dc.ConfigError, match="pair must have methods f and g"):
        noise_aware_rjcp(torch.sin, x, prior=case.prior, noise_std=1.0)
