"""Corrections that go far and explain nothing end where they began; all others stay."""

from dataclasses import replace

import pytest
import torch
from deceptron.solve.evidence import posterior_spread

import deceptron as dc
from deceptron.core import Reason, Status
from deceptron.core.bases import DiagonalGaussian
from tests.solve.test_correction import NOISE, Case, normal
from tests.solve.test_dense import Fixed


def saturated(case):
    """Sensors that cannot show more than 1: nothing explains an observation of 3."""
    return lambda x: torch.tanh(x @ case.matrix.T)


@pytest.mark.parametrize("differentiable", [True, False])
def test_a_row_that_nothing_explains_keeps_its_start(differentiable):
    case = Case(6, 12)
    x, _ = case.observe(4)
    forward = saturated(case)
    y = forward(x) + NOISE * normal(4, 12, seed=3)
    settings = {"forward": forward, "differentiable": differentiable, "noise_std": NOISE}
    sane = dc.solve(case.pair, y, **settings)
    assert bool(sane.explained.all())
    y[2] = 3.0
    found = dc.solve(case.pair, y, **settings)
    assert Reason(int(found.reason[2])) == Reason.STRAYED
    assert Status(int(found.status[2])) == Status.STALLED
    torch.testing.assert_close(found.x[2], case.pair.g(y)[2])
    residual = (forward(found.x[2:3]) - y[2:3]).square().mean().sqrt()
    torch.testing.assert_close(found.over_noise[2], residual / NOISE)
    assert int(found.iterations[2]) == 0
    # What was spent on the way counts: at least a span of six.
    assert int(found.cost.evaluations[2]) > 6
    others = [0, 1, 3]
    torch.testing.assert_close(found.x[others], sane.x[others])


def test_what_stays_near_is_kept_though_it_does_not_explain_the_data():
    """Noise of five times what was told leaves every row unexplained, and corrections help."""
    case = Case(6, 12)
    x, y = case.observe(40, noise=5 * NOISE)
    found = dc.solve(case.pair, y, forward=lambda rows: rows @ case.matrix.T)
    assert not bool((found.reason == Reason.STRAYED).any())
    before, after = ((answer - x).square().mean() for answer in (case.pair.g(y), found.x))
    assert after < before


def test_the_way_back_to_the_family_is_not_straying():
    """A start far outside of it, as a linear map makes it of strange data, is no place to keep."""
    case = Case(6, 12)
    forward = saturated(case)
    y = torch.full((1, 12), 3.0, dtype=torch.float64)
    start = case.pair.g(y)
    eigen, eigenvalues = case.corrections.eigen, case.corrections.eigenvalues
    # Of the two families one lies behind the start, the other before it, far away.
    for away, strayed in ((0.0, True), (1e6, False)):
        far_off = dc.solve(case.pair, y, forward=forward, x0=start, noise_std=NOISE).x[0]
        mean = start[0] + away * (far_off - start[0])
        family = DiagonalGaussian(mean, eigen, eigenvalues)
        case.pair.calibration = replace(case.pair.calibration, family=family)
        found = dc.solve(case.pair, y, forward=forward, noise_std=NOISE)
        assert bool((found.reason == Reason.STRAYED).all()) == strayed


@pytest.mark.parametrize(
    ("room", "asked", "strayed"), [(1.5, 30.0, True), (0.7, 30.0, False), (1.5, 2.5, False)]
)
def test_half_as_far_is_too_far_where_it_was_in_vain(room, asked, strayed):
    """A box lets rows go so far, data ask for more, and most of the residual is left, or not."""
    case = Case(6, 12)
    case.matrix = torch.linalg.qr(case.matrix).Q

    def forward(x):
        return x @ case.matrix.T

    scale = case.corrections.scale
    start = case.pair.g(torch.zeros(1, 12, dtype=torch.float64))
    y = forward(start + asked * scale)
    pair = dc.Deceptron(
        case.pair.f, Fixed(start), x_shape=(6,), y_shape=(12,), calibration=case.pair.calibration
    )
    bounds = (start[0] - room * scale, start[0] + room * scale)
    found = dc.solve(pair, y, forward=forward, noise_std=NOISE, bounds=bounds)
    assert bool((found.reason == Reason.STRAYED).all()) == strayed
    torch.testing.assert_close(found.x, start if strayed else bounds[1][None])


@pytest.mark.parametrize("told", [True, False])
def test_noise_that_was_told_is_not_more_than_that(told):
    """Three times the noise is left at the bound: data may be noisier than those of training, but
    not than the user says.
    """
    case = Case(6, 12)
    case.matrix = torch.linalg.qr(case.matrix).Q
    scale = case.corrections.scale
    start = case.pair.g(torch.zeros(1, 12, dtype=torch.float64))
    y = (start + 4.5 * scale) @ case.matrix.T
    bounds = (start[0] - 1.5 * scale, start[0] + 1.5 * scale)
    noise = float((3 * scale * case.matrix.sum(1)).square().mean().sqrt() / 3)
    known = replace(case.pair.calibration, noise_std=noise)
    pair = dc.Deceptron(case.pair.f, Fixed(start), x_shape=(6,), y_shape=(12,), calibration=known)
    settings = {"noise_std": noise} if told else {}
    found = dc.solve(pair, y, forward=lambda x: x @ case.matrix.T, bounds=bounds, **settings)
    assert not bool(found.explained.any())
    assert bool((found.reason == Reason.STRAYED).all()) == told


def test_a_singular_factor_costs_no_other_row_its_spread():
    matrix = normal(3, 4, 4, seed=1)
    system = matrix @ matrix.mT + torch.eye(4, dtype=torch.float64)
    factor = torch.linalg.cholesky(system)
    expected = torch.linalg.inv(system).diagonal(dim1=1, dim2=2).sqrt()
    factor[0, 2, 2], factor[1, 3, 0] = 0.0, torch.nan
    spread, sound = posterior_spread(factor)
    assert sound.tolist() == [False, False, True]
    torch.testing.assert_close(spread[2], expected[2])
    assert bool(spread.isfinite().all())
