"""Published D-IPG is Algorithm 1 to the letter, at the cost the paper states."""

import pytest
import torch

import deceptron as dc
from deceptron.core import Reason
from tests.solve.algorithm_one import algorithm_one
from tests.solve.pairs import TestPair, fitted_cnn_pair, fitted_mlp_pair, invertible_pair

OUTCOME = {
    "tolerance": Reason.TOLERANCE,
    "stalled": Reason.NO_ACCEPTED_TRIAL,
    "limit": Reason.STEP_LIMIT,
}


def random_pair(seed: int) -> TestPair:
    """Maps that have nothing to do with each other: nearly every row stalls at once."""
    torch.manual_seed(seed)
    layers = (torch.nn.Linear(7, 9), torch.nn.Tanh(), torch.nn.Linear(9, 5))
    back = (torch.nn.Linear(5, 9), torch.nn.Tanh(), torch.nn.Linear(9, 7))
    return TestPair(torch.nn.Sequential(*layers), torch.nn.Sequential(*back)).double()


PAIRS = {
    "mlp": (lambda: fitted_mlp_pair(), (8,)),
    "mlp, kinked": (lambda: fitted_mlp_pair(smooth=False), (8,)),
    "cnn": (lambda: fitted_cnn_pair(), (1, 6, 6)),
    "unrelated maps": (lambda: random_pair(3), (7,)),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("tolerance", [0.02, 0.0])
def test_equals_the_transcription(name, tolerance):
    make, x_shape = PAIRS[name]
    pair = make()
    generator = torch.Generator().manual_seed(1)
    # Latents beyond the box, so that the solution of many rows lies on its boundary.
    x_true = 1.6 * torch.rand(24, *x_shape, dtype=torch.float64, generator=generator) - 0.3
    y = pair.f(x_true)
    x0 = torch.rand(24, *x_shape, dtype=torch.float64, generator=generator)
    solution = dc.solve(
        pair, y, method="d-ipg", x0=x0, bounds=(0.0, 1.0), tolerance=tolerance, max_iterations=40
    )
    for row in range(24):
        x, iterations, end = algorithm_one(
            pair.f, pair.g, y[row], x0[row], 0.0, 1.0, tolerance=tolerance, max_iterations=40
        )
        torch.testing.assert_close(solution.x[row], x, atol=1e-6, rtol=0)
        assert int(solution.iterations[row]) == iterations
        assert solution.reason[row] == OUTCOME[end]
    if name == "unrelated maps":
        assert bool((solution.reason == Reason.NO_ACCEPTED_TRIAL).any())
    else:
        on_boundary = (solution.x == 0) | (solution.x == 1)
        assert bool(on_boundary.any())


def test_walks_to_the_one_shot_answer_at_rate_0_6():
    pair = invertible_pair(bias=0.05)
    y = pair.f(torch.randn(5, 6, dtype=torch.float64))
    x0 = torch.randn(5, 6, dtype=torch.float64)
    steps = 4
    seen = []
    solution = dc.solve(
        pair,
        y,
        method="d-ipg",
        x0=x0,
        max_iterations=steps,
        callback=lambda number, state: seen.append(state.x.clone()),
    )
    assert bool((solution.history.step_size == 1).all())
    one_shot = dc.solve(pair, y, method="one-shot").x
    for t, x in enumerate(seen):
        torch.testing.assert_close(x, one_shot + 0.6**t * (x0 - one_shot), atol=1e-12, rtol=0)


def test_costs_one_f_one_g_one_vjp_an_iteration():
    pair = invertible_pair()
    y = pair.f(torch.randn(5, 6, dtype=torch.float64))
    steps = 6
    solution = dc.solve(pair, y, method="d-ipg", max_iterations=steps)
    assert bool((solution.history.trials == 1).all())
    assert solution.iterations.tolist() == [steps] * 5
    assert solution.cost.f.tolist() == [1 + steps] * 5  # one more to know where it starts
    assert solution.cost.g.tolist() == [steps] * 5
    assert solution.cost.vjp.tolist() == [steps] * 5
    assert solution.cost.jvp.tolist() == [0] * 5


def test_counters_are_the_calls_that_were_made():
    pair = fitted_mlp_pair()
    calls = {"f": 0, "g": 0}

    class Counting:
        def f(self, x):
            calls["f"] += 1
            return pair.f(x)

        def g(self, y):
            calls["g"] += 1
            return pair.g(y)

    y = pair.f(torch.rand(1, 8, dtype=torch.float64))
    x0 = torch.zeros(1, 8, dtype=torch.float64)
    solution = dc.solve(Counting(), y, method="d-ipg", x0=x0, max_iterations=30)
    assert calls == {"f": int(solution.cost.f), "g": int(solution.cost.g)}
    trials = int(solution.history.trials.sum())
    assert trials == calls["g"] == calls["f"] - 1


def test_a_biased_reverse_map_stalls_the_published_form_but_not_the_difference_form():
    pair = invertible_pair(bias=1e-3)
    y = pair.f(torch.randn(20, 6, dtype=torch.float64))
    published = dc.solve(pair, y, method="d-ipg", tolerance=1e-6, max_iterations=100)
    difference = dc.solve(pair, y, method="d-ipg-difference", tolerance=1e-6)
    assert not bool(published.converged.any())
    assert bool((published.residual > 1e-4).all())
    assert bool(difference.converged.all())
    assert int(difference.iterations.max()) <= 3
