"""Gauss-Newton, Levenberg-Marquardt and L-BFGS against SciPy on standard test problems."""

import numpy as np
import pytest
import torch
from scipy.optimize import least_squares

import deceptron as dc
from tests.solve.standard_problems import BY_NAME, LeastSquares
from tests.solve.standard_residuals import bratu, rosenbrock

WELL_KNOWN = (
    "rosenbrock",
    "powell singular",
    "beale",
    "wood",
    "helical valley",
    "bard",
    "brown dennis",
    "bratu 24",
    "bratu 60",
)
LEVENBERG_MARQUARDT = [(name, "dense") for name in WELL_KNOWN] + [
    # On Brown-Dennis J'J has condition 1e13: CG cannot resolve the step there, the SVD can.
    (name, "cg")
    for name in WELL_KNOWN
    if name != "brown dennis"
]
# Undamped Gauss-Newton has no business on a problem with a large residual at its solution.
GAUSS_NEWTON = [name for name in WELL_KNOWN if name != "brown dennis"]


def run(problem: LeastSquares, method, **settings) -> tuple[dc.Solution, float]:
    x0 = torch.tensor([problem.start], dtype=torch.float64)
    target = torch.zeros_like(problem.residuals(x0))
    solution = dc.solve(problem.residuals, target, x0=x0, method=method, **settings)
    return solution, 2 * target.shape[1] * float(solution.loss)


def scipy_run(problem: LeastSquares):
    def residuals(x):
        return problem.residuals(torch.as_tensor(x)[None])[0].numpy()

    def jacobian(x):
        single = torch.func.jacfwd(lambda z: problem.residuals(z[None])[0])
        return single(torch.as_tensor(x)).numpy()

    tight = {"xtol": 1e-10, "ftol": 1e-10, "gtol": 1e-10}
    return least_squares(residuals, np.array(problem.start), jacobian, method="lm", **tight)


@pytest.mark.parametrize(("name", "linear"), LEVENBERG_MARQUARDT)
def test_levenberg_marquardt_keeps_up_with_scipy(name, linear):
    problem = BY_NAME[name]
    reference = scipy_run(problem)
    method = dc.methods.levenberg_marquardt(linear=linear, cg_steps=300, cg_tolerance=1e-12)
    solution, minimum = run(problem, method, gradient_tolerance=1e-10)
    assert bool(solution.converged.all())
    assert minimum == pytest.approx(problem.minimum, rel=1e-4, abs=1e-10)
    assert minimum == pytest.approx(2 * reference.cost, rel=1e-6, abs=1e-10)
    # SciPy reports function evaluations of MINPACK, the first one included.
    assert int(solution.iterations) <= 1.5 * reference.nfev


@pytest.mark.parametrize("name", GAUSS_NEWTON)
def test_gauss_newton_keeps_up_with_scipy(name):
    problem = BY_NAME[name]
    reference = scipy_run(problem)
    solution, minimum = run(problem, "gn", gradient_tolerance=1e-10)
    assert bool(solution.converged.all())
    assert minimum == pytest.approx(2 * reference.cost, rel=1e-6, abs=1e-10)
    assert int(solution.iterations) <= 1.5 * reference.nfev


@pytest.mark.parametrize("name", ["rosenbrock", "beale", "helical valley", "bard", "bratu 24"])
def test_l_bfgs_finds_the_same_minimum(name):
    problem = BY_NAME[name]
    solution, minimum = run(problem, "l-bfgs", gradient_tolerance=1e-8, max_iterations=1000)
    assert bool(solution.converged.all())
    assert minimum == pytest.approx(problem.minimum, rel=1e-4, abs=1e-8)
    assert bool((solution.cost.jvp == 0).all())


@pytest.mark.parametrize("method", ["gn", "lm", "l-bfgs"])
def test_bounds_that_cut_off_the_minimum_match_scipy(method):
    """Rosenbrock restricted to x0 <= 0.5 has its minimum on that face."""
    x0 = torch.tensor([[-1.2, 1.0]], dtype=torch.float64)
    low = torch.tensor([-2.0, -2.0], dtype=torch.float64)
    high = torch.tensor([0.5, 2.0], dtype=torch.float64)
    solution = dc.solve(
        rosenbrock,
        torch.zeros(1, 2, dtype=torch.float64),
        x0=x0,
        method=method,
        bounds=(low, high),
    )
    reference = least_squares(
        lambda x: rosenbrock(torch.as_tensor(x)[None])[0].numpy(),
        x0[0].numpy(),
        bounds=(low.numpy(), high.numpy()),
        xtol=1e-12,
        gtol=1e-12,
        ftol=1e-12,
    )
    np.testing.assert_allclose(solution.x[0].numpy(), reference.x, atol=1e-5)
    assert bool(solution.converged.all())


def test_fixed_damping_is_the_papers_levenberg_marquardt():
    """One full step of LM with damping 1e-2 equals the dense normal equations."""
    x0 = torch.linspace(-0.4, 0.3, 12, dtype=torch.float64).repeat(2, 1)
    x0[1] += 0.1
    target = torch.zeros(2, 12, dtype=torch.float64)
    for linear in ("dense", "cg"):
        method = dc.methods.levenberg_marquardt(
            damping=1e-2, linear=linear, cg_steps=200, cg_tolerance=1e-14
        )
        solution = dc.solve(bratu, target, x0=x0, method=method, max_iterations=1)
        assert bool((solution.history.step_size == 1).all())
        for row in range(2):
            jacobian = torch.func.jacfwd(lambda z: bratu(z[None])[0])(x0[row])
            matrix = jacobian.T @ jacobian + 1e-2 * torch.eye(12, dtype=torch.float64)
            step = torch.linalg.solve(matrix, -jacobian.T @ bratu(x0[row : row + 1])[0])
            torch.testing.assert_close(solution.x[row], x0[row] + step, atol=1e-9, rtol=0)


def test_gauss_newton_solves_a_linear_problem_in_one_step():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(9, 5, dtype=torch.float64, generator=generator)
    y = torch.randn(3, 9, dtype=torch.float64, generator=generator)
    expected = torch.linalg.lstsq(matrix, y.T).solution.T
    for linear in ("dense", "cg"):
        solution = dc.solve(
            lambda x: x @ matrix.T,
            y,
            x0=torch.zeros(3, 5, dtype=torch.float64),
            method=dc.methods.gauss_newton(linear=linear, cg_tolerance=1e-13),
        )
        torch.testing.assert_close(solution.x, expected, atol=1e-10, rtol=0)
        assert solution.iterations.tolist() == [1, 1, 1]


def test_l_bfgs_memory_of_the_whole_space_is_newton_like():
    """On a quadratic, L-BFGS ends in a few times as many steps as there are unknowns."""
    scales = torch.tensor([1.0, 3.0, 10.0, 30.0], dtype=torch.float64)
    solution = dc.solve(
        lambda x: x * scales,
        torch.ones(1, 4, dtype=torch.float64),
        x0=torch.zeros(1, 4, dtype=torch.float64),
        method="l-bfgs",
    )
    torch.testing.assert_close(solution.x[0], 1 / scales, atol=1e-6, rtol=0)
    assert int(solution.iterations) <= 20


@pytest.mark.parametrize("linear", ["dense", "cg"])
def test_levenberg_marquardt_ends_at_the_minimum_under_noise_in_float32(linear):
    """The predicted decrease must not drown in the round-off of a large residual."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(400, 6, generator=generator)

    def f(x):
        return torch.tanh(x @ matrix.T / 3) + 0.1 * x @ matrix.T

    x = torch.randn(64, 6, generator=generator)
    y = f(x) + torch.randn(64, 400, generator=generator)
    method = dc.methods.levenberg_marquardt(linear=linear)
    solution = dc.solve(f, y, x0=torch.zeros(64, 6), method=method, gradient_tolerance=1e-4)
    assert bool(solution.converged.all())
    assert float(solution.cost.f.double().mean()) < 20
