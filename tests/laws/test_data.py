"""How strange data are to a family, and how loud, against likelihoods of dense Gaussians."""

import math

import pytest
import torch

from deceptron.core.bases import EigenBasis, GridBasis
from deceptron.laws.data import FINE, SCALES, DataLaws, Surprise, surprise
from deceptron.laws.noise import MISTOLD, PREFERENCE
from tests.laws.dense import normal

M, ROWS, NOISE = 9, 8, 0.1
SIZES = (1.0, 2.0, 5.0)


def few_sensors():
    """Three shapes in a basis of any directions; each coordinate has its own variance."""
    basis = EigenBasis(torch.linalg.qr(normal(M, M)).Q)
    plain = 3.0 ** -torch.arange(M, dtype=torch.float64)
    spectra = torch.stack([plain, plain**0.6, plain**0.25])
    return DataLaws(basis, normal(M, seed=1), spectra)


def drawn(laws, *, shape=0, size=1.0, noise=NOISE, seed=5):
    white = normal(ROWS, M, seed=seed)
    clean = laws.basis.back(size * laws.spectra[shape].sqrt() * white)
    return laws.mean + clean + noise * normal(ROWS, M, seed=seed + 1)


def score(laws, y, shape, size, v, *, told):
    """Minus twice the log posterior density of data, law and noise, without what all share: the
    family as it is is as likely as all other laws together.
    """
    eye = torch.eye(M, dtype=torch.float64)
    directions = laws.basis.forward(eye)
    dense = size**2 * directions @ laws.spectra[shape].diag() @ directions.T
    dense = dense + (v * NOISE) ** 2 * eye
    law = torch.distributions.MultivariateNormal(laws.mean, dense)
    prior = 2 * PREFERENCE * math.log(v) - (2 * math.log(MISTOLD) if told and v > 1 else 0.0)
    if (shape, size) != (0, 1.0):
        prior += 2 * math.log(len(laws.spectra) * len(SIZES) - 1)
    return -2 * law.log_prob(y) - M * math.log(2 * math.pi) + prior


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    "strange", [{}, {"size": 5.0}, {"shape": 2, "size": 2.0}, {"noise": 8 * NOISE}]
)
def test_what_is_likeliest_is_what_dense_gaussians_say(told, strange):
    laws = few_sensors()
    y = drawn(laws, **strange)
    noise = torch.full((1, M), NOISE, dtype=torch.float64)
    found = surprise((laws,), SIZES, y, noise, told=told)
    for row in range(ROWS):
        scores = {
            (v, k, s): float(score(laws, y[row], k, s, v, told=told))
            for v in SCALES
            for k in range(3)
            for s in SIZES
        }
        (v, k, s), least = min(scores.items(), key=lambda entry: entry[1])
        if v > 1:
            fine = {
                max(1.0, v * step): float(score(laws, y[row], k, s, max(1.0, v * step), told=told))
                for step in FINE.tolist()
            }
            v, least = min(fine.items(), key=lambda entry: entry[1])
        plain = min(float(score(laws, y[row], 0, 1.0, w, told=told)) for w in SCALES)
        assert (int(found.shape[row]), SIZES[int(found.size[row])]) == (k, s)
        assert float(found.noise[row]) == pytest.approx(v)
        gain = max(0.0, (plain - least) / 2)
        assert float(found.gain[row]) == pytest.approx(gain, abs=1e-6)
        assert float(found.loudest[row]) >= float(found.noise[row])


@pytest.mark.parametrize("told", [True, False])
def test_rows_of_the_family_are_no_surprise_and_larger_ones_are(told):
    laws = few_sensors()
    noise = torch.full((1, M), NOISE, dtype=torch.float64)
    plain, larger, rougher = (
        surprise((laws,), SIZES, drawn(laws, **strange), noise, told=told).gain
        for strange in ({}, {"size": 5.0}, {"shape": 2, "size": 2.0})
    )
    # By chance another law fits a row a little better, by less than it costs.
    assert float(plain.median()) == 0
    price = math.log(len(laws.spectra) * len(SIZES) - 1)
    assert float(larger.median()) > 5 - price
    assert float(rougher.median()) > 5 - price


@pytest.mark.parametrize("told", [True, False])
def test_ten_times_the_noise_is_told_and_right_noise_is_not(told):
    laws, sensors = on_a_line(), 64
    noise = torch.full((1, sensors), NOISE, dtype=torch.float64)
    clean = laws[0].basis.back(laws[0].spectra[0].sqrt() * normal(40, sensors, seed=3))
    for times in (1.0, 10.0):
        y = clean + times * NOISE * normal(40, sensors, seed=4)
        found = surprise(laws, SIZES, y, noise, told=told).noise
        assert float(found.median()) == pytest.approx(times, rel=0.1)
        assert float(((found / times - 1).abs() < 0.25).double().mean()) > 0.9


def on_a_line():
    """Sensors on a line that have shown three principal directions, and the same in waves."""
    place = torch.linspace(0, 1, 64, dtype=torch.float64)
    bumps = torch.stack([torch.exp(-0.5 * ((place - c) / 0.1) ** 2) for c in (0.2, 0.3, 0.4)])
    principal = EigenBasis(torch.linalg.qr(bumps.T).Q.T.contiguous())
    seen = torch.full((64,), 1e-6, dtype=torch.float64)
    seen[:3] = 1.0
    waves = GridBasis((64,), ("sine",))
    rows = principal.back(seen.sqrt() * normal(400, 64, seed=8))
    power = waves.forward(rows).square().mean(0).clamp_min(1e-6)
    mean = torch.zeros(64, dtype=torch.float64)
    return (
        DataLaws(principal, mean, torch.stack([seen, seen**0.85, seen**0.7])),
        DataLaws(waves, mean, torch.stack([power, power**0.85, power**0.7])),
    )


def test_a_field_off_the_principal_directions_is_not_called_noise():
    """A bump where the family had none: white in the principal directions, and no noise at all."""
    laws = on_a_line()
    place = torch.linspace(0, 1, 64, dtype=torch.float64)
    field = torch.exp(-0.5 * ((place - 0.75) / 0.1) ** 2)[None]
    y = field + NOISE * normal(20, 64, seed=9)
    noise = torch.full((1, 64), NOISE, dtype=torch.float64)
    alone = surprise(laws[:1], SIZES, y, noise, told=False)
    both = surprise(laws, SIZES, y, noise, told=False)
    assert float(alone.noise.min()) > 2
    assert float(both.noise.max()) < 1.3
    # Loud data are no strange ones, and a field that the family never showed is.
    assert float(alone.gain.max()) < 4
    assert float(both.gain.min()) > 20


def test_rows_are_judged_one_by_one_and_by_their_own_noise():
    laws = few_sensors()
    y = drawn(laws, shape=2, size=2.0)
    noise = NOISE * torch.linspace(1, 3, ROWS, dtype=torch.float64)[:, None].expand(-1, M)
    together = surprise((laws,), SIZES, y, noise, told=True)
    for row in range(ROWS):
        alone = surprise((laws,), SIZES, y[row : row + 1], noise[row : row + 1], told=True)
        for name in ("gain", "noise", "loudest"):
            torch.testing.assert_close(getattr(alone, name)[0], getattr(together, name)[row])
        assert int(alone.shape) == int(together.shape[row])
        assert int(alone.size) == int(together.size[row])


def test_of_a_family_that_is_not_known_nothing_is_a_surprise():
    none = Surprise.none(torch.ones(3, dtype=torch.float64))
    assert none.gain.tolist() == [0.0] * 3
    assert none.noise.tolist() == [1.0] * 3
    assert none.loudest.tolist() == [math.inf] * 3
