"""The default on problems that nobody tuned it for: never worse than the maps it starts from."""

import pytest

import deceptron as dc
from tests.foreign.problems import FOREIGN, best_of, errors


@pytest.mark.parametrize("name", FOREIGN)
def test_in_distribution_the_default_is_as_good_as_the_better_map_in_every_mode(name):
    problem = FOREIGN[name]()
    pair = dc.train(problem, "smoke", seed=7, progress=False)
    found, solutions = errors(pair, problem, problem.dataset(seed=7))
    for mode, solution in solutions.items():
        assert found[mode] <= 1.02 * best_of(found), (mode, found)
        # Bars come without asking, one for each component of each row.
        assert solution.std.shape == solution.x.shape
        assert bool((solution.std > 0).all())
        low, high = solution.interval(0.9)
        truth = problem.dataset(seed=7).test.x
        held = float(((truth >= low) & (truth <= high)).double().mean())
        assert 0.8 < held < 0.99, (mode, held)
        width = float(solution.std.double().mean() / (solution.x - truth).square().mean().sqrt())
        assert width < 4, (mode, width)
        explained = solution.status[solution.explained] == dc.Status.CONVERGED
        assert bool(explained.all())
