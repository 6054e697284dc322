"""Error bars and trust of a solution: there when pair, prior and noise allow them."""

import pytest
import torch

import deceptron as dc
from deceptron.geometry import Posterior, fit_trust
from deceptron.laws.calibration import Calibration
from tests.geometry.linear import N, generator, linear_case


@pytest.fixture(scope="module")
def case():
    return linear_case()


@pytest.fixture(scope="module")
def pair(case):
    pair = case.pair(case.best_gain, bounds=(-20.0, 20.0))
    limits = fit_trust(pair, case.observe(500, seed=1)[1])
    pair.calibration = Calibration(interval_factor=1.1, trust=limits)
    return pair


def test_bars_are_those_of_the_answers_with_their_misfits(case, pair):
    """Three rows without noise, and three with a deviation of 12 that no x explains."""
    x, y = case.observe(6, seed=2)
    y[:3] = x[:3] @ case.matrix.T
    out_of_range = torch.linalg.svd(case.matrix / case.noise[:, None]).U[:, -1]
    y[3:] += 12 * case.noise * out_of_range
    solution = dc.solve(pair, y, method="one-shot", prior=case.prior, noise_std=case.noise)
    bars = Posterior.one_shot(pair, y, prior=case.prior, noise_std=case.noise)
    assert float(bars.misfit[:3].max()) < 1 < float(bars.misfit[3:].min())
    torch.testing.assert_close(solution.x, bars.x)
    torch.testing.assert_close(solution.std, bars.std())
    low, high = solution.interval()
    assert bool(((low <= solution.x) & (solution.x <= high)).all())
    assert solution.posterior(samples=7, generator=generator()).shape == (7, 6, N)


@pytest.mark.parametrize("method", ["one-shot", "guarded"])
@pytest.mark.parametrize("told", [True, False])
def test_one_answer_has_one_width_on_a_surrogate_that_errs(case, method, told):
    """That of the calibration, by whatever method the answer came."""
    pair = case.pair(case.best_gain)
    pair.calibration = Calibration(
        noise_std=case.noise,
        surrogate_error=3 * float(case.noise.mean()),
        family=case.prior,
        interval_factor=1.1,
    )
    _, y = case.observe(6, seed=2)
    out_of_range = torch.linalg.svd(case.matrix / case.noise[:, None]).U[:, -1]
    y += 25 * case.noise * out_of_range
    settings = {"noise_std": case.noise} if told else {}
    solution = dc.solve(pair, y, method=method, max_iterations=0, **settings)
    bars = Posterior.one_shot(pair, y, prior=case.prior, noise_std=case.noise)
    assert float(bars.misfit.min()) > 1
    torch.testing.assert_close(solution.x, bars.x)
    torch.testing.assert_close(solution.std, bars.std())


def test_bars_of_map_answers_cover_with_the_simulator_in_the_objective(case, pair):
    """The factor is 1.1 and the intervals of rows that are explained are equally wide: they hold
    93%, and 2000 rows scatter by half a percent.
    """
    x, y = case.observe(2000, seed=3)
    solution = dc.solve(
        pair,
        y,
        method="gn",
        prior=case.prior,
        noise_std=case.noise,
        forward=lambda z: z @ case.matrix.T,
    )
    explained = solution.over_noise <= 1
    low, high = solution[explained][:1].interval(samples=20_000)
    inside = (x - solution.x)[explained].abs() <= (high - low) / 2
    assert float(inside.double().mean()) == pytest.approx(0.93, abs=0.02)


def test_trust_of_the_observations(case, pair):
    _, y = case.observe(6, seed=2)
    solution = dc.solve(pair, 100 * y, method="one-shot")
    assert bool(solution.trust.flag.all())
    torch.testing.assert_close(solution.trust.score, dc.trust(pair, 100 * y).score)


class Dropped(torch.nn.Module):
    """A map whose training mode is noisy."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.drop = inner, torch.nn.Dropout(0.5)

    def forward(self, values):
        return self.drop(self.inner(values))


def test_bars_and_trust_are_those_of_evaluation_mode(case, pair):
    _, y = case.observe(6, seed=2)
    noisy = dc.Deceptron(
        Dropped(pair.f),
        Dropped(pair.g),
        scaler=pair.scaler,
        bounds=pair.bounds,
        calibration=pair.calibration,
    )
    settings = {"method": "one-shot", "prior": case.prior, "noise_std": case.noise}
    solution = dc.solve(noisy.train(), y, **settings)
    torch.testing.assert_close(solution.std, dc.solve(pair, y, **settings).std)
    torch.testing.assert_close(solution.trust.score, dc.trust(pair, y).score)
    assert noisy.f.drop.training


def test_without_what_they_need_they_say_so(case, pair):
    _, y = case.observe(2, seed=2)
    with pytest.raises(dc.ConfigError, match=r"error bars need .* a prior that has variance"):
        dc.solve(pair, y, method="one-shot", noise_std=case.noise).posterior()
    plain = case.pair(case.best_gain)
    with pytest.raises(dc.ConfigError, match="trust needs a calibrated pair"):
        _ = dc.solve(plain, y, method="one-shot").trust
    bare = dc.solve(plain.f, y, method="gn", x0=torch.zeros(2, N, dtype=y.dtype))
    with pytest.raises(dc.ConfigError, match="error bars need a calibrated pair"):
        _ = bare.std
