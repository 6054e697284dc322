"""Answers that explain the data are shrunk towards the family, unless the data object."""

import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.maps import Shrinkage
from deceptron.problems.prior import LowRankPrior

NOISE, TAU = 0.1, 1.8
# The family varies in three of twelve components; f shows all of them.
SCALE = torch.tensor([1.0] * 3 + [1e-3] * 9, dtype=torch.float64)


class Crude(nn.Module):
    """Half of what it should be, so that a step is needed."""

    def forward(self, y):
        return 0.5 * y


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def simulate(x):
    return x + 0.05 * x**3


@pytest.fixture
def pair():
    truth = SCALE * draw(2000, 12, seed=3)
    answers = truth + NOISE * draw(2000, 12, seed=4)
    shrinkage = Shrinkage.along(truth, modes=6).fit(answers, truth)
    return dc.Deceptron(nn.Identity(), Crude(), x_shape=(12,), shrinkage=shrinkage)


def family(count=16):
    x = SCALE * (1 + draw(count, 12).abs())
    return x, simulate(x) + NOISE * draw(count, 12, seed=1)


def error(solution, x):
    return (solution.x - x).square().mean(1).sqrt()


def without(pair):
    return dc.Deceptron(pair.f, pair.g, x_shape=(12,))


def test_answers_of_the_family_gain_for_one_evaluation(pair):
    x, y = family()
    settings = {"forward": simulate, "noise_std": NOISE, "tau": TAU}
    plain, shrunk = dc.solve(without(pair), y, **settings), dc.solve(pair, y, **settings)
    assert bool(plain.converged.all())
    assert not bool(plain.shrunk.any())
    assert bool(shrunk.shrunk.all())
    assert float((error(shrunk, x) / error(plain, x)).max()) < 1
    assert error(shrunk, x).mean() < 0.7 * error(plain, x).mean()
    assert torch.equal(shrunk.cost.f, plain.cost.f + 1)
    assert torch.equal(shrunk.cost.jvp, plain.cost.jvp)
    # What is reported is what the returned point leaves.
    left = (simulate(shrunk.x) - y).square().mean(1).sqrt()
    torch.testing.assert_close(shrunk.residual, left)
    last = shrunk.history.residual[shrunk.iterations - 1, torch.arange(len(y))]
    torch.testing.assert_close(last, left)
    assert bool((left <= TAU * NOISE).all())


def test_data_that_the_family_cannot_explain_forbid_it(pair):
    x, y = family(4)
    x[1, 8] = 2.0
    y[1, 8] = simulate(x[1, 8]) + 0.05
    settings = {"forward": simulate, "noise_std": NOISE, "tau": TAU}
    plain, shrunk = dc.solve(without(pair), y, **settings), dc.solve(pair, y, **settings)
    assert shrunk.shrunk.tolist() == [True, False, True, True]
    assert torch.equal(shrunk.x[1], plain.x[1])
    assert torch.equal(shrunk.residual[1], plain.residual[1])
    assert int(shrunk.cost.f[1]) == int(plain.cost.f[1]) + 1


class Dropping(nn.Module):
    """Leaves the points alone in evaluation mode."""

    def forward(self, x):
        return x + 100 * self.training


class Plain:
    """A pair that is no module, so that nobody sets the mode of its parts."""

    def __init__(self):
        self.f, self.g, self.shrinkage = nn.Identity(), Crude(), Dropping()


def test_it_is_done_in_evaluation_mode():
    pair, (_, y) = Plain(), family(4)
    solution = dc.solve(pair, y, forward=simulate, noise_std=NOISE, tau=TAU)
    assert bool(solution.shrunk.all())
    assert pair.shrinkage.training


def test_shrunk_points_stay_in_the_box(pair):
    _, y = family()
    solution = dc.solve(pair, y, forward=simulate, noise_std=NOISE, bounds=(0.05, 3.0))
    assert bool(((solution.x >= 0.05) & (solution.x <= 3.0)).all())


def test_it_is_for_guarded_answers_on_true_physics_that_took_a_step(pair):
    x, y = family(4)
    true = {"forward": simulate, "noise_std": NOISE}
    prior = LowRankPrior.estimate(SCALE * draw(500, 12, seed=5), rank=12)
    assert not bool(dc.solve(pair, y, noise_std=NOISE).shrunk.any())
    assert not bool(dc.solve(pair, y, method="lm", **true).shrunk.any())
    assert not bool(dc.solve(pair, y, x0=x, **true).shrunk.any())
    assert not bool(dc.solve(pair, y, tolerance=NOISE, forward=simulate).shrunk.any())
    assert not bool(dc.solve(pair, y, prior=prior, tau=1.5, **true).shrunk.any())
    by_values = dc.solve(pair, y, differentiable=False, **true)
    assert bool(by_values.shrunk.any())
