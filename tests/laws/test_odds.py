"""Odds of the kinds of answers: what they are of, how they are fitted, and who decides."""

import math

import pytest
import torch

from deceptron.laws.odds import (
    CORRECTION,
    FAMILY,
    INDEPENDENT,
    PRICE,
    START,
    Odds,
    features,
    fit_odds,
    misfit,
)
from tests.laws.dense import normal


def rows(count=6000, seed=0):
    """Surprises of nothing to a hundred nats, misfits of a few deviations to a thousand."""
    draw = normal(2, count, seed=seed).abs()
    return (draw[0] * 2.5).expm1(), (draw[1] * 3).sinh() - 1.5


def chosen(odds, surprise, over):
    """The likeliest at its price."""
    return odds.chances(surprise, over, priced=True).argmax(1)


def test_chances_are_the_softmax_of_the_logits_and_sum_to_one():
    odds = Odds(normal(3, 3))
    surprise, over = rows(20)
    logits = torch.stack(
        [
            odds.weights[0, k]
            + odds.weights[1, k] * surprise.asinh()
            + odds.weights[2, k] * over.clamp_min(-2).asinh()
            for k in (START, CORRECTION, FAMILY)
        ],
        1,
    )
    # What bars are averaged by is without the price of leaving the start.
    for priced, extra in ((True, 0.0), (False, INDEPENDENT * PRICE)):
        found = odds.chances(surprise, over, priced=priced)
        weight = (logits - torch.tensor([extra, 0.0, 0.0])).exp()
        torch.testing.assert_close(found, weight / weight.sum(1, keepdim=True))
        torch.testing.assert_close(found.sum(1), torch.ones(20).double())
        assert bool(Odds(1e6 * odds.weights).chances(surprise, over, priced=priced).isfinite().all())


def errors_of(right, *, wrong=math.e**3):
    """Each row's error is one by the kind that is right for it."""
    error = torch.full((len(right), 3), wrong, dtype=torch.float64)
    error[torch.arange(len(right)), right] = 1.0
    return error


def test_the_fit_recovers_the_odds_that_rows_were_drawn_by():
    """The kind that is right comes so near to the truth that the others are out of the question."""
    known = Odds.of([[0.0, -2.0, -3.0], [0.0, 0.3, 1.2], [0.0, 1.5, 0.4]])
    surprise, over = rows()
    chances = known.chances(surprise, over, priced=True)
    right = torch.multinomial(chances, 1, generator=torch.Generator().manual_seed(5))[:, 0]
    found = fit_odds(surprise, over, errors_of(right))
    apart = (found.chances(surprise, over, priced=True) - chances).abs()
    assert float(apart.mean()) < 0.015
    # Logits are told up to what is added to all of them.
    between = found.weights - found.weights[:, :1] - known.weights
    assert float(between.abs().max()) < 0.4
    expected = (Odds.expected().chances(surprise, over, priced=True) - chances).abs()
    assert float(apart.mean()) < 0.2 * float(expected.mean())


def test_rows_for_which_all_kinds_are_as_good_at_their_price_leave_the_odds_as_expected():
    surprise, over = rows(300)
    error = torch.ones(300, 3, dtype=torch.float64)
    error[:, START] = math.exp(PRICE)
    found = fit_odds(surprise, over, error)
    torch.testing.assert_close(found.weights, Odds.expected().weights)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_of_the_error_does_not_matter(unit):
    surprise, over = rows(400)
    error = normal(400, 3, seed=4).abs() + 0.1
    found, again = (fit_odds(surprise, over, scale * error) for scale in (1.0, unit))
    torch.testing.assert_close(found.weights, again.weights, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [START, CORRECTION, FAMILY])
def test_a_kind_that_is_always_better_is_always_the_likeliest(kind):
    surprise, over = rows(300)
    found = fit_odds(surprise, over, errors_of(torch.full((300,), kind)))
    assert float((chosen(found, surprise, over) == kind).double().mean()) > 0.99


def test_another_kind_must_be_worth_its_runs():
    """A little less error leaves rows at their start, more than the price does not."""
    surprise, over = rows(2000)
    for less, kind in ((0.5 * PRICE, START), (2 * PRICE, CORRECTION)):
        error = torch.full((2000, 3), 1.0, dtype=torch.float64)
        error[:, CORRECTION], error[:, FAMILY] = math.exp(-less), 9.0
        found = chosen(fit_odds(surprise, over, error), surprise, over)
        assert float((found == kind).double().mean()) > 0.9


def test_before_a_row_was_seen_what_is_explained_stays_and_what_is_not_is_corrected():
    """The limit is near that of 99% of pure noise; what surprises by far is of the family."""
    over = torch.tensor([-1.0, 0.0, 1.0, 2.0, 4.0, 100.0], dtype=torch.float64)
    calm = torch.zeros_like(over)
    assert chosen(Odds.expected(), calm, over).tolist() == [START] * 4 + [CORRECTION] * 2
    strange = torch.full_like(over, 1e4)
    assert chosen(Odds.expected(), strange, over).tolist()[:3] == [FAMILY] * 3


@pytest.mark.parametrize("kind", [START, CORRECTION, FAMILY])
def test_odds_of_one_kind_only_say_so_whatever_is_seen(kind):
    odds = Odds.only(kind)
    assert odds.always == kind
    surprise, over = rows(50)
    assert chosen(odds, surprise, over).tolist() == [kind] * 50
    again = Odds.of(odds.weights.tolist())
    assert again.always == kind
    assert Odds.expected().always is None


@pytest.mark.parametrize(
    "weights",
    [[[0.0] * 3] * 2, [0.0] * 3, [[0.0, 0.0, math.nan]] * 3, [[math.inf] * 3] * 3, 1.0],
)
def test_odds_that_make_no_sense_are_refused(weights):
    with pytest.raises(ValueError, match="odds must be 3 by 3 finite numbers"):
        Odds.of(weights)


def test_misfit_is_chi_squared_in_its_deviations_from_its_mean():
    count = torch.full((4000,), 50.0, dtype=torch.float64)
    over = normal(4000, 50, seed=1).square().mean(1).sqrt()
    found = misfit(over, count)
    assert abs(float(found.mean())) < 0.06
    assert abs(float(found.std()) - 1) < 0.05
    assert float(misfit(torch.tensor([3.0]), torch.tensor([8.0]))) == pytest.approx(16.0)


def test_what_is_not_a_number_and_what_is_explained_too_well_say_nothing_more():
    over = torch.tensor([-5.0, -2.0, math.nan], dtype=torch.float64)
    found = features(torch.zeros(3, dtype=torch.float64), over)
    assert torch.equal(found[0], found[1])
    assert bool(found.isfinite().all())
