"""The guarded ladder: stationary for any g, cheap with a good one, quiet at the noise."""

import pytest
import scipy.optimize
import torch
from torch import nn

import deceptron as dc
from deceptron.core import Reason, Status
from deceptron.laws.calibration import Calibration
from deceptron.solve.span import Directions
from tests.solve.pairs import fitted_mlp_pair, invertible_pair


class Replaced:
    """The pair's f with another g."""

    def __init__(self, pair, g):
        self.f, self.g = pair.f, g


def random_network(n):
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(n, 32), nn.Tanh(), nn.Linear(32, n)).double()


def sometimes_nan(pair):
    def g(y):
        x = pair.g(y)
        return torch.where((y[:, :1] > y[:, :1].median()), torch.nan, x)

    return g


REVERSE = {
    "random": lambda pair, n: random_network(n),
    "zero": lambda pair, n: torch.zeros_like,
    "nan on some rows": lambda pair, n: sometimes_nan(pair),
    "nan everywhere": lambda pair, n: lambda y: torch.full_like(y, torch.nan),
    "backwards": lambda pair, n: lambda y: -pair.g(y),
}


def observations(pair, n, count=12):
    generator = torch.Generator().manual_seed(8)
    x = torch.rand(count, n, dtype=torch.float64, generator=generator)
    return pair.f(x).detach() + 0.05 * torch.randn(
        count, n, dtype=torch.float64, generator=generator
    )


def projected_gradient(pair, x, y, bounds):
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(0.5 * (pair.f(x) - y).square().sum(), x)
    moved = x - gradient
    if bounds is not None:
        moved = moved.clamp(*bounds)
    return (x - moved).flatten(1).norm(dim=1).detach()


@pytest.mark.parametrize("bounds", [None, (0.1, 0.7)], ids=["free", "box"])
@pytest.mark.parametrize("kind", REVERSE)
def test_any_reverse_map_ends_at_a_stationary_point(kind, bounds):
    n = 8
    pair = fitted_mlp_pair(n)
    y = observations(pair, n)
    changed = Replaced(pair, REVERSE[kind](pair, n))
    start = torch.full_like(y, 0.3)
    solution = dc.solve(
        changed,
        y,
        method="guarded",
        x0=start,
        bounds=bounds,
        gradient_tolerance=1e-5,
        max_iterations=400,
    )
    before = projected_gradient(pair, start, y, bounds)
    after = projected_gradient(pair, solution.x, y, bounds)
    assert bool((after <= 1e-4 * before).all()), (after / before).max()
    assert bool((solution.loss <= 0.5 * (pair.f(start) - y).square().mean(1)).all())


@pytest.mark.parametrize("kind", ["zero", "nan on some rows"])
def test_any_reverse_map_on_a_surrogate_that_ships(kind):
    """The cheapest of the seven; ``python -m benchmarks any_g`` does them all."""
    pair = dc.load("heat-3d").double().requires_grad_(False)
    problem = dc.problems.get("heat-3d", test_count=2)
    y = pair.scaler.normalise(problem.dataset(seed=7).test.y.double())
    lost = y.flatten(1).mean(1).mean()

    def sometimes(rows):
        gone = rows.flatten(1).mean(1) > lost
        return torch.where(gone.reshape(-1, 1, 1, 1, 1), torch.nan, pair.g(rows))

    changed = Replaced(pair, {"zero": torch.zeros_like, "nan on some rows": sometimes}[kind])
    start = torch.zeros_like(y)
    solution = dc.solve(
        changed, y, x0=start, bounds=pair.bounds, gradient_tolerance=5e-5, max_iterations=20
    )
    before, after = (projected_gradient(pair, x, y, pair.bounds) for x in (start, solution.x))
    assert bool((after <= 1e-4 * before).all())


def test_rows_without_a_finite_reverse_start_cold():
    n = 8
    pair = fitted_mlp_pair(n)
    y = observations(pair, n)
    changed = Replaced(pair, sometimes_nan(pair))
    lost = changed.g(y).isnan().any(1)
    assert 0 < int(lost.sum()) < len(y)
    solution = dc.solve(changed, y, method="guarded", max_iterations=0)
    assert bool((solution.x[lost] == 0).all())
    torch.testing.assert_close(solution.x[~lost], changed.g(y)[~lost])
    solved = dc.solve(changed, y, method="guarded", max_iterations=100)
    assert bool((solved.status == Status.CONVERGED).all())


def test_a_good_map_makes_the_steps_and_the_guard_is_cheap():
    pair = invertible_pair(bias=0.02)
    generator = torch.Generator().manual_seed(2)
    y = pair.f(torch.randn(16, 6, dtype=torch.float64, generator=generator))
    settings = {"x0": torch.zeros_like(y), "tolerance": 1e-6}
    guarded = dc.solve(pair, y, method="guarded", **settings)
    tangent = dc.solve(pair, y, method="d-ipg-tangent", **settings)
    assert bool(guarded.converged.all())
    assert {name for row in range(16) for name in guarded.history.rule_names(row)} == {"learned"}
    costs = [float(s.cost.evaluations.double().mean()) for s in (guarded, tangent)]
    # A jvp measures the first step; those after a step that did as promised are not measured.
    assert costs[0] <= 1.3 * costs[1]


def test_a_bad_map_leaves_the_work_to_newton():
    n = 8
    pair = fitted_mlp_pair(n)
    y = observations(pair, n)
    changed = Replaced(pair, REVERSE["backwards"](pair, n))
    solution = dc.solve(changed, y, method="guarded", x0=torch.full_like(y, 0.3))
    names = [name for row in range(len(y)) for name in solution.history.rule_names(row)]
    assert names.count("newton") > 0.8 * len(names)


def test_an_explained_row_is_left_alone():
    pair = invertible_pair()
    generator = torch.Generator().manual_seed(2)
    y = pair.f(torch.randn(4, 6, dtype=torch.float64, generator=generator))
    y[2] += 5.0  # still in the range of f, so g explains it too
    solution = dc.solve(pair, y, method="guarded", noise_std=0.01)
    assert solution.reason.tolist() == [Reason.DISCREPANCY] * 4
    assert solution.iterations.tolist() == [0] * 4
    assert solution.cost.evaluations.tolist() == [2] * 4


def test_newton_stops_at_the_noise_and_not_below():
    n = 40
    generator = torch.Generator().manual_seed(1)
    decay = torch.logspace(0, -5, n, dtype=torch.float64)
    truth = torch.randn(6, n, dtype=torch.float64, generator=generator)
    y = truth * decay + 0.01 * torch.randn(6, n, dtype=torch.float64, generator=generator)
    pair = Replaced(type("Blur", (), {"f": staticmethod(lambda x: x * decay)}), torch.zeros_like)
    solution = dc.solve(pair, y, method="guarded", noise_std=0.01)
    assert bool((solution.reason == Reason.DISCREPANCY).all())
    # To the bottom the residual would be zero and the error 1e5 times the noise.
    assert bool((solution.residual > 0.3 * 0.01).all())
    assert bool(((solution.x - truth).square().mean(1).sqrt() < 1.2).all())


def test_a_row_that_cannot_be_explained_is_given_up():
    def valley(x):
        """Rosenbrock's residuals, and a third that no x changes."""
        return torch.stack([10 * (x[:, 1] - x[:, 0] ** 2), 1 - x[:, 0], 0 * x[:, 0] + 9], 1)

    pair = Replaced(type("Valley", (), {"f": staticmethod(valley)}), lambda y: y[:, :2])
    y = torch.zeros(3, 3, dtype=torch.float64)
    x0 = torch.tensor([[-1.2, 1.0]], dtype=torch.float64).repeat(3, 1)
    solution = dc.solve(pair, y, method="guarded", x0=x0, noise_std=0.01)
    assert solution.reason.tolist() == [Reason.NO_PROGRESS] * 3
    assert bool((solution.status == Status.STALLED).all())
    # The same without the rule goes on to the bottom of the valley.
    patient = dc.solve(pair, y, method=dc.methods.guarded(progress=None), x0=x0, noise_std=0.01)
    assert bool((patient.loss < solution.loss).all())


def test_a_poor_learned_step_does_not_end_a_row_that_newton_can_solve():
    most = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    pair = Replaced(type("Same", (), {"f": staticmethod(lambda x: 1.0 * x)}), lambda y: most * y)
    y = torch.ones(3, 6, dtype=torch.float64)
    solution = dc.solve(pair, y, method="guarded", x0=torch.zeros_like(y), noise_std=0.01)
    assert bool(solution.converged.all())
    assert solution.history.rule_names(0)[-1] == "newton"


def test_a_tolerance_of_the_user_is_not_overruled_by_the_noise_of_the_pair():
    pair = invertible_pair(bias=0.05)
    pair.calibration = Calibration(noise_std=0.5)
    y = pair.f(torch.full((2, 6), 0.3, dtype=torch.float64))
    assert bool((dc.solve(pair, y).reason == Reason.DISCREPANCY).all())
    assert bool((dc.solve(pair, y, tolerance=1e-6).residual <= 1e-6).all())


def test_a_simulator_without_derivatives_is_refused_in_words():
    pair = Replaced(
        type("Opaque", (), {"f": staticmethod(lambda x: x.detach() + 1)}), torch.zeros_like
    )
    with pytest.raises(dc.ConfigError, match="carries no graph"):
        dc.solve(pair, torch.zeros(2, 3), method="guarded")
    assert dc.solve(pair, torch.zeros(2, 3), method="one-shot").x.shape == (2, 3)


def test_two_directions_make_up_for_a_reverse_map_with_two_kinds_of_error():
    """J G has two eigenvalues, so its Krylov space of two directions holds the solution."""
    n = 6
    gain = torch.tensor([1.0, 1.0, 1.0, 0.1, 0.1, 0.1], dtype=torch.float64)
    pair = Replaced(type("Same", (), {"f": staticmethod(lambda x: 1.0 * x)}), lambda y: gain * y)
    y = torch.arange(1.0, 1.0 + n, dtype=torch.float64)[None]
    settings = {"x0": torch.zeros_like(y), "tolerance": 1e-9, "max_iterations": 1}
    solution = dc.solve(pair, y, **settings)
    torch.testing.assert_close(solution.x, y, atol=1e-9, rtol=0)
    assert solution.history.rule_names(0) == ["learned"]
    assert solution.cost.g.tolist() == solution.cost.jvp.tolist() == [2]
    one = dc.methods.guarded(directions=Directions(most=1), quality=1.0)
    assert float(dc.solve(pair, y, method=one, **settings).residual) > 0.1


def test_a_proven_direction_keeps_the_length_that_was_right_for_it():
    """g is exact but for a factor that one measurement finds; f bends a little."""
    pair = Replaced(
        type("Bent", (), {"f": staticmethod(lambda x: x + 0.05 * x**2)}), lambda y: y / 3
    )
    y = torch.full((2, 4), 2.0, dtype=torch.float64)
    solution = dc.solve(pair, y, x0=torch.zeros_like(y), tolerance=1e-6)
    assert set(solution.history.rule_names(0)) == {"learned"}
    assert solution.cost.jvp.tolist() == [1, 1]  # at a third of the length it would take dozens
    assert int(solution.iterations.max()) <= 10


def test_the_newton_step_is_best_in_the_box_where_projection_would_not_descend():
    """Ill-conditioned and active at a bound: scipy's answer, in a few steps."""
    generator = torch.Generator().manual_seed(5)
    n = 12
    basis = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))[0]
    matrix = basis * torch.logspace(0, -2.5, n, dtype=torch.float64) @ basis.T
    y = torch.randn(3, n, dtype=torch.float64, generator=generator) @ matrix.T * 2
    pair = Replaced(
        type("Linear", (), {"f": staticmethod(lambda x: x @ matrix.T)}), torch.zeros_like
    )
    solution = dc.solve(pair, y, bounds=(0.0, 1.0), gradient_tolerance=1e-10, max_iterations=200)
    for row in range(3):
        expected = scipy.optimize.lsq_linear(
            matrix.numpy(), y[row].numpy(), bounds=(0.0, 1.0), tol=1e-14
        )
        assert 0 < int((solution.x[row] == 0).sum()) < n
        assert float(solution.loss[row]) * n == pytest.approx(expected.cost, rel=1e-6)
        assert set(solution.history.rule_names(row)) == {"newton"}
    assert int(solution.iterations.max()) <= 30


def test_a_row_that_is_given_up_is_not_charged_a_gradient():
    pair = Replaced(
        type("Stuck", (), {"f": staticmethod(lambda x: 9 + 0.05 * torch.tanh(x))}), torch.zeros_like
    )
    y = torch.zeros(2, 3, dtype=torch.float64)
    solution = dc.solve(pair, y, noise_std=0.01, gradient_tolerance=0.0)
    assert solution.reason.tolist() == [Reason.NO_PROGRESS] * 2
    # One gradient at the start, and none where the last step ended: the rest are inner products.
    cost = solution.cost
    assert solution.iterations.tolist() == [1, 1]
    assert cost.vjp.tolist() == (1 + 1 + cost.linear_steps).tolist()


def test_the_default_tau_is_the_99_percent_quantile_of_pure_noise():
    generator = torch.Generator().manual_seed(0)
    noise = torch.logspace(-2, 0, 50, dtype=torch.float64)  # very unequal components
    y = noise * torch.randn(4000, 50, dtype=torch.float64, generator=generator)

    def f(x):
        return torch.zeros(len(x), 50, dtype=x.dtype) + 0 * x

    solution = dc.solve(f, y, method="gd", x0=torch.zeros(4000, 1, dtype=y.dtype), noise_std=noise)
    explained = float((solution.reason == Reason.DISCREPANCY).double().mean())
    assert 0.975 <= explained <= 0.997


def test_rows_on_which_newton_buys_little_go_on_by_their_pairs():
    """Chained valleys in a box, with a residual that no x removes: Gauss-Newton is blind to the
    curvature that such residuals have, and bounds come and go.
    """

    def valleys(x):
        bends = 10 * (x[:, 1:] - x[:, :-1] ** 2)
        return torch.cat([bends, 1 - x[:, :-1], 3 + torch.sin(5 * x)], 1)

    n = 30
    pair = Replaced(type("Valleys", (), {"f": staticmethod(valleys)}), lambda y: 0 * y[:, :n])
    y = torch.zeros(4, 3 * n - 2, dtype=torch.float64)
    generator = torch.Generator().manual_seed(5)
    x0 = 2 * torch.rand(4, n, dtype=torch.float64, generator=generator) - 1
    bounds = (-0.9, 0.6)
    settings = {"x0": x0.clamp(*bounds), "bounds": bounds, "gradient_tolerance": 1e-6}
    solution = dc.solve(pair, y, method="guarded", max_iterations=2000, **settings)
    names = [solution.history.rule_names(row) for row in range(4)]
    assert any("l-bfgs" in row for row in names)
    before, after = (projected_gradient(pair, x, y, bounds) for x in (settings["x0"], solution.x))
    assert bool((after <= 1e-5 * before).all()), (after / before).tolist()


def test_a_row_remembers_no_pairs_because_a_neighbour_is_slow():
    rng = torch.Generator().manual_seed(0)
    a = torch.randn(10, 6, dtype=torch.float64, generator=rng)

    def waves(x):
        return torch.sin(3 * (x @ a.T)) + 0.3 * (x @ a.T)

    pair = Replaced(type("Waves", (), {"f": staticmethod(waves)}), lambda y: 0 * y[:, :6])
    y = 3 * torch.randn(8, 10, dtype=torch.float64, generator=rng)
    settings = {"gradient_tolerance": 1e-9, "max_iterations": 100}
    together = dc.solve(pair, y, **settings)
    alone = [dc.solve(pair, y[[row]], **settings) for row in range(8)]
    assert all("l-bfgs" in solution.history.rule_names(0) for solution in alone)
    own = torch.cat([solution.iterations for solution in alone])
    # Waves make much of round-off: a row in eight may take another way.
    assert int((together.iterations != own).sum()) <= 2
