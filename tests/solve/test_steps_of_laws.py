"""Steps towards a law's answer: what they promise, when they are taken, and who takes others."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import deceptron as dc
from deceptron.core import Reason
from deceptron.laws.odds import CORRECTION, FAMILY, Odds
from deceptron.laws.shapes import roughened
from deceptron.laws.start import StartLaw
from deceptron.solve.descents.posterior import (
    BY_FAMILY,
    BY_START,
    CORRECTED,
    Score,
    ScoreDecrease,
)
from deceptron.solve.protocols import SearchState
from tests.laws.dense import covariance, normal, odds_of
from tests.solve.linear_case import NOISE, Case, tabled_for, with_beliefs


def bent(case):
    """A simulator whose linearisations err."""
    return lambda x: 2 * torch.sinh(x @ case.matrix.T / 2)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.125])
def test_what_a_step_promises_is_the_decrease_of_the_dense_score(share):
    """From the start, and from where a first step has led."""
    case = Case(8, 12)
    x, _ = case.observe(6)
    forward = bent(case)
    y = forward(x) + NOISE * normal(6, 12, seed=3)
    plan, model = case.planned(y, forward=forward)
    descent, scale = plan.method.descent(8), torch.full((6,), share, dtype=torch.float64)
    with torch.no_grad():
        point = model.values(plan.start, plan.target)
        state = descent.begin(model, point)
        state = state.changed(kind=torch.full_like(state.kind, CORRECTION))
        for _ in range(2):
            state = descent.prepare(model, point, state, None)
            proposal = descent.propose(model, point, state, scale)
            jacobian = torch.func.vmap(torch.func.jacfwd(lambda row: forward(row[None])[0]))(
                point.x
            )

            def prior(row, at, state=state):
                t = (case.laws.scale * case.laws.sizes[int(state.size[row])]) ** 2
                stiff = torch.linalg.inv(t * covariance(case.laws.shapes[int(state.shape[row])]))
                e = at - plan.start[row]
                return e @ stiff @ e

            for row in range(6):
                noise = float(state.noise[row]) ** 2
                here, there = prior(row, point.x[row]), prior(row, proposal.x[row])
                change = float((there - here) / noise)
                assert float(proposal.score.change[row]) == pytest.approx(
                    change, rel=1e-5, abs=1e-6
                )
                r = (point.y[row] - y[row]) / NOISE
                # The linearised score falls by as much as is promised, in proportion to the share.
                ahead = r + jacobian[row] @ (state.goal[row] - point.x[row]) / NOISE
                goal = prior(row, state.goal[row])
                falls = float((r @ r + here - ahead @ ahead - goal) / noise)
                wanted = pytest.approx(share * falls, rel=1e-5, abs=1e-6)
                assert float(proposal.predicted[row]) == wanted
            point = model.values(descent.propose(model, point, state, scale / 2).x, plan.target)


def judged(
    *, fit, trial, explained=False, after=False, change=0.0, predicted=10.0, scale=1.0, **more
):
    """What becomes of one row; a misfit counts twice, as with noise of one."""
    one = torch.ones(1, dtype=torch.float64)
    points = [
        SimpleNamespace(fit=value * one, misfit=value * one, explained=(flag * one).bool())
        for value, flag in ((fit, explained), (trial, after))
    ]
    score = Score(2 * one, change * one, more.pop("round_off", 1e-12) * one)
    proposal = SimpleNamespace(
        provisional=(one * more.pop("guessing", False)).bool(),
        score=score,
        predicted=predicted * one,
    )
    trials = torch.full((1,), more.pop("trials", 0))
    found = ScoreDecrease(**more).judge(
        *points, SimpleNamespace(proposal=proposal), SearchState(scale * one, trials)
    )
    return bool(found[0]), float(found[1].scale), int(found[1].rejections), bool(found[2])


def test_a_step_is_taken_where_the_score_falls_by_a_share_of_what_was_promised():
    # Promised 10, a twentieth of it must be there: the fit counts twice, the prior's part once.
    assert judged(fit=8.0, trial=7.7, change=0.0) == (True, 1.0, 0, False)
    assert judged(fit=8.0, trial=7.8, change=0.0)[0] is False
    assert judged(fit=8.0, trial=7.0, change=1.6)[0] is False
    assert judged(fit=8.0, trial=7.0, change=1.4)[0] is True
    assert judged(fit=8.0, trial=8.2, change=-1.0)[0] is True
    # Where nothing was promised it must fall all the same.
    assert judged(fit=8.0, trial=8.0, predicted=-1.0)[0] is False
    assert judged(fit=8.0, trial=float("nan"))[0] is False
    assert judged(fit=8.0, trial=float("inf"))[0] is False


def test_a_step_that_is_not_taken_is_halved_five_times_and_then_given_up():
    scale, halvings = 1.0, 0
    while True:
        taken, scale, trials, over = judged(fit=1.0, trial=2.0, scale=scale, trials=halvings)
        assert not taken
        halvings += 1
        assert trials == halvings
        if over:
            break
        assert scale == 0.5**halvings
    assert halvings == 6


def test_a_step_whose_promise_cannot_be_told_from_round_off_is_given_up_at_once():
    """A twentieth of what is promised is asked for, and shorter steps promise less."""
    lower = {"fit": 8.0, "trial": 7.0, "predicted": 10.0}
    assert judged(**lower, round_off=0.4) == (True, 1.0, 0, False)
    taken, _, _, over = judged(**lower, round_off=0.6)
    assert (taken, over) == (False, True)
    # But for what explains, which is taken whatever was promised, and for the start's law.
    assert judged(**lower, after=True, round_off=0.6) == (True, 1.0, 0, False)
    first = {"guessing": True, "scale": 2.0, "guesses": True}
    assert judged(**lower, **first, round_off=0.6) == (False, 1.0, 1, False)
    # A row that was explained already gains nothing that could be told.
    assert judged(**lower, explained=True, after=True, round_off=0.6)[0] is False


def test_what_explains_is_taken_and_what_is_explained_must_stay_so():
    assert judged(fit=1.0, trial=2.0, after=True)[0] is True
    assert judged(fit=2.0, trial=1.0, predicted=2.0, explained=True, after=True)[0] is True
    assert judged(fit=2.0, trial=1.0, predicted=2.0, explained=True, after=False)[0] is False
    assert judged(fit=1.0, trial=2.0, predicted=2.0, explained=True, after=True)[0] is False


def test_what_the_starts_law_says_comes_first_and_must_explain():
    first = {"guessing": True, "scale": 2.0, "guesses": True}
    assert judged(fit=8.0, trial=1.0, **first) == (False, 1.0, 1, False)
    assert judged(fit=8.0, trial=9.0, after=True, **first) == (True, 2.0, 0, False)


@pytest.mark.parametrize("n", [8, 60], ids=["all of space", "a subspace"])
def test_every_step_that_a_solve_takes_lowers_its_score_or_explains_the_data(n, monkeypatch):
    case, seen = Case(n, n + 12), []
    plain = ScoreDecrease.judge

    def watched(self, point, trial, step, state):
        found = plain(self, point, trial, step, state)
        score = step.proposal.score
        falls = score.per_misfit * (point.fit - trial.fit) - score.change
        seen.append((found[0], falls, trial.explained))
        return found

    monkeypatch.setattr(ScoreDecrease, "judge", watched)
    x, _ = case.observe(20)
    y = bent(case)(3 * x) + NOISE * normal(20, n + 12, seed=3)
    solution = dc.solve(case.pair, y, forward=bent(case), noise_std=NOISE)
    accepted = torch.cat([row for row, _, _ in seen])
    assert int(accepted.sum()) == int(solution.iterations.sum()) > 20
    lower, explained = (torch.cat([row[k] for row in seen])[accepted] for k in (1, 2))
    assert bool(((lower > 0) | explained).all())
    assert bool((lower > 0).any())


@pytest.mark.parametrize("times", [2.0, 5.0, 40.0])
def test_where_one_linearisation_has_told_all_no_step_is_tried_for_round_off(times):
    """A linear map, and rows that stay unexplained: the second linearisation promises 1e-14."""
    case = Case(6, 12)
    _, y = case.observe(40, noise=times * NOISE)
    found = dc.solve(case.pair, y, noise_std=NOISE, bounds=(-2.0, 2.0))
    assert bool((~found.explained & (found.iterations > 0)).any())
    # A start, the goal, and once more in vain.
    assert int(found.iterations.max()) == 1
    assert int(found.cost.f.max()) <= 3


def about_the_family(n=8, m=12, *, odds=FAMILY):
    case = Case(n, m)
    law = case.know_family()
    family = tabled_for(roughened(law), case.matrix)
    case.pair = with_beliefs(
        case.pair, family=family, surrogate=Odds.only(odds), simulator=Odds.only(odds)
    )
    return case, law, family


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_a_row_about_the_family_ends_at_the_posterior_mean_of_its_likeliest_law(differentiable):
    case, law, family = about_the_family()
    _, y = case.observe(6)
    found = dc.solve(case.pair, y, noise_std=NOISE, **case.by_values(differentiable))
    moved = found.iterations > 0
    assert bool(moved.all())
    assert set(found.rule.tolist()) == {BY_FAMILY}
    corrections, case.laws = case.laws, family
    best = case.best(y, law.mean.expand(6, -1))
    case.laws = corrections
    torch.testing.assert_close(found.x, best, rtol=0, atol=1e-6)


def test_where_no_family_is_known_no_row_is_about_it():
    case = Case(8, 12)
    case.pair = with_beliefs(case.pair, surrogate=odds_of([[0.0, 1.0, 9.0], [0.0] * 3, [0.0] * 3]))
    _, y = case.observe(6)
    found = dc.solve(case.pair, y, noise_std=NOISE)
    assert set(found.rule.tolist()) == {CORRECTED}


def started(own, *, mean=0.0):
    """A pair whose law of the start answers with so much of the fit."""
    case = Case(60, 80)
    ones = torch.ones(60, dtype=torch.float64)
    shape, size = case.laws.first[0], case.laws.sizes.index(1.0)
    law = StartLaw(shape, size, mean * ones, own * ones, (1 - own) * ones, ones)
    case.pair = with_beliefs(case.pair, start=law)
    return case, shape, size


def test_the_starts_law_answers_where_what_it_says_explains_the_data():
    case, shape, size = started(1.0)
    _, y = case.observe(8)
    found = dc.solve(case.pair, y, noise_std=NOISE)
    guessed = found.rule == BY_START
    assert int(guessed.sum()) >= 6
    assert bool((found.reason[guessed] == Reason.DISCREPANCY).all())
    # The start, its linearisation, and what is said: no more than a correction takes.
    assert bool((found.cost.f[guessed] == 3).all())
    # What it says is the fit of its own shape and size.
    start = case.pair.g(y)
    fit = case.scores(y, start)[1][shape * len(case.laws.sizes) + size]
    error = (found.x - fit).norm(dim=1) / (fit - start).norm(dim=1)
    assert float(error[guessed].max()) < 0.1


def test_where_what_the_starts_law_says_does_not_explain_a_row_is_corrected_as_without_it():
    case, _, _ = started(0.2)
    _, y = case.observe(8)
    found = dc.solve(case.pair, y, noise_std=NOISE)
    without = dc.solve(with_beliefs(case.pair, start=None), y, noise_std=NOISE)
    assert set(found.rule.tolist()) == {CORRECTED}
    torch.testing.assert_close(found.x, without.x)
    assert found.reason.tolist() == without.reason.tolist()
    # A run of the simulator for what was said in vain.
    assert bool((found.cost.f == without.cost.f + found.iterations).all())


def rules_of(solution):
    return set(solution.history.rules)


@pytest.mark.parametrize("lacks", ["beliefs", "noise"])
def test_a_pair_without_beliefs_or_noise_takes_safeguarded_steps(lacks):
    case = Case(8, 12)
    _, y = case.observe(4)
    believing = dc.solve(case.pair, y, noise_std=NOISE)
    assert rules_of(believing) == {"correction", "family", "start's law"}
    pair, settings = case.pair, {}
    if lacks == "beliefs":
        pair = pair.replaced(calibration=replace(pair.calibration, beliefs=None))
        settings = {"noise_std": NOISE}
    else:
        pair = pair.replaced(calibration=replace(pair.calibration, noise_std=None))
    found = dc.solve(pair, y, **settings)
    assert not rules_of(found) & rules_of(believing)
    plain = dc.solve(SimpleNamespace(f=pair.f, g=pair.g), y, **settings)
    torch.testing.assert_close(found.x, plain.x)
    assert found.reason.tolist() == plain.reason.tolist()


@pytest.mark.parametrize(
    "stated",
    ["tolerance", "relative_tolerance", "gradient_tolerance", "x0", "prior", "no noise"],
)
def test_a_rule_a_start_or_a_prior_of_the_users_is_no_posterior(stated):
    case = Case(8, 12)
    law = case.know_family()
    _, y = case.observe(4)
    settings = {
        "x0": {"x0": case.pair.g(y)},
        "prior": {"prior": law, "noise_std": NOISE},
        "no noise": {"noise_std": 0.0},
    }.get(stated, {stated: 1e-3})
    found = dc.solve(case.pair, y, **settings)
    assert "correction" not in rules_of(found)
    assert bool((found.residual < dc.solve(case.pair, y, max_iterations=0).residual).all())


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_a_start_that_a_simulator_cannot_run_is_moved_towards_the_family(differentiable):
    case = Case(8, 12)
    law = case.know_family()
    _, y = case.observe(5)
    lost, start = 2, case.pair.g(y)

    def fragile(x):
        bad = (x - start[lost]).norm(dim=1) < 1e-6
        return torch.where(bad[:, None], torch.nan, case.simulate(x))

    settings = {"noise_std": NOISE, "differentiable": differentiable}
    found, plain = (dc.solve(case.pair, y, forward=f, **settings) for f in (fragile, case.simulate))
    assert bool(found.x.isfinite().all())
    assert int(found.iterations[lost]) > 0
    assert found.history.accepted.sum(0).tolist() == found.iterations.tolist()
    # It is corrected about a start half way to the mean.
    half = law.mean + 0.5 * (start[lost] - law.mean)
    best = case.best(y[[lost]], half[None])
    torch.testing.assert_close(found.x[[lost]], best, rtol=0, atol=1e-6)
    others = [0, 1, 3, 4]
    torch.testing.assert_close(found.x[others], plain.x[others])
    assert found.cost.forward[others].tolist() == plain.cost.forward[others].tolist()
    assert bool(found.std.isfinite().all())
    alone = dc.solve(case.pair, y[[lost]], forward=fragile, **settings)
    torch.testing.assert_close(alone.x, found.x[[lost]], rtol=0, atol=1e-6)


def test_a_row_for_which_nothing_can_be_simulated_stays_where_it_was():
    case = Case(8, 12)
    case.know_family()
    _, y = case.observe(3)
    found = dc.solve(case.pair, y, noise_std=NOISE, forward=lambda x: torch.nan * case.simulate(x))
    assert bool((found.reason == Reason.NONFINITE_START).all())
    assert torch.equal(found.x, case.pair.g(y))


@pytest.mark.parametrize("n", [8, 60], ids=["all of space", "a subspace"])
def test_a_simulator_that_fails_beyond_a_wall_is_corrected_up_to_it(n):
    """Trials beyond it have no value, and shorter ones are taken."""
    case = Case(n, n + 12)
    _, y = case.observe(6)
    free = dc.solve(case.pair, y, noise_std=NOISE)
    lost, start = 1, case.pair.g(y)
    wall = 0.5 * float((free.x[lost] - start[lost]).norm())
    assert wall > 0

    def walled(x):
        beyond = (x - start[lost]).norm(dim=1) > wall
        return torch.where(beyond[:, None], torch.nan, case.simulate(x))

    alone = dc.solve(case.pair, y[[lost]], noise_std=NOISE, forward=walled)
    assert float((alone.x[0] - start[lost]).norm()) <= wall
    before = dc.solve(case.pair, y[[lost]], noise_std=NOISE, max_iterations=0)
    assert float(alone.residual) < float(before.residual)
