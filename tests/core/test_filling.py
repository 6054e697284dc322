"""Missing sensors filled by the covariance of the data, against a dense solve."""

import pytest
import torch

import deceptron as dc
from deceptron.core.bases import DiagonalGaussian, GridBasis
from deceptron.core.filling import filled

M = 24 * 24


def family():
    basis = GridBasis((24, 24), ("cosine", "cosine"))
    spectrum = (1 + basis.wavenumbers.square() / 4) ** -2.0
    return DiagonalGaussian(torch.linspace(-1, 1, M).double(), basis, spectrum)


def likeliest(law, target, missing, noise):
    eye = torch.eye(target.shape[1]).double()
    covariance = law.basis.back(law.spectrum * law.basis.forward(eye))
    result = target.clone()
    for row, gone, own in zip(result, missing, noise.expand(len(target), -1), strict=True):
        seen = ~gone
        system = covariance[seen][:, seen] + own[seen].square().diag()
        mean = law.mean.double().flatten()
        weights = torch.linalg.solve(system, (row - mean)[seen])
        row[gone] = (mean + covariance[:, seen] @ weights)[gone]
    return result


# From noise that hardly counts to some that does, and of one level or of three decades.
@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("decades", [0.0, 3.0])
def test_gaps_are_filled_by_the_conditional_mean(share, decades):
    law, rng = family(), torch.Generator().manual_seed(0)
    white = torch.randn(5, M, dtype=torch.float64, generator=rng)
    target = law.mean + law.basis.back(law.spectrum.sqrt() * white)
    noise = 2e-3 * 10 ** (decades * torch.rand(1, M, dtype=torch.float64, generator=rng))
    missing = torch.rand(5, M, generator=rng) < share
    missing[:, 7] = True
    told = torch.where(missing, torch.nan, target)
    found = filled(law, told, missing, noise)
    expected = likeliest(law, target, missing, noise)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)
    assert torch.equal(found[~missing], target[~missing])
    for k in range(5):
        alone = filled(law, told[k : k + 1], missing[k : k + 1], noise)
        torch.testing.assert_close(alone[0], found[k], rtol=0, atol=2e-3)


def test_a_spectrum_over_six_decades_is_no_obstacle():
    """Of heat-3d: errors were 18 times the noise, and other ones alone than in a batch."""
    problem, pair = dc.problems.get("heat-3d"), dc.load("heat-3d")
    rng = torch.Generator().manual_seed(0)
    x = problem.sample(6, generator=rng, family="shifted")
    y = problem.add_noise(problem.simulate(x), generator=rng)
    target = pair.scaler.normalise(y).flatten(1).double()
    noise = pair.scaler.noise(problem.noise_std, problem.y_shape).flatten()[None].double()
    missing = torch.rand(target.shape, generator=rng) < 0.3
    law = pair.calibration.observations
    found = filled(law, target, missing, noise)
    expected = likeliest(law, target, missing, noise)
    assert float((found - expected).abs().max()) < float(noise.mean())
