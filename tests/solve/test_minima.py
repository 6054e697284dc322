"""CONVERGED means at a minimum, whatever the start, the scale or the precision."""

from functools import cache
from statistics import median

import pytest
import torch

import deceptron as dc
from deceptron.core import Reason
from tests.solve.standard_problems import BY_NAME, PROBLEMS, LeastSquares

CLASSICAL = ["gd", "gn", "lm", "l-bfgs"]
BUDGET = 300
TIGHT = {"ftol": 1e-14, "xtol": 1e-14, "gtol": 1e-14, "max_nfev": 100}


def starts(problem: LeastSquares) -> torch.Tensor:
    """At most ten times the standard start: SciPy alone needs a minute for a hundred times it."""
    return problem.starts[:2]


def polished(problem: LeastSquares, x: torch.Tensor) -> torch.Tensor:
    """The sums of squares to which SciPy lowers those at ``x``."""
    squares = problem.squares(x)
    ends = [problem.least_squares(row, "trf", **TIGHT) for row in x]
    found = [
        float(s) if end is None else 2 * end.cost for s, end in zip(squares, ends, strict=True)
    ]
    return torch.tensor(found, dtype=x.dtype)


@cache
def answers(method: str) -> dict[str, dc.Solution]:
    found = {}
    for problem in PROBLEMS:
        x0 = starts(problem)
        target = torch.zeros_like(problem.residuals(x0))
        found[problem.name] = dc.solve(
            problem.residuals, target, x0=x0, method=method, max_iterations=BUDGET, history=False
        )
    return found


@pytest.mark.parametrize("method", ["lm", "trf"])
def test_levenberg_marquardt_reaches_as_many_minima_as_scipy(method):
    here = there = 0
    for problem in PROBLEMS:
        here += int(problem.reached(problem.squares(answers("lm")[problem.name].x)).sum())
        for x0 in starts(problem):
            end = problem.least_squares(x0, method, max_nfev=BUDGET)
            if end is not None:
                there += int(problem.reached(torch.tensor(2 * end.cost)))
    assert here >= there


@pytest.mark.parametrize("method", ["lm", "l-bfgs"])
def test_no_row_has_converged_where_a_thousandth_of_the_start_is_left_to_gain(method):
    for problem in PROBLEMS:
        if (problem.name, method) == ("biggs exp6", "l-bfgs"):  # 0.00566 is a saddle, as for SciPy
            continue
        solution, first = answers(method)[problem.name], problem.squares(starts(problem))
        left = problem.squares(solution.x) - polished(problem, solution.x)
        assert not bool((solution.converged & (left > 1e-3 * first)).any()), problem.name


def test_levenberg_marquardt_has_converged_to_a_thousandth_of_what_is_left():
    """However large the sum of squares was at the start."""
    for problem in PROBLEMS:
        if problem.name == "meyer":  # from ten times the start columns of J differ by 1e16
            continue
        solution = answers("lm")[problem.name]
        squares = problem.squares(solution.x)
        left = squares - polished(problem, solution.x)
        assert bool(solution.converged.all()), problem.name
        assert not bool((left > 1e-3 * squares + 1e-10).any()), problem.name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_levenberg_marquardt_comes_to_rest_where_the_jacobian_is_singular(dtype):
    """At the minimum of Jennrich and Sampson both columns of J are the same."""
    problem = BY_NAME["jennrich sampson"]
    draws = torch.randn(32, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x0 = (problem.starts[:1] * (1 + 0.1 * draws)).to(dtype)
    target = torch.zeros_like(problem.residuals(x0))
    solution = dc.solve(problem.residuals, target, x0=x0, method="lm", history=False)
    assert bool(solution.converged.all())
    assert int(solution.iterations.max()) < 60
    assert bool(problem.reached(problem.squares(solution.x.double())).all())


def test_l_bfgs_in_a_box_evaluates_as_little_as_scipys():
    ratios = []
    for problem in PROBLEMS:
        if len(problem.start) > 11:  # hundreds of evaluations each
            continue
        x0 = problem.starts[:1]
        for box in problem.boxes():
            solution = dc.solve(
                problem.residuals,
                torch.zeros_like(problem.residuals(x0)),
                x0=x0,
                method="l-bfgs",
                bounds=box,
                decrease_tolerance=1e-10,
                history=False,
            )
            end = problem.l_bfgs_b(x0[0], box, ftol=1e-10, gtol=0.0, maxcor=20)
            here, there = float(problem.squares(solution.x)), 2 * end.fun
            if abs(here - there) <= 1e-3 * max(here, there) + 1e-8:
                ratios.append(int(solution.cost.f) / end.nfev)
    assert len(ratios) >= 50
    assert median(ratios) <= 1.2


@pytest.mark.parametrize("method", ["gn", "lm", "l-bfgs"])
def test_the_rule_that_ends_a_row_depends_on_what_the_minimum_is(method):
    """A residual of zero never decreases by a small share; one that stays does."""
    for name, reasons in (
        ("rosenbrock", {Reason.SMALL_STEP, Reason.GRADIENT}),
        ("bard", {Reason.SMALL_DECREASE, Reason.GRADIENT}),
    ):
        problem = BY_NAME[name]
        x0 = problem.starts[:1]
        target = torch.zeros_like(problem.residuals(x0))
        solution = dc.solve(problem.residuals, target, x0=x0, method=method)
        assert set(solution.reason.tolist()) <= reasons
        assert bool(problem.reached(problem.squares(solution.x)).all())


@pytest.mark.parametrize("method", ["gn", "lm", "l-bfgs"])
@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_the_unit_of_the_data_does_not_matter(method, unit):
    problem = BY_NAME["bard"]
    x0 = problem.starts[:1]
    target = torch.zeros_like(problem.residuals(x0))
    settings = {"x0": x0, "method": method, "decrease_tolerance": 1e-6}
    plain = dc.solve(problem.residuals, target, **settings)
    scaled = dc.solve(lambda x: unit * problem.residuals(x), target, **settings)
    assert bool(plain.converged.all())
    assert bool(scaled.converged.all())
    torch.testing.assert_close(scaled.loss / unit**2, plain.loss, rtol=1e-3, atol=0)


def noisy(dtype: torch.dtype):
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(400, 6, generator=generator, dtype=torch.float64).to(dtype)

    def f(x):
        return torch.tanh(x @ matrix.T / 3) + 0.1 * x @ matrix.T

    x = torch.randn(64, 6, generator=generator, dtype=torch.float64).to(dtype)
    noise = torch.randn(64, 400, generator=generator, dtype=torch.float64).to(dtype)
    return f, f(x) + noise


@pytest.mark.parametrize("method", CLASSICAL)
@pytest.mark.parametrize(
    "asked",
    [{}, {"gradient_tolerance": 1e-12}, {"decrease_tolerance": 0.0, "step_tolerance": 0.0}],
    ids=str,
)
def test_rows_at_their_minimum_in_float32_are_not_stalled(method, asked):
    """Nor do they wait for a tolerance that float32 cannot reach."""
    f, y = noisy(torch.float32)
    solution = dc.solve(f, y, x0=torch.zeros(64, 6), method=method, **asked)
    assert bool(solution.converged.all())
    exact_f, exact_y = noisy(torch.float64)
    exact = dc.solve(exact_f, exact_y, x0=torch.zeros(64, 6, dtype=torch.float64), method="lm")
    torch.testing.assert_close(solution.x.double(), exact.x, atol=2e-2, rtol=0)
    torch.testing.assert_close(solution.loss.double(), exact.loss, rtol=1e-4, atol=0)


class WrongWay(torch.autograd.Function):
    """x, with a gradient that points up."""

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return -gradient

    @staticmethod
    def jvp(ctx, tangent):
        return -tangent


@pytest.mark.parametrize("method", CLASSICAL)
def test_a_row_whose_steps_all_fail_has_not_converged_however_short_they_get(method):
    matrix = torch.tensor([[2.0, 1.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    solution = dc.solve(
        lambda x: WrongWay.apply(x) @ matrix.T,
        torch.ones(2, 3, dtype=torch.float64),
        x0=torch.full((2, 2), 3.0, dtype=torch.float64),
        method=method,
        max_iterations=20,
    )
    assert not bool(solution.converged.any())


@pytest.mark.parametrize("method", CLASSICAL)
def test_a_start_at_the_minimum_ends_there(method):
    """Also one that the bounds make: the gradient pushes against them."""
    target = torch.zeros(2, 2, dtype=torch.float64)
    x0 = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    low = torch.tensor([-1.0, -1.0], dtype=torch.float64)
    solution = dc.solve(
        lambda x: x, target, x0=x0, method=method, bounds=(low, 1.0), max_iterations=50
    )
    assert solution.reason[0] == Reason.GRADIENT
    assert solution.iterations[0] == 0
    held = dc.solve(lambda x: x - 5, target[:1], x0=x0[1:], method=method, bounds=(low, 1.0))
    assert held.reason.tolist() == [Reason.GRADIENT]
    assert held.iterations.tolist() == [0]


def test_a_looser_tolerance_stops_sooner():
    problem = BY_NAME["osborne 2"]
    x0 = problem.starts[:1]
    target = torch.zeros_like(problem.residuals(x0))
    settings = {"x0": x0, "method": "l-bfgs"}
    tight = dc.solve(problem.residuals, target, **settings)
    for rule in ("decrease_tolerance", "step_tolerance"):
        loose = dc.solve(problem.residuals, target, **settings, **{rule: 1e-2})
        assert bool(loose.converged.all())
        assert int(loose.iterations) < int(tight.iterations)


@pytest.mark.parametrize("rule", ["decrease_tolerance", "step_tolerance"])
def test_a_method_that_cannot_tell_a_minimum_says_so(rule):
    y = torch.ones(1, 2)
    with pytest.raises(dc.ConfigError, match=f"{rule} must lie in"):
        dc.solve(lambda x: x, y, x0=y, method="lm", **{rule: -1.0})
    for method in (dc.methods.published("gn"), dc.methods.published("lm")):
        with pytest.raises(dc.ConfigError, match=f"{rule} has no use in method"):
            dc.solve(lambda x: x, y, x0=y, method=method, **{rule: 1e-3})
