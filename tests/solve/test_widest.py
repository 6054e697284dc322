"""A residual has no limit, an error has: bars of unexplained rows are no wider than the family."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import deceptron as dc
from deceptron.core import Reason
from deceptron.core.bases import DiagonalGaussian
from tests.solve.test_correction import NOISE, Case, normal
from tests.solve.test_strays import saturated


def with_family(case: Case) -> DiagonalGaussian:
    """The case's pair knows the law of its latents, by which bars are made."""
    family = DiagonalGaussian(
        torch.zeros(6, dtype=torch.float64), case.corrections.eigen, case.corrections.eigenvalues
    )
    case.pair.calibration = replace(case.pair.calibration, family=family)
    return family


@pytest.mark.parametrize("height", [3.0, 30.0])
def test_a_row_that_went_back_has_bars_as_wide_as_the_family_and_no_wider(height):
    case = Case(6, 12)
    family = with_family(case)
    x, _ = case.observe(4)
    forward = saturated(case)
    y = forward(x) + NOISE * normal(4, 12, seed=3)
    sane = dc.solve(case.pair, y, forward=forward, noise_std=NOISE)
    y[2] = height
    found = dc.solve(case.pair, y, forward=forward, noise_std=NOISE)
    unexplained = ~found.explained
    assert unexplained.tolist() == [False, False, True, False]
    most = torch.hypot(found.x[2] - family.mean, family.variance.sqrt())
    assert bool((found.std[2] <= 1.001 * most).all())
    # It is still the least certain of all.
    assert float(found.std[2].mean()) > 2 * float(sane.std.mean())
    draws = found.posterior(samples=400, generator=torch.Generator().manual_seed(0))
    assert bool((draws[:, 2].std(0) <= 1.15 * most).all())


def test_noise_that_nobody_told_widens_bars_no_further_than_the_family():
    """Sensors off by a million: called noisier, at an answer whose bars are not a million wide."""
    case = Case(6, 12)
    family = with_family(case)
    _, y = case.observe(4)
    y[1] += 1e6 * NOISE * normal(12, seed=5)
    found = dc.solve(case.pair, y, forward=lambda rows: rows @ case.matrix.T)
    assert Reason(int(found.reason[1])) != Reason.DISCREPANCY
    most = torch.hypot(found.x[1] - family.mean, family.variance.sqrt())
    assert bool((found.std[1] <= 1.001 * most).all())


def test_bars_of_noisier_data_count_the_noise_that_went_through_the_start():
    """Three times the stated noise, told to nobody: g has let most of it through.

    Over 16 matrices, since one of them says little (0.74 to 0.88). Their mean is 0.83; bars that
    left the start's noise out held 0.75.
    """
    held = []
    for seed in range(0, 160, 10):
        case = Case(6, 12, share=0.9, seed=seed)
        with_family(case)
        x, y = case.observe(100, noise=3 * NOISE, seed=seed + 7)
        found = dc.solve(case.pair, y, forward=lambda rows, a=case.matrix: rows @ a.T)
        noisier = found.reason == Reason.NOISIER
        assert int(noisier.sum()) > 50
        low, high = found.interval(0.9)
        held.append(((x >= low) & (x <= high))[noisier].double().mean())
    assert 0.79 < float(torch.stack(held).mean()) < 0.95


def test_more_noise_that_is_told_never_makes_bars_narrower():
    """A surrogate that errs by much more than the noise: what is left of a row is its error."""
    case = Case(6, 12)
    with_family(case)
    corrections = replace(case.corrections, keep=(True, True))
    case.pair.calibration = replace(case.pair.calibration, corrections=corrections)
    _, y = case.observe(8)
    y = y + 16 * NOISE * normal(8, 12, seed=5).sign()
    found = [dc.solve(case.pair, y, noise_std=k * NOISE) for k in (1, 2, 4, 8)]
    for less, more in pairwise(found):
        assert torch.equal(less.x, more.x)
        assert bool((more.std >= 0.97 * less.std).all())
