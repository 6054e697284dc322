"""Rows with missing sensors: where they start and how wide their bars are."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import deceptron as dc
from deceptron.core.bases import DiagonalGaussian, EigenBasis
from deceptron.geometry.noise_aware import gap_errors
from deceptron.laws.calibration import Calibration
from deceptron.laws.odds import START, Odds
from deceptron.solve.starts import FILLINGS
from tests.solve.linear_case import NOISE, Case, with_beliefs

N = M = 40


def gaussian(covariance):
    values, vectors = torch.linalg.eigh(covariance)
    basis = EigenBasis(vectors.flip(1).T.contiguous())
    return DiagonalGaussian(
        torch.zeros(len(values), dtype=torch.float64), basis, values.flip(0).clamp_min(1e-12)
    )


def known_family(*, knows_data=True):
    """A linear problem whose pair knows its family exactly, with the best gain as g."""
    case = Case(N, M)
    steps = torch.ones(N, N, dtype=torch.float64).tril()
    covariance = steps @ steps.T / N
    seen = case.matrix @ covariance @ case.matrix.T
    noisy = seen + NOISE**2 * torch.eye(M, dtype=torch.float64)
    gain = covariance @ case.matrix.T @ torch.linalg.inv(noisy)
    case.pair.g.weight.copy_(gain)
    known = replace(
        case.pair.calibration,
        family=gaussian(covariance),
        # One that knows nothing of how sensors go together cannot fill a gap by itself.
        observations=gaussian(seen if knows_data else seen.diag().diag()),
        interval_factor=1.0,
        prior_share=1.0,
    )
    case.pair = case.pair.replaced(calibration=known)
    return case, covariance


def conditional_mean(case, covariance, y, kept):
    a = case.matrix[kept]
    system = a @ covariance @ a.T + NOISE**2 * torch.eye(int(kept.sum()), dtype=torch.float64)
    return (covariance @ a.T @ torch.linalg.solve(system, y[:, kept].T)).T


def test_the_surrogate_fills_what_the_covariance_cannot():
    case, covariance = known_family(knows_data=False)
    x, y = case.observe(64)
    kept = torch.arange(M) % 2 == 0
    best = conditional_mean(case, covariance, y, kept)
    gappy = torch.where(kept, y, torch.nan)
    solution = dc.solve(case.pair, gappy, noise_std=NOISE)
    one_shot = dc.solve(case.pair, gappy, noise_std=NOISE, method="one-shot")
    error, worse, least = (
        float((z - x).square().mean().sqrt()) for z in (solution.x, one_shot.x, best)
    )
    # It closes most of the gap to the best there is.
    assert worse > 1.5 * least
    assert error - least < 0.6 * (worse - least)
    # On the surrogate what that asks of f is asked of the forward map; of a simulator, nothing is.
    cost, elsewhere = (
        dc.solve(case.pair, gappy, noise_std=NOISE, forward=forward, max_iterations=0).cost
        for forward in (None, case.pair.f)
    )
    assert bool((cost.vjp > 0).any() & (cost.surrogate == 0).all())
    assert torch.equal(elsewhere.surrogate, cost.forward - 1)
    assert bool((elsewhere.forward == 1).all())
    assert torch.equal(cost.g, elsewhere.g)


def test_a_linear_start_is_the_best_linear_estimate_from_the_sensors_that_are_left():
    """In closed form. A surrogate that errs has nothing to add: it led rows away."""
    case, covariance = known_family()
    _, y = case.observe(64)
    kept = torch.arange(M) % 2 == 0
    gappy = torch.where(kept, y, torch.nan)
    left_alone = Odds.only(START)
    known = with_beliefs(case.pair, surrogate=left_alone, simulator=left_alone).calibration
    pair = SimpleNamespace(
        f=lambda x: 3 * case.pair.f(x),
        g=case.pair.g,
        wiener=case.pair.g,
        calibration=replace(known, start="wiener"),
    )
    best = conditional_mean(case, covariance, y, kept)
    for forward in (None, case.pair.f):
        solution = dc.solve(pair, gappy, noise_std=NOISE, forward=forward)
        torch.testing.assert_close(solution.x, best, rtol=0, atol=1e-4)
        assert bool((solution.cost.evaluations == 1).all())


def test_rows_without_gaps_do_not_pay_for_their_neighbours():
    case, _ = known_family(knows_data=False)
    _, y = case.observe(4)
    gappy = y.clone()
    gappy[1, ::2] = torch.nan
    together, alone = (dc.solve(case.pair, rows, noise_std=NOISE) for rows in (gappy, y))
    whole = torch.tensor([0, 2, 3])
    torch.testing.assert_close(together.x[whole], alone.x[whole], rtol=0, atol=1e-9)
    more = together.cost.evaluations - alone.cost.evaluations
    assert more[whole].tolist() == [0, 0, 0]
    assert int(more[1]) > 0
    assert torch.equal(together.std[whole], alone.std[whole])


def test_what_gaps_cost_is_what_it_costs_in_closed_form():
    """cov = G M (C_y - C_y S' (S C_y S' + noise^2)^-1 S C_y) M G', S the sensors that are left."""
    case, _ = known_family()
    x, _ = case.observe(1)
    kept = torch.arange(M) % 3 > 0
    noise = torch.where(kept, NOISE, torch.inf).double()
    draws = gap_errors(
        case.pair,
        x,
        observations=case.pair.calibration.observations,
        noise_std=noise,
        probes=4000,
        generator=torch.Generator().manual_seed(3),
    )[0]
    steps = torch.ones(N, N, dtype=torch.float64).tril()
    seen = case.matrix @ (steps @ steps.T / N) @ case.matrix.T
    noisy = seen[kept][:, kept] + NOISE**2 * torch.eye(int(kept.sum()), dtype=torch.float64)
    left = seen - seen[:, kept] @ torch.linalg.solve(noisy, seen[kept])
    gain = case.pair.g.weight * (~kept)
    exact = (gain @ left @ gain.T).diagonal().sqrt()
    # A standard deviation from 4000 draws is off by 1.1%, five times that in none of 40.
    torch.testing.assert_close(draws.square().mean(0).sqrt(), exact, rtol=0.06, atol=0)


def test_bars_of_rows_with_gaps_cover():
    """Exactly known family and best gain: what covers with all sensors covers with half of them."""
    case, _ = known_family()
    x, y = case.observe(200)
    gone = torch.rand(y.shape, generator=torch.Generator().manual_seed(5)) < 0.5
    solution = dc.solve(case.pair, torch.where(gone, torch.nan, y), noise_std=NOISE)
    low, high = solution.interval(0.9)
    coverage = float(((x >= low) & (x <= high)).double().mean())
    assert 0.85 < coverage < 0.98
    whole = dc.solve(case.pair, y, noise_std=NOISE)
    assert float(solution.std.mean()) > 1.2 * float(whole.std.mean())


def test_draws_about_a_row_with_gaps_have_its_spread():
    case, _ = known_family()
    _, y = case.observe(2)
    y[:, ::3] = torch.nan
    solution = dc.solve(case.pair, y, noise_std=NOISE)
    draws = solution.posterior(samples=2000, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(draws.std(0).mean(), solution.std.mean(), rtol=0.15, atol=0)


def test_a_row_without_any_sensor_says_so_and_its_neighbours_do_not_mind():
    case, _ = known_family()
    _, y = case.observe(3)
    y[1] = torch.nan
    y[2, ::2] = torch.nan
    solution = dc.solve(case.pair, y, noise_std=NOISE)
    assert solution.reason[1] == dc.core.Reason.NO_DATA
    assert bool(solution.std[[0, 2]].isfinite().all())


def test_one_silent_sensor_of_many_is_too_few_to_fill():
    pair = dc.load("heat-1d")
    problem = dc.problems.get("heat-1d")
    y = problem.simulate(problem.sample(2, generator=torch.Generator().manual_seed(0)))
    y[0, 3] = torch.nan
    assert bool(dc.solve(pair, y).converged.all())


class Counted:
    """A map that counts the rows it is asked for."""

    def __init__(self, map_):
        self.map, self.rows = map_, 0

    def __call__(self, rows):
        self.rows += len(rows)
        return self.map(rows)


@pytest.mark.parametrize("forward", [False, True])
def test_filling_gaps_by_passes_through_both_maps_is_charged(forward):
    """Without a covariance of the data. The rows with gaps are all, so nobody pays for others."""
    case = Case(6, 9)
    f, g = Counted(case.pair.f), Counted(case.pair.g)
    pair = type("Pair", (), {"f": f, "g": g})
    _, y = case.observe(3)
    y[:, 2] = torch.nan
    settings = {"forward": case.pair.f} if forward else {}
    solution = dc.solve(pair, y, method="one-shot", **settings)
    assert solution.cost.g.tolist() == [g.rows // 3] * 3 == [1 + FILLINGS] * 3
    counted = solution.cost.surrogate if forward else solution.cost.f
    assert counted.tolist() == [f.rows // 3] * 3
    y[0] = 1.0
    first, *others = dc.solve(pair, y, method="one-shot", **settings).cost.g.tolist()
    assert [first, *others] == [1, 1 + FILLINGS, 1 + FILLINGS]


def test_a_linear_start_is_no_pass_through_g():
    case = Case(6, 9)
    g = Counted(case.pair.g)
    pair = SimpleNamespace(
        f=case.pair.f, g=g, wiener=case.pair.g, calibration=Calibration(start="wiener")
    )
    _, y = case.observe(3)
    solution = dc.solve(pair, y, tolerance=1e9)
    assert g.rows == 0
    assert solution.cost.g.tolist() == [0, 0, 0]


def test_what_a_missing_sensor_would_show_is_predicted_at_every_point():
    """d-ipg-difference heads for g(y*), and y* is f(x) there. Its full steps, by hand."""
    rng = torch.Generator().manual_seed(1)
    a = torch.randn(8, 6, dtype=torch.float64, generator=rng)
    inverse = 0.9 * torch.linalg.pinv(a)

    def f(x):
        return torch.tanh(x @ a.T) + 0.2 * (x @ a.T)

    def g(y):
        return 1.5 * torch.tanh(y @ inverse.T)

    # So near to zero that nearly all steps are full ones.
    y = f(0.2 * torch.randn(4, 6, dtype=torch.float64, generator=rng))
    y[:3, :2] = torch.nan
    pair = SimpleNamespace(f=f, g=g)
    x = torch.zeros(4, 6, dtype=torch.float64)
    solution = dc.solve(pair, y, method="d-ipg-difference", x0=x, max_iterations=3)
    full = (solution.history.step_size == 1).all(0)
    assert bool(full[:3].any())
    for _ in range(3):
        x = x + g(torch.where(y.isnan(), f(x), y)) - g(f(x))
    torch.testing.assert_close(solution.x[full], x[full])
    # A pass at the start and at each of the next two points, and one more where y* is new there.
    assert torch.equal(solution.cost.g[full], torch.tensor([6, 6, 6, 4])[full])


@pytest.mark.parametrize(
    "settings",
    [{"differentiable": False}, *({"method": m} for m in ("guarded", "one-shot", "gn", "l-bfgs"))],
)
def test_what_a_simulator_says_of_a_sensor_that_was_not_observed_does_not_matter(settings):
    problem, pair = dc.problems.get("heat-1d"), dc.load("heat-1d")
    y = problem.dataset(seed=7).test.y[:6] + 0.05 * torch.sin(torch.arange(64) / 5.0)
    silent = torch.zeros(64, dtype=torch.bool).index_fill(0, torch.tensor([3, 40]), True)
    y[:, silent] = torch.nan
    y[1, 9] = torch.nan

    def without_them(x):
        return torch.where(silent, torch.nan, problem.simulate(x))

    found, there = (
        dc.solve(pair, y, forward=forward, max_iterations=4, **settings)
        for forward in (without_them, problem)
    )
    torch.testing.assert_close(found.x, there.x, rtol=1e-3, atol=1e-3)
    assert found.reason.tolist() == there.reason.tolist()
