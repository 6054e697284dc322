"""Error bars of answers by laws against dense posterior covariances, where all of space is used."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import deceptron as dc
from deceptron.core import Reason
from deceptron.geometry.bars import NORMAL_90
from deceptron.laws.odds import CORRECTION, FAMILY, START, Odds
from deceptron.laws.shapes import roughened
from deceptron.laws.start import StartLaw
from deceptron.solve.law_bars import HELD
from tests.laws.dense import covariance, normal
from tests.solve.linear_case import NOISE, Case, tabled_for, with_beliefs
from tests.solve.test_posterior import saturated


def barred(n=6, m=12, **settings):
    """A pair that knows its family, and so has bars."""
    case = Case(n, m, **settings)
    return case, case.know_family()


def chosen(case, y, **settings):
    """What each row took, as its run notes it."""
    plan, model = case.planned(y, **settings)
    with torch.no_grad():
        outcome = plan.run(model, plan.start, plan.target)
    return outcome.notes


def posterior_std(case, laws, shape, size, noise):
    """Deviations that the law leaves, and those that it had."""
    prior = noise**2 * (laws.scale * laws.sizes[size]) ** 2 * covariance(laws.shapes[shape])
    a = case.matrix / (noise * NOISE)
    after = torch.linalg.inv(torch.linalg.inv(prior) + a.T @ a)
    return after.diagonal().sqrt(), prior.diagonal().sqrt()


@pytest.mark.parametrize("times", [1.0, 4.0], ids=["right noise", "noise found"])
def test_bars_of_a_correction_are_its_posterior_and_what_its_start_may_be_off_by(times):
    case, _ = barred(6, 60)
    case.pair = with_beliefs(
        case.pair, corrections=replace(case.laws, factor=1.3), surrogate=Odds.only(CORRECTION)
    )
    _, y = case.observe(5, noise=times * NOISE)
    found, notes = dc.solve(case.pair, y, noise_std=NOISE), chosen(case, y)
    at_start = found.error_bars.at_start.complete_std()
    # What a row leaves beyond its noise widens its bars.
    noises = notes["noise"].clamp_min(1.0)
    rows = ((found.iterations > 0) & (found.over_noise <= 1.0001 * noises)).nonzero().flatten()
    assert len(rows) >= 2
    for row in rows.tolist():
        noise = float(noises[row])
        assert noise == pytest.approx(times, rel=0.3)
        place = int(notes["shape"][row]), int(notes["size"][row])
        after, before = posterior_std(case, case.laws, *place, noise)
        # Louder data leave no more than the law had before any data.
        left = torch.minimum(after, before / noise)
        wanted = 1.3 * torch.hypot(left, after / before * at_start[row])
        torch.testing.assert_close(found.std[row], wanted, rtol=1e-5, atol=0)


def test_bars_of_an_answer_about_the_family_are_its_posterior():
    case, law = barred()
    family = replace(tabled_for(roughened(law), case.matrix), factor=0.8)
    case.pair = with_beliefs(case.pair, family=family, surrogate=Odds.only(FAMILY))
    _, y = case.observe(5)
    found, notes = dc.solve(case.pair, y, noise_std=NOISE), chosen(case, y)
    moved = (found.iterations > 0) & found.explained
    assert int(moved.sum()) >= 3
    for row in moved.nonzero().flatten().tolist():
        place = int(notes["shape"][row]), int(notes["size"][row])
        after, _ = posterior_std(case, family, *place, 1.0)
        if bool(found.over_noise[row] > 1):
            assert bool((found.std[row] >= 0.8 * after * 0.9999).all())
        else:
            torch.testing.assert_close(found.std[row], 0.8 * after, rtol=1e-5, atol=0)
        # The answer is the posterior mean of that law.
        prior = (family.scale * family.sizes[place[1]]) ** 2 * covariance(family.shapes[place[0]])
        a = case.matrix / NOISE
        system = torch.linalg.inv(prior) + a.T @ a
        off = torch.linalg.solve(system, a.T @ (y[row] - case.matrix @ law.mean) / NOISE)
        torch.testing.assert_close(found.x[row], law.mean + off, rtol=0, atol=1e-6)


def test_what_the_family_leaves_open_widens_bars_of_other_kinds():
    case, law = barred()
    family = tabled_for(roughened(law), case.matrix)
    known = with_beliefs(case.pair, family=family, surrogate=Odds.only(START))
    # Bars of starts that are sure of themselves.
    known = known.replaced(calibration=replace(known.calibration, interval_factor=0.02))
    _, y = case.observe(5)
    alone = dc.solve(known, y, noise_std=NOISE).std
    # A quarter for the family.
    open_weights = torch.tensor([[2.0, -50.0, 0.9], [0.0] * 3, [0.0] * 3]).double()
    odds = Odds(Odds.only(START).answer, open_weights)
    mixed = dc.solve(with_beliefs(known, surrogate=odds), y, noise_std=NOISE)
    assert bool((mixed.iterations == 0).all())
    share = float(torch.softmax(open_weights[0], 0)[FAMILY])
    shape = size = torch.zeros(5, dtype=torch.int64)
    open_ = family.std(shape, size, torch.ones(5, dtype=torch.float64))[1]
    # The 90% interval of this deviation holds 90% of the mixture.
    reach = NORMAL_90 * mixed.std.double() / 2**0.5
    held = (1 - share) * torch.erf(reach / alone) + share * torch.erf(reach / open_)
    torch.testing.assert_close(held, torch.full_like(held, HELD), rtol=0, atol=1e-6)
    assert bool((mixed.std > 1.001 * alone).any())


def test_a_row_of_the_starts_law_errs_as_validation_rows_did():
    case, law = barred(50, 60)
    std = torch.linspace(0.1, 0.3, 50, dtype=torch.float64)
    # It answers with the fit itself.
    ones = torch.ones(50, dtype=torch.float64)
    shape = 3
    start = StartLaw(shape, case.laws.sizes.index(1.0), law.mean, ones, 0 * ones, std, factor=1.5)
    case.pair = with_beliefs(case.pair, start=start)
    _, y = case.observe(6)
    found = dc.solve(case.pair, y, noise_std=NOISE)
    by_start = torch.tensor([found.history.rule_names(k)[-1:] == ["start's law"] for k in range(6)])
    assert int(by_start.sum()) >= 3
    rows = by_start & (found.over_noise <= 1)
    assert bool(rows.any())
    torch.testing.assert_close(found.std[rows], (1.5 * std).expand(int(rows.sum()), -1))


def test_a_missing_sensor_widens_bars_and_no_other_row_notices():
    case, _ = barred()
    _, y = case.observe(4)
    whole = dc.solve(case.pair, y, noise_std=NOISE)
    gappy = y.clone()
    gappy[1, :4] = torch.nan
    found = dc.solve(case.pair, gappy, noise_std=NOISE)
    assert int(found.iterations[1]) > 0
    assert float(found.std[1].mean()) > 1.1 * float(whole.std[1].mean())
    others = [0, 2, 3]
    torch.testing.assert_close(found.std[others], whole.std[others])


def test_draws_about_a_corrected_row_are_normal_of_its_deviation_however_few_they_are():
    case, _ = barred(8, 20)
    _, y = case.observe(4)
    solution = dc.solve(case.pair, y, noise_std=NOISE)
    assert bool((solution.iterations > 0).all())
    rng = torch.Generator().manual_seed(0)
    one, many = (
        (solution.posterior(count, generator=rng) - solution.x) / solution.std
        for count in (1, 4000)
    )
    # A single draw is anywhere, not at one deviation from the answer.
    assert float(one.abs().std()) > 0.1
    # Four thousand of them have a second moment of 1 to 2%, and a fourth of 3 to 5%.
    torch.testing.assert_close(many.square().mean(0), torch.ones_like(solution.x), rtol=0, atol=0.2)
    assert abs(float(many.pow(4).mean()) - 3) < 0.5


def test_components_of_draws_go_together_as_those_of_the_law_do():
    case, _ = barred(8, 20)
    _, y = case.observe(3)
    notes = chosen(case, y)
    solution = dc.solve(case.pair, y, noise_std=NOISE)
    draws = solution.posterior(8000, generator=torch.Generator().manual_seed(0))
    for row in range(3):
        wanted = covariance(case.laws.shapes[int(notes["shape"][row])])
        wanted = wanted / torch.outer(wanted.diagonal().sqrt(), wanted.diagonal().sqrt())
        found = torch.corrcoef(draws[:, row].T)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0.08)


@pytest.mark.parametrize("height", [3.0, 30.0])
def test_a_row_that_nothing_explains_has_bars_as_wide_as_the_family_and_no_wider(height):
    case, family = barred()
    x, _ = case.observe(4)
    forward = saturated(case)
    y = forward(x) + NOISE * normal(4, 12, seed=3)
    sane = dc.solve(case.pair, y, forward=forward, noise_std=NOISE)
    y[2] = height
    found = dc.solve(case.pair, y, forward=forward, noise_std=NOISE)
    unexplained = ~found.explained
    assert unexplained.tolist() == [False, False, True, False]
    most = torch.hypot(found.x[2] - family.mean, family.variance.sqrt())
    assert bool((found.std[2] <= 1.001 * most).all())
    # It is still the least certain of all.
    assert float(found.std[2].mean()) > 2 * float(sane.std.mean())
    draws = found.posterior(samples=400, generator=torch.Generator().manual_seed(0))
    assert bool((draws[:, 2].std(0) <= 1.15 * most).all())


def test_noise_that_nobody_told_widens_bars_no_further_than_the_family():
    """Sensors off by a million: called noisier, at an answer whose bars are not a million wide."""
    case, family = barred()
    _, y = case.observe(4)
    y[1] += 1e6 * NOISE * normal(12, seed=5)
    found = dc.solve(case.pair, y, forward=case.simulate)
    assert Reason(int(found.reason[1])) != Reason.DISCREPANCY
    most = torch.hypot(found.x[1] - family.mean, family.variance.sqrt())
    assert bool((found.std[1] <= 1.001 * most).all())


def test_bars_of_noisier_data_count_the_noise_that_went_through_the_start():
    """Three times the stated noise, told to nobody: g has let most of it through.

    Over 16 matrices, since one of them says little (0.70 to 0.85). They hold 0.784, give or take
    0.010; bars that leave the start's noise out hold 0.15.
    """
    held = []
    for seed in range(0, 160, 10):
        case, _ = barred(6, 12, share=0.9, seed=seed)
        x, y = case.observe(100, noise=3 * NOISE, seed=seed + 7)
        found = dc.solve(case.pair, y, forward=case.simulate)
        noisier = found.reason == Reason.NOISIER
        assert int(noisier.sum()) > 50
        low, high = found.interval(0.9)
        held.append(((x >= low) & (x <= high))[noisier].double().mean())
    assert 0.75 < float(torch.stack(held).mean()) < 0.95


def test_more_noise_that_is_told_never_makes_bars_narrower():
    """A surrogate that errs by much more than the noise: what is left of a row is its error."""
    case, _ = barred()
    case.pair = with_beliefs(case.pair, surrogate=Odds.only(START))
    _, y = case.observe(8)
    y = y + 16 * NOISE * normal(8, 12, seed=5).sign()
    found = [dc.solve(case.pair, y, noise_std=k * NOISE) for k in (1, 2, 4, 8)]
    for less, more in pairwise(found):
        assert torch.equal(less.x, more.x)
        assert bool((more.std >= 0.97 * less.std).all())
