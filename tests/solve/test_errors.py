"""Bad input gets an error that names argument, rule and value, before anything is done."""

import math

import pytest
import torch

import deceptron as dc
from tests.solve.pairs import TestPair, invertible_pair

PAIR = invertible_pair()
Y = torch.zeros(3, 6, dtype=torch.float64)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"y": Y[:0]}, dc.ShapeError, r"y must have at least one row; got shape \(0, 6\)"),
        ({"y": Y.to(torch.complex64)}, dc.ConfigError, "y must hold real numbers; got torch.comp"),
        ({"y": Y > 0}, dc.ConfigError, "y must hold real numbers; got torch.bool"),
        ({"y": "wave"}, dc.ConfigError, "y must be a number or an array of numbers; got 'wave'"),
        ({"y": [[0.0] * 6, [0.0] * 5]}, dc.ConfigError, r"or an array of numbers; got \[\["),
        ({"y": torch.tensor(1.0)}, dc.ShapeError, "y must have shape"),
        ({"y": Y.numpy() * 1j}, dc.ConfigError, "real and imaginary parts as separate"),
        ({"y": {"a": 1, "b": 2}}, dc.ConfigError, r"name one of its arrays, \['a', 'b'\]"),
        ({"y": __file__}, dc.ConfigError, "load the file first"),
        ({"method": "d-igp"}, dc.ConfigError, "unknown method 'd-igp'. Did you mean 'd-ipg'"),
        ({"x0": Y[:2]}, dc.ShapeError, "x0 must have as many rows as y, 3; got 2"),
        ({"bounds": (1.0, 0.0)}, dc.ConfigError, "bounds must satisfy low <= high"),
        ({"bounds": (math.nan, 1.0)}, dc.ConfigError, "bounds must not contain NaN"),
        ({"bounds": 3.0}, dc.ConfigError, r"bounds must be a pair \(low, high\); got 3.0"),
        ({"bounds": ("a", 1.0)}, dc.ConfigError, "bounds must be a number or an array .*; got 'a'"),
        ({"bounds": (torch.zeros(5), 1.0)}, dc.ShapeError, "bounds must broadcast to one row of x"),
        ({"max_iterations": -1}, dc.ConfigError, "max_iterations must be an integer >= 0; got -1"),
        ({"max_iterations": 2.5}, dc.ConfigError, "max_iterations must be an integer >= 0; got"),
        ({"tolerance": -0.1}, dc.ConfigError, r"tolerance must lie in \[0, inf\]; got -0.1"),
        ({"relative_tolerance": math.nan}, dc.ConfigError, "relative_tolerance must lie in"),
        ({"gradient_tolerance": -1.0}, dc.ConfigError, "gradient_tolerance must lie in"),
        ({"noise_std": -1.0}, dc.ConfigError, "noise_std must be >= 0 .*; got -1"),
        (
            {"noise_std": torch.ones(5)},
            dc.ShapeError,
            r"noise_std must .* broadcast to one row of y, .* got shape \(5,\)",
        ),
        ({"tau": 0.0}, dc.ConfigError, r"tau must lie in \(0, inf\]; got 0.0"),
        ({"tau": 2.0}, dc.ConfigError, "tau needs noise_std > 0: .*; got 2.0 and no noise"),
        ({"tau": 2.0, "noise_std": 0.0}, dc.ConfigError, "tau needs noise_std > 0"),
        ({"method": "wiener"}, dc.ConfigError, "needs a pair that carries its ridge estimate"),
        ({"method": "one-shot", "x0": Y}, dc.ConfigError, "x0 has no use in method 'one-shot'"),
        ({"pair": PAIR.f}, dc.ConfigError, "method 'guarded' needs a pair with f and g"),
        ({"pair": PAIR.f, "method": "gn"}, dc.ConfigError, "x0 is required"),
        ({"pair": 3}, dc.ConfigError, "pair must have f and g or be callable; got int"),
        (
            {"pair": dc.problems.get("heat-1d")},
            dc.ConfigError,
            r"got Heat1D: dc\.train\(problem\) gives a pair, .* take problem\.simulate",
        ),
    ],
)
def test_solve_refuses(change, error, words):
    arguments = {"pair": PAIR, "y": Y} | change
    pair, y = arguments.pop("pair"), arguments.pop("y")
    with pytest.raises(error, match=words):
        dc.solve(pair, y, **arguments)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: dc.methods.d_ipg(relaxation=0.0), r"relaxation must lie in \(0, 1\]; got 0.0"),
        (lambda: dc.methods.d_ipg_difference(1.5), r"relaxation must lie in \(0, 1\]; got 1.5"),
        (lambda: dc.methods.Armijo(shrink=1.5), r"Armijo\(shrink=...\) must lie in \(0, 1\)"),
        (lambda: dc.methods.Armijo(sufficient_decrease=0.0), "sufficient_decrease"),
        (lambda: dc.methods.Armijo(max_backtracks=-1), "max_backtracks"),
        (lambda: dc.methods.Wolfe(curvature=1.0), "curvature"),
        (lambda: dc.methods.AdaptiveDamping(relative_start=0.0), "relative_start"),
        (lambda: dc.methods.l_bfgs(memory=0), "memory must be an integer >= 1; got 0"),
        (lambda: dc.methods.levenberg_marquardt(search=dc.methods.Armijo()), "AdaptiveDamping"),
        (lambda: dc.methods.levenberg_marquardt(relaxation=0.4), "needs a fixed damping"),
        (lambda: dc.methods.published("wiener"), "unknown published method 'wiener'"),
    ],
)
def test_methods_refuse_settings_outside_their_range(make, words):
    with pytest.raises(dc.ConfigError, match=words):
        make()


def test_linear_settings_are_refused_when_the_size_is_known():
    for settings in ({"linear": "qr"}, {"cg_steps": 0, "linear": "cg"}):
        with pytest.raises(dc.ConfigError, match=r"linear|cg_steps"):
            dc.solve(PAIR, Y, method=dc.methods.gauss_newton(**settings))


def test_a_reverse_map_of_the_wrong_shape_is_named():
    class Wrong:
        f = staticmethod(PAIR.f)

        @staticmethod
        def g(y):
            return PAIR.g(y)[:, :4]

    with pytest.raises(dc.ShapeError, match=r"g must return rows of x's shape \(6,\)"):
        dc.solve(Wrong(), Y + 1.0, x0=torch.zeros_like(Y))


def test_a_forward_map_of_the_wrong_shape_is_named():
    with pytest.raises(
        dc.ShapeError, match=r"forward must map \(3, 6\) to \(3, 6\); it returned \(3, 5\)"
    ):
        dc.solve(PAIR, Y, forward=lambda x: PAIR.f(x)[:, :5])


def test_a_surrogate_of_the_wrong_shape_is_named():
    class Wrong:
        g = staticmethod(PAIR.g)

        @staticmethod
        def f(x):
            return PAIR.f(x)[:, :5]

    with pytest.raises(dc.ShapeError, match=r"f must map .* to rows of y's shape \(6,\)"):
        dc.solve(Wrong(), Y)


def test_observations_and_starts_take_the_precision_of_the_weights():
    layers = TestPair(torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)).requires_grad_(False)
    solution = dc.solve(layers, Y, x0=Y, max_iterations=2)
    assert solution.x.dtype == torch.float32
    same = dc.solve(layers, Y.float(), x0=Y.float(), max_iterations=2)
    assert torch.equal(solution.x, same.x)
