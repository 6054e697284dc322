"""Answers by a law: on linear problems everything has a dense answer to compare with."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.core import Reason, Status
from deceptron.laws.calibration import Calibration
from deceptron.laws.odds import CORRECTION, START, Odds
from deceptron.laws.shapes import corrections_of
from deceptron.solve.descents.posterior import COMPLETE, CORRECTED, LINEARISATIONS
from tests.laws.dense import believed, normal
from tests.solve.linear_case import NOISE, Case, Fixed, linear, tabled_for, with_beliefs


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
@pytest.mark.parametrize(("n", "m"), [(6, 9), (12, 8), (24, 40)])
def test_the_answer_is_the_posterior_mean_of_the_likeliest_correction(n, m, differentiable):
    case = Case(n, m)
    _, y = case.observe(8)
    solution = dc.solve(case.pair, y, noise_std=NOISE, **case.by_values(differentiable))
    start = case.pair.g(y)
    # A start may explain its data by chance.
    moved = solution.iterations > 0
    assert int(moved.sum()) > 4
    assert set(solution.rule[moved].tolist()) == {CORRECTED}
    best = case.best(y, start)
    torch.testing.assert_close(solution.x[moved], best[moved], rtol=0, atol=1e-6)
    assert torch.equal(solution.x[~moved], start[~moved])
    if differentiable:
        # The start, as many products as unknowns, and where the correction ends.
        once = solution.iterations == 1
        assert bool(once.any())
        assert bool((solution.cost.jvp[once] == n).all())
        assert bool((solution.cost.f[once] == 2).all())
        assert bool((solution.cost.g == 1).all())


@pytest.mark.parametrize("n", [12, 60], ids=["all of space", "a subspace"])
def test_a_row_of_right_noise_is_not_moved_by_chance(n):
    """g is nearly right: what its starts leave is noise, and a correction would only fit that."""
    case = Case(n, n + 20)
    x, _ = case.observe(300)
    y = x @ case.matrix.T + NOISE * normal(300, case.m, seed=3)
    found = dc.solve(started_at(case, _Said(x)), y, noise_std=NOISE)
    moved = found.iterations > 0
    # Two rows in a hundred are beyond the limit by chance.
    assert float(moved.double().mean()) < 0.06
    assert torch.equal(found.x[~moved], x[~moved])
    assert bool((found.reason[found.explained] == Reason.DISCREPANCY).all())
    assert float(found.explained.double().mean()) > 0.96


def started_at(case, reverse):
    """The pair with another g."""
    shapes = {"x_shape": (case.n,), "y_shape": (case.m,)}
    return dc.Deceptron(case.pair.f, reverse, calibration=case.pair.calibration, **shapes)


class _Said(nn.Module):
    """A reverse map that has been told the answers."""

    def __init__(self, answers):
        super().__init__()
        self.answers = answers

    def forward(self, y):
        return self.answers[: len(y)].to(y)


def test_a_start_that_explains_its_data_costs_one_run_and_is_left_alone():
    for case in (Case(8, 20, share=1.0), Case(60, 80, share=1.0)):
        _, y = case.observe(6)
        y = case.pair.f(case.pair.g(y)) + NOISE * normal(6, case.m, seed=3) / 2
        y[2] += 40 * NOISE * normal(case.m, seed=3)
        solution = dc.solve(case.pair, y, noise_std=NOISE)
        others = torch.arange(6) != 2
        torch.testing.assert_close(solution.x[others], case.pair.g(y)[others])
        assert solution.cost.f[others].tolist() == [1] * 5
        assert solution.cost.g[others].tolist() == [1] * 5
        assert solution.cost.evaluations[others].tolist() == [2] * 5
        assert bool((solution.reason[others] == Reason.DISCREPANCY).all())
        assert int(solution.cost.evaluations[2]) > 2


@pytest.mark.parametrize(("n", "m"), [(10, 16), (60, 70)], ids=["all of space", "a subspace"])
@pytest.mark.parametrize("told", [True, False], ids=["noise told", "noise free"])
@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_rows_together_equal_rows_alone(n, m, told, differentiable):
    case = Case(n, m)
    _, y = case.observe(6)
    y[1, 3] = y[4, :7] = torch.nan
    y[2] = torch.nan
    y[5] = case.pair.f(case.pair.g(y[5:6]))[0]  # a row with less to explain
    noise = NOISE * torch.tensor([1.0, 0.5, 1.0, 2.0, 3.0, 1.0], dtype=torch.float64)[:, None]
    simulated = [0]

    def simulate(x):
        simulated[0] += len(x)
        return case.values(x)

    more = {} if differentiable else {"forward": simulate, "differentiable": False}
    together = dc.solve(case.pair, y, noise_std=noise if told else None, **more)
    if not differentiable:
        assert simulated[0] == int(together.cost.f.sum())
    for row in range(6):
        rows = slice(row, row + 1)
        alone = dc.solve(case.pair, y[rows], noise_std=noise[rows] if told else None, **more)
        assert int(together.reason[row]) == int(alone.reason[0])
        for name in ("x", "residual", "over_noise"):
            a, b = getattr(together, name)[rows], getattr(alone, name)
            torch.testing.assert_close(a, b, rtol=0, atol=1e-7, equal_nan=True)
        for kind in ("f", "g", "jvp", "vjp", "surrogate"):
            assert getattr(together.cost, kind)[row] == getattr(alone.cost, kind)[0], kind
    assert int(together.reason[2]) == Reason.NO_DATA
    assert int(together.status[2]) == Status.NONFINITE
    assert bool(together.x.isfinite().all())


@pytest.mark.parametrize(("n", "m"), [(10, 16), (60, 70)], ids=["all of space", "a subspace"])
@pytest.mark.parametrize("value", [0.0, -3.0, 1e3])
def test_a_missing_sensor_is_ignored_whatever_it_says(n, m, value):
    case = Case(n, m)
    _, y = case.observe(3)
    gone = torch.zeros_like(y, dtype=torch.bool)
    gone[0, 2] = gone[1, 4:9] = True
    noise = torch.full_like(y, NOISE)
    missing = dc.solve(case.pair, torch.where(gone, torch.nan, y), noise_std=noise)
    said = dc.solve(
        case.pair, torch.where(gone, value, y), noise_std=torch.where(gone, torch.inf, noise)
    )
    torch.testing.assert_close(missing.x, said.x, rtol=0, atol=1e-8)
    torch.testing.assert_close(missing.residual, said.residual)
    assert torch.equal(missing.reason, said.reason)
    # The row that has all of its sensors does not notice.
    whole = dc.solve(case.pair, y, noise_std=NOISE)
    torch.testing.assert_close(missing.x[2], whole.x[2], rtol=0, atol=1e-8)
    assert bool((missing.iterations > 0).all())


def test_with_a_sensor_missing_the_answer_is_still_the_dense_posterior_mean():
    case = Case(10, 16)
    _, y = case.observe(2)
    y[:, 5] = torch.nan
    solution = dc.solve(case.pair, y, noise_std=NOISE)
    start = dc.solve(case.pair, y, noise_std=NOISE, max_iterations=0).x
    kept = torch.arange(16) != 5
    smaller = Case(10, 16)
    smaller.matrix, smaller.m = case.matrix[kept], 15
    assert bool((solution.iterations > 0).all())
    torch.testing.assert_close(solution.x, smaller.best(y[:, kept], start), rtol=0, atol=1e-6)


def test_noise_three_times_what_is_stated_is_found_and_called_so():
    case = Case(8, 60, share=1.0)
    truth, y = case.observe(40, noise=3 * NOISE)
    # The whole solve leaves such rows nearly where they are, and says why.
    for settings in ({}, {"noise_std": NOISE}):
        solution = dc.solve(case.pair, y, **settings)
        moved = (solution.x - case.pair.g(y)).square().mean().sqrt()
        assert float(moved) < 0.1 * float((solution.x - truth).square().mean().sqrt())
        assert float((solution.reason == Reason.NOISIER).double().mean()) > 0.9
        assert not bool(solution.converged.any())
    right = dc.solve(case.pair, y, noise_std=3 * NOISE)
    assert not bool((right.reason == Reason.NOISIER).any())
    assert float((right.reason == Reason.DISCREPANCY).double().mean()) > 0.9


def test_the_noise_that_a_row_is_found_to_have_is_within_a_fifth_of_its_own():
    """Kept in the notes of the run, from where error bars have it."""
    case = Case(8, 400, share=1.0)
    for times in (1.0, 3.0, 10.0):
        _, y = case.observe(40, noise=times * NOISE)
        plan, model = case.planned(y, noise_std=None)
        noise = plan.run(model, plan.start, plan.target).notes["noise"]
        wanted = torch.full_like(noise, times)
        torch.testing.assert_close(noise.clamp_min(1.0), wanted, rtol=0.2, atol=0)


def test_ten_times_the_noise_is_not_taken_for_structure_where_sensors_are_few():
    """Sixteen integrals of a rough walk: a correction could be made to look like such noise."""
    n, m, noise = 32, 16, 0.005
    family = normal(300, n, seed=1).cumsum(1) / n**0.5
    matrix = torch.tril(torch.ones(n, n, dtype=torch.float64))[1::2] / n
    covariance = torch.cov(family.T)
    total = matrix @ covariance @ matrix.T + noise**2 * torch.eye(m)
    gain = torch.linalg.solve(total, matrix @ covariance).T
    laws = tabled_for(corrections_of(family), matrix, noise)
    known = Calibration(noise_std=noise, beliefs=believed(laws))
    pair = dc.Deceptron(linear(matrix), linear(gain), x_shape=(n,), y_shape=(m,), calibration=known)
    x = normal(60, n, seed=7).cumsum(1) / n**0.5
    y = x @ matrix.T + 10 * noise * normal(60, m, seed=8)
    errors = [float((a - x).square().mean().sqrt()) for a in (dc.solve(pair, y).x, pair.g(y))]
    assert errors[0] < 1.05 * errors[1]


def test_what_the_surrogate_cannot_explain_is_never_called_converged():
    """f errs by six times the noise and knows it: explained to that is not explained."""
    case = Case(8, 30, share=0.9)
    x, _ = case.observe(40)
    bent = x @ case.matrix.T
    y = bent + 6 * NOISE * torch.sin(9 * bent) + NOISE * normal(40, 30, seed=5)
    pair = case.pair.replaced(calibration=replace(case.pair.calibration, surrogate_error=6 * NOISE))
    solution = dc.solve(pair, y, noise_std=NOISE)
    assert not bool(solution.explained.any())
    assert not bool(solution.converged.any())
    assert float((solution.reason == Reason.SURROGATE_LIMIT).double().mean()) > 0.9
    assert "0% explained to the noise" in repr(solution)
    # The pair does not claim the simulator's error: there the noise is all that counts.
    exact = dc.solve(pair, x @ case.matrix.T, noise_std=NOISE, forward=case.simulate)
    assert bool(exact.explained.all())
    assert bool(exact.converged.all())


@pytest.mark.parametrize("n", [12, 60], ids=["all of space", "a subspace"])
def test_a_correction_never_ends_worse_than_its_start(n):
    case = Case(n, n + 8, share=-1.0)
    _, y = case.observe(5)
    solution = dc.solve(case.pair, 5 * y, noise_std=NOISE)
    before = dc.solve(case.pair, 5 * y, noise_std=NOISE, max_iterations=0)
    assert bool((solution.iterations > 0).any())
    assert bool((solution.residual <= before.residual).all())
    assert bool(solution.x.isfinite().all())


@pytest.mark.parametrize("unit", [1e-4, 1e4])
@pytest.mark.parametrize("n", [COMPLETE - 2, COMPLETE + 10], ids=["all of space", "a subspace"])
def test_the_units_of_x_do_not_matter(unit, n):
    """Tables of laws are in units of the family; in those of x their ends were reached."""
    plain, other = Case(n, 60), Case(n, 60, unit=unit)
    _, y = plain.observe(5)
    found, again = (dc.solve(case.pair, y, noise_std=NOISE) for case in (plain, other))
    assert bool((found.iterations > 0).all())
    torch.testing.assert_close(again.x / unit, found.x, rtol=1e-3, atol=1e-4)
    assert torch.equal(again.iterations, found.iterations)


@pytest.mark.parametrize("unknowns", [4, 8])
def test_a_row_goes_on_while_every_linearisation_pays(unknowns):
    """Newton's way down an exponential is one unit a step, and ten units long here; each lowers
    the misfit to a seventh.
    """
    case = Case(unknowns, 3 * unknowns)
    x = 0.1 * normal(12, unknowns, seed=50)

    def steep(x):
        return torch.exp(5 * x) @ case.matrix.T

    y = steep(x) + NOISE * normal(12, 3 * unknowns, seed=60)
    pair = started_at(case, Fixed(torch.full((unknowns,), 1.5, dtype=torch.float64)))
    found = dc.solve(pair, y, forward=steep, noise_std=NOISE)
    assert int(found.iterations.min()) > 6
    assert int(found.iterations.max()) <= LINEARISATIONS
    assert bool(found.explained.all())
    assert float((found.x - x).square().mean().sqrt()) < 0.05


def saturated(case):
    """Sensors that cannot show more than 1: nothing explains an observation of 3."""
    return lambda x: torch.tanh(x @ case.matrix.T)


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_a_row_that_nothing_explains_is_not_called_converged_and_disturbs_no_other(differentiable):
    case = Case(6, 12)
    x, _ = case.observe(4)
    forward = saturated(case)
    y = forward(x) + NOISE * normal(4, 12, seed=3)
    settings = {"forward": forward, "differentiable": differentiable, "noise_std": NOISE}
    sane = dc.solve(case.pair, y, **settings)
    assert bool(sane.explained.all())
    y[2] = 3.0
    found = dc.solve(case.pair, y, **settings)
    assert Status(int(found.status[2])) == Status.STALLED
    assert not bool(found.explained[2])
    assert bool(found.x[2].isfinite().all())
    residual = (forward(found.x[2:3]) - y[2:3]).square().mean().sqrt()
    torch.testing.assert_close(found.over_noise[2], residual / NOISE)
    others = [0, 1, 3]
    torch.testing.assert_close(found.x[others], sane.x[others])
    assert found.reason[others].tolist() == sane.reason[others].tolist()


def test_what_stays_near_is_kept_though_it_does_not_explain_the_data():
    """Noise of five times what was told leaves every row unexplained, and corrections help."""
    case = Case(6, 12)
    x, y = case.observe(40, noise=5 * NOISE)
    found = dc.solve(case.pair, y, forward=case.simulate)
    before, after = ((answer - x).square().mean() for answer in (case.pair.g(y), found.x))
    assert after < before


def test_a_start_that_odds_leave_alone_is_no_answer_that_is_called_explained():
    case = Case(8, 20)
    _, y = case.observe(6)
    y[0] = case.pair.f(case.pair.g(y))[0]  # explained
    pair = with_beliefs(case.pair, surrogate=Odds.only(START))
    found = dc.solve(pair, y, noise_std=NOISE)
    assert torch.equal(found.x, pair.g(y))
    assert bool((found.cost.evaluations == 2).all())
    left = ~found.explained
    assert int(left.sum()) >= 4
    assert bool((found.reason[left] == Reason.START_IS_BETTER).all())
    assert bool((found.status[left] == Status.STALLED).all())
    # On a simulator others are asked.
    assert bool(
        (dc.solve(pair, y, noise_std=NOISE, forward=case.simulate).iterations[left] > 0).all()
    )


def test_odds_that_always_correct_move_what_is_explained_too():
    case = Case(3, 300)
    _, y = case.observe(10)
    off = linear(torch.linalg.pinv(case.matrix))
    # Four deviations of what the data leave open, which are few of those of 300 sensors.
    off.bias = nn.Parameter(torch.tensor([0.02, 0.0, 0.0]).double(), requires_grad=False)
    pair = started_at(case, off)
    left = dc.solve(pair, y, noise_std=NOISE)
    assert int((left.iterations == 0).sum()) >= 7
    always = with_beliefs(pair, surrogate=Odds.only(CORRECTION))
    found = dc.solve(always, y, noise_std=NOISE)
    assert bool((found.iterations >= 1).all())
    assert bool((found.reason[found.explained] == Reason.DISCREPANCY).all())
    torch.testing.assert_close(found.x, case.best(y, pair.g(y)), rtol=0, atol=1e-6)


def test_a_solve_says_what_it_did():
    case = Case(8, 20)
    _, y = case.observe(4)
    found = dc.solve(case.pair, y, noise_std=NOISE)
    assert set(found.history.rules) == {"correction", "family", "start's law"}
    assert found.history.rule_names(0) == ["correction"] * int(found.iterations[0])
