"""Few unknowns: bounds are kept by the fit, not by clipping, and rows end where data put them."""

from dataclasses import replace

import pytest
import torch
from deceptron.core.corrections import Corrections
from scipy.optimize import lsq_linear

import deceptron as dc
from deceptron.core import Reason
from deceptron.core.bases import DiagonalGaussian
from deceptron.laws.calibration import Calibration
from deceptron.solve.boxed import least_in_box
from tests.solve.test_correction import NOISE, Case, linear, normal

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


class Fixed(torch.nn.Module):
    """A reverse map that says the same of everything."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, y):
        return self.answer.to(y).expand(len(y), -1)


def pair_at(matrix, start, *, bounds=None):
    """y = A x, all rows beginning at ``start``; latents are of order one."""
    corrections = Corrections.of(normal(300, len(start), seed=1), largest=64, kept=64)
    return dc.Deceptron(
        linear(matrix),
        Fixed(start),
        x_shape=(len(start),),
        y_shape=(len(matrix),),
        bounds=bounds,
        calibration=Calibration(noise_std=NOISE, corrections=corrections),
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
    # Where one linearisation has told all, there is no second, and where the start explains: none.
    assert int(found.iterations.min()) == 1
    assert int(found.iterations.max()) > 1
    told = dc.solve(pair, y, noise_std=NOISE, tau=1e3, **modes(forward)[mode])
    assert bool((told.cost.f == 1).all())


def test_a_point_is_not_tried_twice_where_the_family_has_no_plausible_guess():
    case = Case(6, 40)
    _, y = case.observe(20, noise=4 * NOISE)
    far = DiagonalGaussian(
        torch.full((6,), 100.0, dtype=torch.float64),
        case.corrections.eigen,
        1e-4 * torch.ones(6, dtype=torch.float64),
    )
    corrections = replace(case.corrections, by_family=(True, True))
    case.pair.calibration = replace(case.pair.calibration, family=far, corrections=corrections)
    # Told too little noise, rows stay unexplained: their start, the goal, and once more in vain.
    found = dc.solve(case.pair, y, noise_std=NOISE)
    assert not bool(found.explained.any())
    assert bool((found.iterations == 1).any())
    assert int(found.cost.f.max()) <= 3
