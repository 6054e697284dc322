"""Round trips, their limits and what is said about rows beyond them."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.core.trust import Trust
from deceptron.geometry import fit_trust, round_trips, trust
from deceptron.geometry.trust import judged
from deceptron.laws.calibration import Calibration
from deceptron.train.families import observations_of
from tests.geometry.linear import generator, linear_case


@pytest.fixture(scope="module")
def case():
    return linear_case()


@pytest.fixture(scope="module")
def pair(case):
    pair = case.pair(case.best_gain)
    _, y = case.observe(2000, seed=1)
    pair.calibration = Calibration(trust=fit_trust(pair, y))
    return pair


def test_round_trips_are_what_they_are_called(case):
    pair = case.pair(0.9 * case.best_gain, bounds=(-1.0, 4.0))
    _, y = case.observe(5, seed=2)
    parts = round_trips(pair, y)
    target = (y - case.scaler.shift) / case.scaler.scale
    x = pair.g(target).clamp(-1, 4)
    back = pair.f(x)
    torch.testing.assert_close(parts["round_trip"], (back - target).square().mean(1).sqrt())
    torch.testing.assert_close(
        parts["latent_round_trip"], (pair.g(back) - x).square().mean(1).sqrt()
    )


def test_observations_like_the_calibration_data_are_flagged_at_the_stated_rate(case, pair):
    _, y = case.observe(2000, seed=9)
    assert float(trust(pair, y).flag.double().mean()) == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize("rows", [2, 4])
def test_few_rows_do_not_make_new_ones_strange(case, rows):
    """On average over calibrations on so few; else a quarter is flagged, or more."""
    pair = case.pair(case.best_gain)
    _, few = case.observe(60 * rows, seed=3)
    _, fresh = case.observe(500, seed=9)
    flagged = []
    for y in few.split(rows):
        pair.calibration = Calibration(trust=fit_trust(pair, y))
        flagged.append(float(trust(pair, fresh).flag.double().mean()))
    assert sum(flagged) / len(flagged) < 0.12


def test_observations_may_be_any_array(case, pair):
    _, y = case.observe(4, seed=9)
    expected = trust(pair, y).score
    for rows in (y.numpy(), y.tolist(), y.numpy().astype(">f8")):
        assert torch.equal(trust(pair, rows).score, expected)
    assert torch.equal(trust(pair, y.float()).score, trust(pair, y.float().double()).score)


def test_the_score_by_hand(case, pair):
    _, y = case.observe(4, seed=9)
    found, limits = trust(pair, y), pair.calibration.trust
    parts = round_trips(pair, y)
    z = torch.stack(
        [(parts[name].log() - centre) / spread for name, (centre, spread) in limits.parts.items()]
    )
    torch.testing.assert_close(found.score, z.max(0).values / limits.limit)
    assert torch.equal(found.flag, found.score > 1)


@pytest.mark.parametrize("change", ["noise", "units"])
def test_strange_observations_are_flagged_and_spoken_of(case, pair, change):
    _, y = case.observe(20, seed=5)
    white = torch.randn(y.shape, dtype=y.dtype, generator=generator())
    strange = y + 20 * case.noise * white if change == "noise" else 100 * y
    found = trust(pair, strange)
    assert bool(found.flag.all())
    warning = found.warning
    assert warning.startswith("20 of 20 observations do not look like the training data")
    assert f"row {int(found.score.argmax())} has the largest score" in warning
    assert "forward=" in warning


def test_rows_are_judged_alone_and_nan_is_not_trusted(case, pair):
    _, y = case.observe(6, seed=5)
    spoiled = y.clone()
    spoiled[2, 1] = torch.nan
    found, clean = trust(pair, spoiled), trust(pair, y)
    assert bool(found.flag[2])
    assert found.score[2] == torch.inf
    others = [0, 1, 3, 4, 5]
    torch.testing.assert_close(found.score[others], clean.score[others])
    torch.testing.assert_close(trust(pair, y[:1]).score, clean.score[:1])


def test_arrays_of_any_precision_are_judged(case, pair):
    _, y = case.observe(6, seed=5)
    expected = trust(pair, y).score
    torch.testing.assert_close(trust(pair, y.numpy()).score, expected)
    torch.testing.assert_close(trust(pair, y.tolist()).score, expected)
    assert trust(pair, y.float()).score.dtype == torch.float64


@pytest.fixture(scope="module")
def quiet(case):
    """Data far above their noise."""
    return replace(case, noise=0.05 * case.noise)


def trained_on(case, gain):
    """A pair that knows its training data, with this g."""
    pair = case.pair(gain)
    x, y = case.observe(2000, seed=1)
    law = observations_of(case.scaler.normalise(x @ case.matrix.T))
    pair.calibration = Calibration(noise_std=case.noise, observations=law)
    pair.calibration = replace(pair.calibration, trust=fit_trust(pair, y))
    return pair


@pytest.mark.parametrize("gain", [0.0, 1.0])
def test_data_in_a_wrong_unit_or_order_are_told_by_themselves(quiet, gain):
    """Whatever g has learned, and whatever the mean of the data: nothing is not one of them."""
    pair = trained_on(quiet, gain * quiet.best_gain)
    _, y = quiet.observe(200, seed=9)
    assert float(trust(pair, y).flag.double().mean()) < 0.12
    mean = quiet.scaler.denormalise(pair.calibration.observations.mean)
    for strange in (mean + 1e-3 * (y - mean), mean + 30 * (y - mean), y.flip(1)):
        assert float(trust(pair, strange).flag.double().mean()) > 0.9


def test_less_noise_than_in_training_is_not_strange(quiet):
    pair = trained_on(quiet, quiet.best_gain)
    x, _ = quiet.observe(500, seed=9)
    assert float(trust(pair, x @ quiet.matrix.T).flag.double().mean()) < 0.1


def test_what_was_filled_in_is_not_called_faint(quiet):
    """The likeliest value of a missing sensor is closer to the mean than a value is."""
    pair = trained_on(quiet, quiet.best_gain)
    _, y = quiet.observe(100, seed=9)
    likeliest = quiet.scaler.denormalise(pair.calibration.observations.mean).expand_as(y)
    assert trust(pair, likeliest).worst == ["faint"] * 100
    every = torch.ones(100, dtype=torch.bool)
    assert not bool(judged(pair, likeliest, every).flag.any())


def scored(*scores):
    score = torch.tensor(scores)
    return Trust(score, score > 1, {}, ["round_trip"] * len(score))


def test_only_what_chance_does_not_explain_is_spoken_of():
    assert scored(*[0.5] * 60, *[1.5] * 3).warning is None
    assert scored(*[0.5] * 60, *[1.5] * 10).warning.startswith("10 of 70 observations")
    assert scored(*[0.5] * 60, 2.5).warning.startswith("1 of 61 observations")
    assert scored(1.1).warning.startswith("1 of 1 observations")
    text = "Trust(1 of 3 flagged, median score 0.50; above 1 is flagged)"
    assert repr(scored(0.5, 0.5, 1.5)) == text


def test_the_calibration_survives_a_file(case, pair, tmp_path):
    pair.calibration = replace(pair.calibration, interval_factor=1.25, rows=2000)
    path = dc.save(pair, tmp_path / "pair.safetensors")
    loaded = dc.load(path, forward=nn.Linear(5, 7).double(), reverse=nn.Linear(7, 5).double())
    assert loaded.calibration.trust == pair.calibration.trust
    assert loaded.calibration.interval_factor == 1.25
    assert loaded.calibration.rows == 2000
    _, y = case.observe(10, seed=5)
    torch.testing.assert_close(trust(loaded, y).score, trust(pair, y).score)


def test_an_exact_inverse_can_be_calibrated():
    """Its round trips miss by round-off; anything larger is strange."""
    pair = dc.Deceptron(nn.Identity(), nn.Identity(), bounds=(0.0, 1.0))
    y = torch.rand(50, 4, generator=generator())
    pair.calibration = Calibration(trust=fit_trust(pair, y))
    assert not bool(trust(pair, y).flag.any())
    assert bool(trust(pair, y + 1).flag.all())


def test_solution_judges_when_asked(case, pair):
    _, y = case.observe(3, seed=3)
    solution = dc.solve(pair, y, method="one-shot")
    knowing = type(solution)(**{**vars(solution), "judge": lambda: trust(pair, y)})
    torch.testing.assert_close(knowing.trust.score, trust(pair, y).score)
    assert knowing.trust is knowing.trust
    with pytest.raises(dc.ConfigError, match="trust needs a calibrated pair"):
        _ = type(solution)(**{**vars(solution), "judge": None}).trust


def test_mistakes(case):
    _, y = case.observe(3, seed=3)
    bare = case.pair(case.best_gain)
    assert bare.calibration.trust is None
    assert bare.calibration.interval_factor is None
    with pytest.raises(dc.ConfigError, match="must have been calibrated"):
        trust(bare, y)
    with pytest.raises(dc.ConfigError, match="two or more finite rows"):
        fit_trust(bare, y[:1])
