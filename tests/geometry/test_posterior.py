"""Error bars: spread, calibration and coverage, where the truth is known in closed form."""

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats

import deceptron as dc
from deceptron.geometry import Posterior, fit_interval_factor, fit_prior_share
from deceptron.geometry.posterior import SHARES, conformal, quantile
from deceptron.laws.calibration import Calibration
from tests.geometry.linear import N, generator, linear_case


@pytest.fixture(scope="module")
def case():
    return linear_case()


def calibrated(pair, factor):
    pair.calibration = replace(pair.calibration, interval_factor=factor)
    return pair


def coverage(posterior, truth, samples=64):
    low, high = posterior.interval(samples=samples)
    return float(((truth >= low) & (truth <= high)).double().mean())


def exact_scores(posterior, truth):
    """Errors over the half-width of a 90% interval, which is the same for all rows of a linear map.

    From S draws it is off by 1 / sqrt(2 S): 9% for 64, half a percent here.
    """
    half_width = quantile(0.9, 20_000) * posterior.at(torch.tensor([0])).std(20_000)
    return (truth - posterior.x).abs() / half_width


def one_shot(case, pair, y, noise=None):
    noise = case.noise if noise is None else noise
    return Posterior.one_shot(pair, y, prior=case.prior, noise_std=noise)


def test_std_and_draws_are_those_of_the_joseph_form(case):
    gain = case.best_gain + 0.05
    posterior = Posterior(
        pair=case.pair(gain), x=case.prior.mean.expand(3, N), prior=case.prior, noise_std=case.noise
    )
    wanted = case.covariance_of(gain).diagonal().sqrt().expand(3, N)
    torch.testing.assert_close(
        posterior.std(5000, generator=generator()), wanted, rtol=0.05, atol=0
    )
    draws = posterior.sample(5000, generator=generator())
    assert draws.shape == (5000, 3, N)
    torch.testing.assert_close(draws.std(0), wanted, rtol=0.05, atol=0)
    assert float(((draws.mean(0) - posterior.x) / wanted).abs().max()) < 0.06


def test_bars_of_the_best_gain_cover_without_calibration(case):
    """In the linear Gaussian case P is the truth: 90% of 4000 rows, give or take half a percent."""
    x, y = case.observe(4000, seed=11)
    posterior = one_shot(case, case.pair(case.best_gain), y)
    # The misfit of a row scatters about one and only ever widens: leave it out here.
    plain = replace(posterior, misfit=None)
    scores = exact_scores(plain, x)
    assert float((scores <= 1).double().mean()) == pytest.approx(0.9, abs=0.02)
    assert conformal(scores) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("samples", [4, 16, 64])
def test_one_factor_mends_bars_that_are_too_narrow(case, samples):
    """A quarter of the noise is claimed; the factor makes good for how few draws there are, too.

    It was fitted with the same draws. Rows hold 90% give or take 20%, 1200 of them 0.6%; twice,
    since the factor comes from as many. Misfits would mend a part of it already.
    """
    pair = case.pair(case.best_gain)
    x, y = case.observe(1200, seed=1)
    raw = replace(one_shot(case, pair, y, case.noise / 4), misfit=None)
    few = torch.arange(200)
    assert coverage(raw.at(few), x[few]) < 0.89
    factor = fit_interval_factor(raw, x, samples=samples)
    fresh, seen = case.observe(1200, seed=2)
    mended = one_shot(case, calibrated(pair, factor), seen, case.noise / 4)
    mended = replace(mended, misfit=None)
    assert mended.scaling == factor
    assert coverage(mended, fresh, samples) == pytest.approx(0.9, abs=0.035)


def test_the_factor_is_the_conformal_quantile_of_the_scores(case):
    """The least under which 20 rows have 0.9 * 21 of their own covered: one more row may have 0."""
    pair = case.pair(case.best_gain)
    x, y = case.observe(20, seed=1)
    posterior = one_shot(case, pair, y)
    factor = fit_interval_factor(posterior, x, samples=8, generator=generator())
    std = posterior.std(8, generator=generator())
    scores = (x - posterior.x).abs() / std
    rank = math.ceil(0.9 * 21 * N)
    score = factor * stats.t.ppf(0.95, 8)
    assert score == pytest.approx(sorted(scores.flatten().tolist())[rank - 1])
    by_row = (scores <= score * (1 + 1e-9)).double().mean(1)
    assert float(by_row.sum()) >= 0.9 * 21 > float(by_row.sum()) - 1 / N
    # Calibrating again a pair that has a factor finds the same one.
    again = fit_interval_factor(
        one_shot(case, calibrated(pair, 3.0), y), x, samples=8, generator=generator()
    )
    assert again == pytest.approx(factor)


@pytest.mark.parametrize("share", [1.0, 0.03])
def test_a_family_that_varies_less_than_its_prior_is_noticed(case, share):
    """Latents of covariance ``share * C`` through a poor gain: P with that share is the truth.

    64 draws are too few to tell shares apart that are neighbours on the grid.
    """
    pair = case.pair(0.5 * case.best_gain)
    x, y = case.observe(1500, seed=6)
    shrunk = case.prior.mean + share**0.5 * (x - case.prior.mean)
    y = y + (shrunk - x) @ case.matrix.T
    posterior = replace(one_shot(case, pair, y), misfit=None)
    found = fit_prior_share(posterior, shrunk, samples=64, generator=generator())
    assert abs(SHARES.index(found) - SHARES.index(share)) <= 1
    exact = replace(posterior, prior_share=share)
    assert conformal(exact_scores(exact, shrunk)) == pytest.approx(1.0, abs=0.06)
    pair.calibration = Calibration(prior_share=share)
    assert posterior.share == share
    torch.testing.assert_close(
        exact.std(generator=generator()), posterior.std(generator=generator())
    )


def test_bars_widen_where_the_data_are_not_explained_up_to_what_nobody_would_know(case):
    away = torch.linspace(0.0, 3.0, N, dtype=torch.float64)
    x = (case.prior.mean + away).expand(4, N)
    arguments = {"pair": case.pair(case.best_gain), "x": x}
    arguments |= {"prior": case.prior, "noise_std": case.noise}
    plain = Posterior(**arguments).std(generator=generator())
    misfit = torch.tensor([0.5, 1.0, 1.3, 1e6], dtype=torch.float64)
    posterior = Posterior(**arguments, misfit=misfit)
    wide = posterior.std(generator=generator())
    most = torch.hypot(away, case.prior.variance.sqrt())
    torch.testing.assert_close(wide[:2], plain[:2])
    torch.testing.assert_close(wide[2], torch.minimum(1.3 * plain[2], most))
    torch.testing.assert_close(wide[3], torch.maximum(plain[3], most))
    drawn = (posterior.sample(400, generator=generator()) - x).square().mean(0).sqrt()
    assert float((drawn[3] / most).max()) < 1.2


def test_one_shot_measures_the_misfit_in_units_of_the_noise(case):
    pair = case.pair(case.best_gain)
    _, y = case.observe(4, seed=5)
    posterior = one_shot(case, pair, y)
    residual = (pair.f(posterior.x) - case.scaler.normalise(y)) / case.normalised_noise
    torch.testing.assert_close(posterior.misfit, residual.square().mean(1).sqrt())
    pair.calibration = Calibration(surrogate_error=2.0)
    weaker = one_shot(case, pair, y)
    level = torch.hypot(case.normalised_noise, torch.tensor(2.0, dtype=torch.float64))
    residual = residual * case.normalised_noise / level
    torch.testing.assert_close(weaker.misfit, residual.square().mean(1).sqrt())


def test_intervals_and_draws_stay_in_the_box(case):
    """Clipping loses no coverage: the truth lies in the box too."""
    pair = case.pair(case.best_gain, bounds=(0.0, 3.0))
    x, y = case.observe(200, seed=3)
    x = x.clamp(0, 3)
    y = (
        x @ case.matrix.T
        + (y - y.mean(0)) * 0
        + case.noise * torch.randn(y.shape, dtype=y.dtype, generator=generator(2))
    )
    posterior = one_shot(case, pair, y)
    low, high = posterior.interval(generator=generator())
    assert float(low.min()) >= 0
    assert float(high.max()) <= 3
    assert bool((low <= posterior.x).all() & (posterior.x <= high).all())
    open_ended = Posterior(
        pair=pair,
        x=posterior.x,
        prior=case.prior,
        noise_std=case.noise,
        misfit=posterior.misfit,
        bounds=(-math.inf, math.inf),
    )
    below, above = open_ended.interval(generator=generator())
    inside, wider = ((x >= a) & (x <= b) for a, b in ((low, high), (below, above)))
    assert torch.equal(inside, wider)
    draws = posterior.sample(16, generator=generator())
    assert float(draws.min()) >= 0
    assert float(draws.max()) <= 3


def test_a_row_has_the_same_bars_alone_and_in_any_batch(case, monkeypatch):
    """Draws too: common random numbers, whatever the place of the row and the size of pieces."""
    _, y = case.observe(9, seed=3)
    monkeypatch.setattr("deceptron.geometry.posterior.ROWS", 4)
    together = one_shot(case, case.pair(case.best_gain), y)
    for row in (0, 5, 8):
        alone = one_shot(case, case.pair(case.best_gain), y[row : row + 1])
        torch.testing.assert_close(alone.std()[0], together.std()[row])
        draws, same = (p.sample(6, generator=generator(2)) for p in (alone, together))
        torch.testing.assert_close(draws[:, 0], same[:, row])
    assert not torch.equal(together.sample(6), together.sample(6))
    assert torch.equal(together.std(), together.std())


def test_rows_in_pieces_give_what_all_rows_give(case, monkeypatch):
    _, y = case.observe(9, seed=3)
    pair = case.pair(case.best_gain)
    whole = one_shot(case, pair, y).std(16, generator=generator())
    first = one_shot(case, pair, y[:5]).std(16, generator=generator())
    torch.testing.assert_close(whole[:5], first)
    monkeypatch.setattr("deceptron.geometry.noise_aware.CHUNK", 7)
    torch.testing.assert_close(whole, one_shot(case, pair, y).std(16, generator=generator()))


def test_solution_draws_when_asked(case):
    pair = case.pair(case.best_gain)
    _, y = case.observe(3, seed=3)
    solution = dc.solve(pair, y, method="one-shot")
    bare = type(solution)(**{**vars(solution), "error_bars": None})
    with pytest.raises(dc.ConfigError, match=r"dc.solve\(pair, y, prior=..., noise_std=...\)"):
        _ = bare.std
    posterior = one_shot(case, pair, y)
    knowing = type(solution)(**{**vars(solution), "error_bars": posterior})
    torch.testing.assert_close(knowing.std, posterior.std(32))
    low, high = knowing.interval()
    torch.testing.assert_close(high - low, 2 * quantile(0.9, 32) * knowing.std)
    assert knowing.posterior(samples=5, generator=generator()).shape == (5, 3, N)
    a, b = (knowing.posterior(samples=5, generator=generator(4)) for _ in range(2))
    assert torch.equal(a, b)


def test_mistakes(case):
    pair, x = case.pair(case.best_gain), case.prior.mean.expand(2, N)
    posterior = Posterior(pair=pair, x=x, prior=case.prior, noise_std=1.0)
    with pytest.raises(dc.ConfigError, match="samples must be an integer >= 1; got 0"):
        posterior.std(0)
    with pytest.raises(dc.ConfigError, match=r"level must lie in \(0, 1\); got 90"):
        posterior.interval(90)
    with pytest.raises(dc.ShapeError, match="one entry for each of the 2 rows"):
        Posterior(pair=pair, x=x, prior=case.prior, noise_std=1.0, misfit=torch.ones(3))
    with pytest.raises(dc.ShapeError, match="truth must have as many rows as x, 2; got 3"):
        fit_interval_factor(posterior, torch.zeros(3, N))
    with pytest.raises(dc.ConfigError, match="positive and finite; got 0"):
        fit_interval_factor(posterior, x)
