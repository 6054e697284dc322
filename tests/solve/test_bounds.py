"""Bounds are kept by the fit, not by clipping what was found without them."""

import pytest
import torch
from scipy.optimize import lsq_linear

import deceptron as dc
from deceptron.core import Reason
from deceptron.laws.calibration import Calibration
from deceptron.laws.shapes import corrections_of
from deceptron.solve import growth
from deceptron.solve.boxed import least_in_box
from deceptron.solve.descents import posterior
from tests.laws.dense import believed, covariance, normal
from tests.solve.linear_case import NOISE, Case, Fixed, linear, tabled_for

SENSORS = 2000


def uniform(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("n", [1, 5, 32])
@pytest.mark.parametrize("decades", [0, 2])
def test_the_least_value_in_a_box_has_no_way_down(n, decades):
    jacobian = normal(100, n + 2, n) * 10 ** (decades * (2 * uniform(100, 1, n) - 1))
    hessian = jacobian.mT @ jacobian + 1e-4 * torch.eye(n)
    slope, low, high = 10 * normal(100, n, seed=1), -uniform(100, n), uniform(100, n, seed=3)
    low[::7], high[::5] = -torch.inf, torch.inf
    free = torch.linalg.solve(hessian, slope)
    free[3] = torch.nan
    found = least_in_box(hessian, slope, low, high, free)
    assert bool(found[3].isnan().all())
    others = torch.arange(100) != 3
    gradient = (hessian @ found[:, :, None])[:, :, 0] - slope
    ahead = found - gradient / hessian.diagonal(dim1=1, dim2=2)
    ahead = torch.minimum(torch.maximum(ahead, low), high)
    torch.testing.assert_close(ahead[others], found[others], rtol=1e-7, atol=1e-7)
    inside = ((free >= low) & (free <= high)).all(1)
    torch.testing.assert_close(found[inside], free[inside], rtol=1e-9, atol=1e-9)
    for row in range(0, 100, 9):
        rows = slice(row, row + 1)
        alone = least_in_box(hessian[rows], slope[rows], low[rows], high[rows], free[rows])
        torch.testing.assert_close(alone, found[rows], rtol=1e-9, atol=1e-9, equal_nan=True)


def pair_at(matrix, start, *, bounds=None):
    """y = A x, all rows beginning at ``start``; latents are of order one."""
    laws = tabled_for(corrections_of(normal(300, len(start), seed=1)), matrix)
    return dc.Deceptron(
        linear(matrix),
        Fixed(start),
        x_shape=(len(start),),
        y_shape=(len(matrix),),
        bounds=bounds,
        calibration=Calibration(noise_std=NOISE, beliefs=believed(laws)),
    )


def modes(forward):
    return [
        {"forward": forward},
        {"forward": lambda x: forward(x).numpy(), "differentiable": False},
    ]


@pytest.mark.parametrize("mode", [0, 1], ids=["derivatives", "values"])
def test_a_correction_that_meets_a_bound_fits_as_well_as_any_other_in_the_box(mode):
    """Columns that are nearly the same: clipping one of their coefficients ruins the fit."""
    common, own = normal(60, 1), normal(60, 3, seed=2)
    matrix = common + 0.03 * own
    truth = torch.tensor([[0.98, 0.5, 0.02]], dtype=torch.float64).expand(20, -1)
    y = truth @ matrix.T + NOISE * normal(20, 60, seed=3)
    pair = pair_at(matrix, torch.full((3,), 0.2, dtype=torch.float64), bounds=(0.0, 1.0))
    settings = modes(lambda x: x @ matrix.T)[mode]
    found = dc.solve(pair, y, noise_std=NOISE, **settings)
    least = [lsq_linear(matrix, row, (0, 1)).cost for row in y.numpy()]
    chi = (found.x @ matrix.T - y).square().sum(1) / NOISE**2
    assert bool((chi - 2 * torch.tensor(least) / NOISE**2 < 10).all())
    assert bool((torch.minimum(found.x, 1 - found.x) < 1e-9).any())


@pytest.mark.parametrize("mode", [0, 1], ids=["derivatives", "values"])
def test_explained_is_not_enough_where_many_sensors_see_few_unknowns(mode):
    """The limit of 2000 sensors leaves 150 of chi-squared; chance makes 3."""
    matrix = normal(SENSORS, 3) / SENSORS**0.5
    truth = 0.2 * normal(20, 3, seed=5)

    def forward(x):
        return 20 * torch.sinh(x) @ matrix.T

    y = forward(truth) + NOISE * normal(20, SENSORS, seed=6)
    pair = pair_at(matrix, torch.zeros(3, dtype=torch.float64))
    found = dc.solve(pair, y, noise_std=NOISE, **modes(forward)[mode])
    chi = [(forward(x) - y).square().sum(1) / NOISE**2 for x in (found.x, truth)]
    assert bool((chi[0] - chi[1] < 20).all())
    # One row in a hundred is beyond the limit by chance.
    assert float(found.explained.double().mean()) >= 0.8
    assert bool((found.reason[found.explained] == Reason.DISCREPANCY).all())
    # Where one linearisation has told all, there is no second.
    assert int(found.iterations.min()) == 1
    assert int(found.iterations.max()) > 1


def test_a_component_that_a_bound_holds_is_at_the_bound_in_double_precision():
    """0.3 is a little more in single precision."""
    case = Case(12, 20)
    _, y = case.observe(8)
    x = dc.solve(case.pair, y, noise_std=NOISE, bounds=(0.3, 9.0)).x
    near = x < 0.3 + 1e-6
    assert bool(near.any())
    assert float((x[near] - 0.3).abs().max()) < 1e-12


def test_the_answer_within_bounds_is_the_least_value_of_one_law_there():
    """By another least squares in the box, for the law that the row has taken."""
    case = Case(8, 12, share=0.3)
    _, y = case.observe(6)
    bounds = (-0.25, 0.25)
    plan, model = case.planned(y, bounds=bounds)
    with torch.no_grad():
        found = plan.run(model, plan.start, plan.target)
    at_bound = (found.x.abs() == 0.25).any(1)
    rows = (at_bound & (found.iterations > 0)).nonzero().flatten().tolist()
    assert len(rows) >= 3
    a = case.matrix / NOISE
    for row in rows:
        start = plan.start[row]
        size = case.laws.sizes[int(found.notes["size"][row])]
        k = (case.laws.scale * size) ** 2 * covariance(
            case.laws.shapes[int(found.notes["shape"][row])]
        )
        root = torch.linalg.cholesky(torch.linalg.inv(k)).T
        both = torch.cat([a, root]).numpy()
        right = torch.cat([(y[row] - case.matrix @ start) / NOISE, torch.zeros(8).double()])
        sides = tuple((side - start).numpy() for side in bounds)
        z = lsq_linear(both, right.numpy(), sides, tol=1e-14).x
        torch.testing.assert_close(found.x[row], start + torch.as_tensor(z), rtol=0, atol=1e-5)


def test_values_alone_are_never_asked_outside_of_the_box():
    case = Case(8, 20)
    _, y = case.observe(4)

    def strict(x):
        assert float(x.min()) >= -0.4
        assert float(x.max()) <= 0.4
        return case.values(x)

    settings = {"bounds": (-0.4, 0.4), "noise_std": NOISE}
    solution = dc.solve(case.pair, y, forward=strict, differentiable=False, **settings)
    assert bool((solution.x.abs() == 0.4).any()), "the box must matter for this test"
    torch.testing.assert_close(solution.x, dc.solve(case.pair, y, **settings).x, rtol=0, atol=1e-6)


@pytest.mark.parametrize("width", [0.0, 1e-4])
def test_values_alone_cope_with_a_component_that_the_box_fixes(width):
    case = Case(8, 20)
    _, y = case.observe(4)
    low = torch.full((8,), -5.0, dtype=torch.float64)
    high = -low
    low[2], high[2] = 0.1, 0.1 + width

    def strict(x):
        assert bool(((x >= low) & (x <= high)).all())
        return case.values(x)

    settings = {"bounds": (low, high), "noise_std": NOISE}
    solution = dc.solve(case.pair, y, forward=strict, differentiable=False, **settings)
    assert int(solution.iterations.min()) > 0
    wanted = dc.solve(case.pair, y, **settings)
    assert bool((solution.residual < 1.2 * wanted.residual).all())
    if width:
        torch.testing.assert_close(solution.x, wanted.x, rtol=0, atol=1e-6)


def blurred_spikes(noise, rows, n=50, seed=2):
    """Of no less than zero, by a g that knows nothing of bounds: most components of a correction
    without bounds go below zero.
    """
    m = 3 * n // 2
    places = torch.linspace(0, n - 1, m, dtype=torch.float64)[:, None] - torch.arange(n)
    matrix = torch.exp(-0.5 * (places / 1.5).square())

    def spikes(count, seed):
        rng = torch.Generator().manual_seed(seed)
        there = torch.rand(count, n, dtype=torch.float64, generator=rng) < 0.15
        return there * torch.rand(count, n, dtype=torch.float64, generator=rng)

    gain = torch.linalg.solve(matrix.T @ matrix + 0.3 * torch.eye(n), matrix.T)
    laws = tabled_for(corrections_of(spikes(300, 1)), matrix, noise)
    known = Calibration(noise_std=noise, beliefs=believed(laws))
    pair = dc.Deceptron(linear(matrix), linear(gain), x_shape=(n,), y_shape=(m,), calibration=known)
    x = spikes(rows, seed)
    return pair, matrix, x, x @ matrix.T + noise * normal(rows, m, seed=seed + 1)


def test_components_that_a_bound_holds_do_not_stop_the_others(monkeypatch):
    # Too many for a subspace that is everything.
    monkeypatch.setattr(posterior, "BOUNDED", 0)
    pair, _, x, y = blurred_spikes(0.03, 80)
    settings = {"bounds": (0.0, 1.0), "noise_std": 0.03}

    def error(most=None):
        found = dc.solve(pair, y, max_iterations=most, **settings).x
        return float((found - x).square().mean().sqrt())

    start, heeded = error(0), error()
    monkeypatch.setattr(growth._Growth, "_free_components", lambda self, d: None)
    cut_off = error()
    # 1.3 to 1.6 times what is gained where bounds cut off what was found without them.
    assert cut_off < start
    assert start - heeded > 1.2 * (start - cut_off)


def test_round_off_does_not_decide_which_components_a_bound_holds(monkeypatch):
    """A row alone differs from the same among others by round-off, and a component that was held
    comes back from its basis at its bound or next to it.
    """
    monkeypatch.setattr(posterior, "BOUNDED", 0)
    pair, _, _, y = blurred_spikes(0.03, 12)
    settings = {"bounds": (0.0, 1.0), "noise_std": 0.03}
    together = dc.solve(pair, y, **settings)
    assert int(together.iterations.max()) > 1
    for row in range(len(y)):
        alone = dc.solve(pair, y[row : row + 1], **settings)
        torch.testing.assert_close(alone.x[0], together.x[row], rtol=0, atol=1e-6)
        assert int(alone.reason[0]) == int(together.reason[row])


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_what_bounds_hold_is_found_where_the_subspace_may_be_everything(differentiable):
    pair, matrix, x, y = blurred_spikes(0.003, 40)
    settings = {"bounds": (0.0, 1.0), "noise_std": 0.003}
    if not differentiable:
        blur = matrix.numpy()
        settings |= {"forward": lambda rows: rows.numpy() @ blur.T, "differentiable": False}
    solution = dc.solve(pair, y, **settings)
    started = dc.solve(pair, y, max_iterations=0, **settings)
    errors = [float((found.x - x).square().mean().sqrt()) for found in (solution, started)]
    # Without it no row is explained, and the error falls by a third.
    assert float(solution.explained.double().mean()) > 0.9
    assert errors[0] < 0.4 * errors[1]
    alone = dc.solve(pair, y[3:4], **settings)
    torch.testing.assert_close(alone.x, solution.x[3:4], rtol=0, atol=1e-6)


def test_what_bounds_hold_is_found_where_a_few_directions_do_not_explain_the_data():
    n = 140
    assert posterior.COMPLETE < n <= posterior.BOUNDED
    pair, _, x, y = blurred_spikes(0.003, 5, n)
    settings = {"bounds": (0.0, 1.0), "noise_std": 0.003}
    found, started = dc.solve(pair, y, **settings), dc.solve(pair, y, max_iterations=0, **settings)
    errors = [float((answer.x - x).square().mean().sqrt()) for answer in (found, started)]
    # In a few directions no row is explained, and the error falls to 0.6 or 0.8 of the start's.
    assert bool(found.explained.all())
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("n", [12, 50], ids=["all of space", "a subspace"])
@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_answers_are_within_the_bounds_to_the_last_digit(n, differentiable):
    case = Case(n, n + 10)
    _, y = case.observe(12)
    low = torch.linspace(-0.4, -0.1, n, dtype=torch.float64)
    settings = {"noise_std": NOISE, **case.by_values(differentiable)}
    found = dc.solve(case.pair, y, bounds=(low, -low), **settings)
    assert bool((found.iterations > 0).any())
    assert bool(((found.x >= low) & (found.x <= -low)).all())
    assert bool(((found.x == low) | (found.x == -low)).any())
