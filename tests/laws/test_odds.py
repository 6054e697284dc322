"""Odds of the kinds of answers: what they are of, how they are fitted, and who decides."""

import math

import pytest
import torch

from deceptron.laws.odds import (
    CORRECTION,
    EXPECTED,
    FAMILY,
    PRICE,
    START,
    Odds,
    features,
    fit_odds,
    misfit,
)
from tests.laws.dense import normal, odds_of


def rows(count=6000, seed=0):
    """Surprises of nothing to a hundred nats, misfits of a few deviations to a thousand."""
    draw = normal(2, count, seed=seed).abs()
    return (draw[0] * 2.5).expm1(), (draw[1] * 3).sinh() - 1.5


def softmax_of(weights, surprise, over):
    logits = torch.stack(
        [
            weights[0, k] + weights[1, k] * surprise.asinh() + weights[2, k] * over.asinh()
            for k in (START, CORRECTION, FAMILY)
        ],
        1,
    )
    return logits.exp() / logits.exp().sum(1, keepdim=True)


def test_chances_are_the_softmax_of_the_logits_and_sum_to_one():
    """One set of logits answers, another says what is left open."""
    odds = Odds(normal(3, 3), normal(3, 3, seed=1))
    surprise, over = rows(50)
    found = odds.left_open(surprise, over)
    torch.testing.assert_close(found, softmax_of(odds.open, surprise, over))
    torch.testing.assert_close(found.sum(1), torch.ones(50).double())
    wanted = softmax_of(odds.answer, surprise, over).argmax(1)
    assert torch.equal(odds.kinds(surprise, over), wanted)
    assert len(wanted.unique()) > 1
    certain = odds_of((1e6 * odds.open).tolist()).left_open(surprise, over)
    assert bool(certain.isfinite().all())


COMPONENTS = 4


def answered(right, *, wrong=9.0):
    """Errors of each kind: one by the kind that is right for a row. Bars are three times that."""
    error = torch.full((3, len(right), COMPONENTS), wrong, dtype=torch.float64)
    error[right, torch.arange(len(right))] = 1.0
    return error, torch.full_like(error, 3.0)


def test_the_fit_recovers_the_odds_that_rows_were_drawn_by():
    """The kind that is right comes so near to the truth that the others are out of the question."""
    known = odds_of([[0.0, -2.0, -3.0], [0.0, 0.3, 1.2], [0.0, 1.5, 0.4]])
    surprise, over = rows()
    chances = known.left_open(surprise, over)
    right = torch.multinomial(chances, 1, generator=torch.Generator().manual_seed(5))[:, 0]
    found = fit_odds(surprise, over, *answered(right))
    for weights in (found.answer, found.open):
        apart = (softmax_of(weights, surprise, over) - chances).abs()
        assert float(apart.mean()) < 0.02
        # Logits are told up to what is added to all of them.
        between = weights - weights[:, :1] - known.open
        assert float(between.abs().max()) < 0.5
    expected = (Odds.expected().left_open(surprise, over) - chances).abs()
    assert float(apart.mean()) < 0.2 * float(expected.mean())


def test_rows_for_which_all_kinds_are_as_good_leave_the_odds_as_expected():
    """As good at their price: nothing is at stake."""
    surprise, over = rows(300)
    error = torch.ones(3, 300, COMPONENTS, dtype=torch.float64)
    error[START + 1 :] -= PRICE
    found = fit_odds(surprise, over, error, error)
    torch.testing.assert_close(found.answer, Odds.expected().answer)


def test_the_more_rows_say_that_all_kinds_are_as_likely_the_nearer_to_a_third_each_is_open():
    """The same errors and bars for each kind: evidence against whoever was sure of one."""
    apart = [float((Odds.expected().left_open(*rows(300)) - 1 / 3).abs().mean())]
    for count in (3, 30, 300):
        surprise, over = rows(count)
        error = torch.ones(3, count, COMPONENTS, dtype=torch.float64)
        found = fit_odds(surprise, over, error, error)
        apart.append(float((found.left_open(*rows(300)) - 1 / 3).abs().mean()))
    assert apart == sorted(apart, reverse=True)
    assert apart[0] > 0.3
    assert apart[-1] < 0.02


def test_the_fit_is_the_stationary_point_of_the_weighted_entropy():
    """By hand: soft targets of sixteen independent numbers, and the pull of the expectation."""
    surprise, over = rows(40, seed=2)
    error = normal(3, 40, COMPONENTS, seed=4).abs() + 0.5
    std = normal(3, 40, COMPONENTS, seed=5).abs() + 0.5
    density = (-0.5 * (error / std).clamp(max=3.0) ** 2 - std.log()).mean(2)
    target = (16 * density).exp() / (16 * density).exp().sum(0)
    found = fit_odds(surprise, over, error, std)
    phi = torch.stack([torch.ones(40).double(), surprise.asinh(), over.asinh()])
    data = phi @ (softmax_of(found.open, surprise, over) - target.T)
    pull = 8.0 * (found.open - torch.tensor(EXPECTED, dtype=torch.float64).T) / 9
    assert float((data + pull).abs().max()) < 1e-3 * float(data.abs().max())


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_of_the_error_does_not_matter(unit):
    surprise, over = rows(400)
    error, std = (normal(3, 400, COMPONENTS, seed=k).abs() + 0.1 for k in (4, 5))
    found, again = (fit_odds(surprise, over, u * error, u * std) for u in (1.0, unit))
    torch.testing.assert_close(found.answer, again.answer, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.open, again.open, rtol=1e-3, atol=1e-3)


def test_one_row_is_not_the_rule():
    """A correction that is a little better on all rows but one, and has that one wrong by far."""
    surprise, over = rows(400)
    error, std = answered(torch.full((400,), START), wrong=2.0)
    error[CORRECTION] = 0.8
    plain = fit_odds(surprise, over, error, std).kinds(surprise, over)
    error[CORRECTION, 7] = 1e9
    found = fit_odds(surprise, over, error, std)
    others = torch.arange(400) != 7
    assert float((plain == CORRECTION).double().mean()) > 0.99
    assert float((found.kinds(surprise, over)[others] == CORRECTION).double().mean()) > 0.95
    assert bool(found.answer.isfinite().all() & found.open.isfinite().all())


@pytest.mark.parametrize("kind", [START, CORRECTION, FAMILY])
def test_a_kind_that_is_always_better_is_always_the_likeliest(kind):
    surprise, over = rows(300)
    found = fit_odds(surprise, over, *answered(torch.full((300,), kind)))
    assert float((found.kinds(surprise, over) == kind).double().mean()) > 0.99
    assert float(found.left_open(surprise, over)[:, kind].min()) > 0.5


def test_another_kind_must_be_worth_its_runs():
    """A little less error leaves rows at their start, more than the price does not."""
    surprise, over = rows(2000)
    for less, kind in ((0.25 * PRICE, START), (3 * PRICE, CORRECTION)):
        error, std = answered(torch.full((2000,), START))
        error[CORRECTION] = 1 - less
        found = fit_odds(surprise, over, error, std).kinds(surprise, over)
        assert float((found == kind).double().mean()) > 0.9


def test_odds_that_correct_nothing_say_so():
    assert Odds.only(START).keeps_starts
    assert not Odds.only(CORRECTION).keeps_starts
    assert not Odds.only(FAMILY).keeps_starts
    assert not Odds.expected().keeps_starts
    # However little a start explains a row.
    late = odds_of([[0.0, -5.0, -5.0], [0.0] * 3, [0.0, 0.5, 0.0]])
    assert not late.keeps_starts


def test_before_a_row_was_seen_what_is_explained_stays_and_what_is_not_is_corrected():
    """The limit is near that of 99% of pure noise; what surprises by far is of the family."""
    over = torch.tensor([-1.0, 0.0, 1.0, 2.0, 4.0, 100.0], dtype=torch.float64)
    calm = torch.zeros_like(over)
    assert Odds.expected().kinds(calm, over).tolist() == [START] * 4 + [CORRECTION] * 2
    strange = torch.full_like(over, 1e4)
    assert Odds.expected().kinds(strange, over).tolist()[:3] == [FAMILY] * 3


@pytest.mark.parametrize("kind", [START, CORRECTION, FAMILY])
def test_odds_of_one_kind_only_say_so_whatever_is_seen(kind):
    odds = Odds.only(kind)
    surprise, over = rows(50)
    assert odds.kinds(surprise, over).tolist() == [kind] * 50
    assert float(odds.left_open(surprise, over)[:, kind].min()) == 1.0
    again = Odds.of(odds.answer.tolist(), odds.open.tolist())
    assert torch.equal(again.kinds(surprise, over), odds.kinds(surprise, over))


@pytest.mark.parametrize(
    "weights",
    [[[0.0] * 3] * 2, [0.0] * 3, [[0.0, 0.0, math.nan]] * 3, [[math.inf] * 3] * 3, 1.0],
)
def test_odds_that_make_no_sense_are_refused(weights):
    right = torch.zeros(3, 3).tolist()
    for pair in ((weights, right), (right, weights)):
        with pytest.raises(ValueError, match="odds must be 3 by 3 finite numbers"):
            Odds.of(*pair)


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
