"""Simulators that give values only: NumPy code solves, never ends worse, and bills honestly."""

import numpy as np
import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.core import Reason
from deceptron.solve.span import Directions
from tests.solve.linear_case import NOISE
from tests.solve.pairs import fitted_mlp_pair, invertible_pair
from tests.solve.test_gaps import known_family


class Replaced:
    """The pair's f with another g."""

    def __init__(self, pair, g):
        self.f, self.g = pair.f, g


class Simulator:
    """What ``pair.f`` would be with a nonlinearity it has not learned, in NumPy; counts rows."""

    def __init__(self, pair, defect=0.2):
        self.pair, self.defect, self.rows = pair, defect, 0

    def __call__(self, x):
        assert not x.requires_grad
        self.rows += len(x)
        y = self.pair.f(x).detach().numpy()
        return y + self.defect * np.sin(2 * x.numpy()) * np.abs(y).mean(1, keepdims=True)


def observations(simulator, count=8, n=6, seed=3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, n, dtype=torch.float64, generator=generator)
    return x, torch.as_tensor(simulator(x))


def test_a_numpy_simulator_is_solved_where_the_network_alone_is_wrong():
    pair = invertible_pair()
    simulate = Simulator(pair)
    x, y = observations(simulate)
    simulate.rows = 0
    solution = dc.solve(pair, y, forward=simulate, differentiable=False, tolerance=1e-4)
    assert bool((solution.reason == Reason.TOLERANCE).all())
    assert float((solution.x - x).abs().max()) < 1e-2 < float((pair.g(y) - x).abs().max())
    # What is charged is what was asked: no derivative, and every row that was simulated.
    assert simulate.rows == int(solution.cost.f.sum())
    assert solution.cost.forward.tolist() == solution.cost.f.tolist()
    # The directions of g were enough: the surrogate was not asked for any, nor for a gradient.
    assert solution.cost.surrogate.tolist() == [0] * 8
    assert bool(solution.history.cosine.isnan().all())


def test_a_row_takes_ten_steps_by_values_unless_it_may_take_more():
    pair = Replaced(invertible_pair(), lambda y: 0.02 * y[:, :6])
    simulate = Simulator(pair)
    _, y = observations(simulate)
    settings = {"forward": simulate, "differentiable": False, "tolerance": 1e-9}
    method = dc.methods.guarded(directions=Directions(most=1))
    solution = dc.solve(pair, y, method=method, **settings)
    assert int(solution.iterations.max()) == 10
    further = dc.solve(pair, y, method=method, max_iterations=12, **settings)
    assert int(further.iterations.max()) == 12


def test_a_linear_simulator_and_an_exact_adjoint_give_the_least_squares_solution():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(9, 4, dtype=torch.float64, generator=generator)
    pair = Replaced(
        type("Linear", (), {"f": staticmethod(lambda x: x @ matrix.T)}),
        lambda y: y.new_zeros(len(y), 4),
    )
    y = torch.randn(3, 9, dtype=torch.float64, generator=generator)
    solution = dc.solve(
        pair,
        y,
        method=dc.methods.guarded(directions=Directions(pays=0.0)),
        forward=lambda x: x.numpy() @ matrix.numpy().T,
        differentiable=False,
    )
    expected = np.linalg.lstsq(matrix.numpy(), y.numpy().T, rcond=None)[0].T
    np.testing.assert_allclose(solution.x.numpy(), expected, atol=1e-6)
    assert solution.history.rule_names(0)[0] == "surrogate"


@pytest.mark.parametrize("kind", ["zero", "nan", "backwards"])
def test_a_useless_g_never_ends_worse_and_leaves_it_to_the_surrogate(kind):
    pair = fitted_mlp_pair(8)
    simulate = Simulator(pair, defect=0.05)
    _, y = observations(simulate, n=8)
    maps = {
        "zero": torch.zeros_like,
        "nan": lambda rows: torch.full_like(rows, torch.nan),
        "backwards": lambda rows: -pair.g(rows),
    }
    start = torch.full_like(y, 0.5)
    before = 0.5 * (torch.as_tensor(simulate(start)) - y).square().mean(1)
    solution = dc.solve(
        Replaced(pair, maps[kind]),
        y,
        forward=simulate,
        differentiable=False,
        x0=start,
        bounds=(0.0, 1.0),
    )
    after = 0.5 * (torch.as_tensor(simulate(solution.x)) - y).square().mean(1)
    torch.testing.assert_close(after, solution.loss)
    assert bool((after < 0.05 * before).all())
    losses = solution.history.loss.nan_to_num(0.0)
    assert bool((losses[1:] <= losses[:-1]).all())


def test_the_simulator_is_never_asked_outside_the_box():
    pair = fitted_mlp_pair(8)
    inner = Simulator(pair)
    _, y = observations(inner, n=8)

    def strict(x):
        assert float(x.min()) >= 0.2
        assert float(x.max()) <= 0.6
        return inner(x)

    solution = dc.solve(pair, y, forward=strict, differentiable=False, bounds=(0.2, 0.6))
    assert bool((solution.iterations > 0).any())


def test_a_row_alone_does_what_it_does_in_company():
    pair = invertible_pair()
    simulate = Simulator(pair)
    _, y = observations(simulate)
    y[2] = torch.nan
    settings = {"forward": simulate, "differentiable": False, "tolerance": 1e-3}
    together = dc.solve(pair, y, **settings)
    for row in (0, 2, 5):
        alone = dc.solve(pair, y[row : row + 1], **settings)
        torch.testing.assert_close(together.x[row], alone.x[0], atol=1e-10, rtol=0, equal_nan=True)
        assert int(together.cost.f[row]) == int(alone.cost.f[0])
        assert int(together.cost.surrogate[row]) == int(alone.cost.surrogate[0])


@pytest.mark.parametrize("method", ["gn", "lm", "l-bfgs", "d-ipg-difference"])
def test_other_methods_take_the_derivatives_of_the_surrogate(method):
    pair = invertible_pair()
    simulate = Simulator(pair, defect=0.05)
    _, y = observations(simulate)
    settings = {"forward": simulate, "differentiable": False, "max_iterations": 30}
    solution = dc.solve(pair, y, method=method, tolerance=1e-3, **settings)
    assert bool((solution.residual <= 1e-3).all())
    assert solution.cost.forward.tolist() == solution.cost.f.tolist()


def test_a_problem_says_itself_that_its_simulator_has_no_derivatives():
    pair = invertible_pair()
    simulate = Simulator(pair)
    problem = dc.problems.define(
        "opaque",
        simulate=lambda x: simulate(x.double()),
        sample=lambda count, generator: torch.rand(count, 6, generator=generator).double(),
        noise_std=0.01,
        bounds=(-5.0, 5.0),
        differentiable=False,
    )
    _, y = observations(simulate)
    solution = dc.solve(pair, y, forward=problem.simulate, tolerance=1e-3)
    assert bool(solution.converged.all())
    assert bool((solution.cost.vjp == 0).all())


def test_values_of_double_precision_lose_their_mean_before_they_are_rounded():
    """Single precision has steps of 0.06 at a million."""
    identity = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        identity.weight.copy_(torch.eye(3))
    pair = dc.Deceptron(identity, identity, scaler=dc.Scaler(1e6, 1.0))
    solution = dc.solve(
        pair,
        torch.full((5, 3), 1e6),
        forward=lambda x: 1e6 + 0.01 + x.double().numpy(),
        differentiable=False,
        method="one-shot",
    )
    assert solution.x.dtype == torch.float32
    torch.testing.assert_close(solution.residual, torch.full((5,), 0.01), rtol=1e-3, atol=0)


def test_mistakes_are_named():
    pair = invertible_pair()
    y = torch.zeros(2, 6, dtype=torch.float64)
    with pytest.raises(dc.ConfigError, match="differentiable=False"):
        dc.solve(pair, y, forward=lambda x: torch.as_tensor(np.sin(x.numpy())))
    with pytest.raises(dc.ConfigError, match="about forward"):
        dc.solve(pair, y, differentiable=False)
    with pytest.raises(dc.ConfigError, match="bare callable"):
        dc.solve(
            pair.f, y, method="gn", forward=np.sin, differentiable=False, x0=torch.zeros_like(y)
        )
    with pytest.raises(dc.ConfigError, match="surrogate_steps needs forward"):
        dc.solve(pair, y, surrogate_steps=3)
    with pytest.raises(dc.ConfigError, match="surrogate_steps has no use in method 'one-shot'"):
        dc.solve(pair, y, method="one-shot", forward=pair.f, surrogate_steps=3)


def test_surrogate_steps_are_a_start_found_on_the_surrogate_and_billed_apart():
    pair = invertible_pair(bias=0.3)
    _, y = observations(Simulator(pair, defect=0.0))

    def simulate(x):
        return pair.f(x) + 0.1 * torch.sin(2 * x)

    settings = {"tolerance": 1e-6, "relative_tolerance": None}
    warm = dc.solve(pair, y, max_iterations=2, **settings)
    by_hand = dc.solve(pair, y, forward=simulate, x0=warm.x, **settings)
    solution = dc.solve(pair, y, forward=simulate, surrogate_steps=2, **settings)
    torch.testing.assert_close(solution.x, by_hand.x)
    assert solution.cost.forward.tolist() == by_hand.cost.forward.tolist()
    assert solution.cost.surrogate.tolist() == warm.cost.forward.tolist()
    assert solution.cost.g.tolist() == (warm.cost.g + by_hand.cost.g).tolist()


def test_passes_that_filled_gaps_before_surrogate_steps_are_not_forgotten():
    case, _ = known_family(knows_data=False)
    _, y = case.observe(3)
    y[:, ::2] = torch.nan
    settings = {"noise_std": NOISE}
    warm = dc.solve(case.pair, y, max_iterations=2, **settings)
    complete = dc.solve(case.pair, case.observe(3)[1], max_iterations=2, **settings)
    assert bool((warm.cost.f > complete.cost.f).all())
    solution = dc.solve(case.pair, y, forward=case.pair.f, surrogate_steps=2, **settings)
    assert solution.cost.surrogate.tolist() == warm.cost.forward.tolist()
