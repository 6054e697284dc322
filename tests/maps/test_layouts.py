"""Fields that a coarse grid carries survive a finer one, whatever their boundary."""

import math

import numpy as np
import pytest
import torch

import deceptron as dc
from deceptron.maps.layouts import KNOWN, LAYOUTS, between, noise_gain, regridded, resample, stretch

FIELDS = {
    "periodic": lambda x: torch.cos(2 * math.pi * x) + torch.sin(6 * math.pi * x),
    "cells": lambda x: 1 + torch.cos(math.pi * x) - torch.cos(4 * math.pi * x),
    "zero-cells": lambda x: torch.sin(math.pi * x) + torch.sin(5 * math.pi * x),
    "points": lambda x: 1 + x - 2 * x**3 + x**5,
    "zero-points": lambda x: torch.sin(2 * math.pi * x) - torch.sin(3 * math.pi * x),
    "nodes": lambda x: 2 - x**2 + 3 * x**5,
}


def places(layout, n):
    i = torch.arange(n, dtype=torch.float64)
    return {
        "periodic": i / n,
        "cells": (i + 0.5) / n,
        "zero-cells": (i + 0.5) / n,
        "points": (i + 1) / (n + 1),
        "zero-points": (i + 1) / (n + 1),
        "nodes": i / (n - 1),
    }[layout]


@pytest.mark.parametrize(("coarse", "fine"), [(12, 24), (13, 20), (16, 128)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_ways_are_exact_for_what_the_coarse_grid_carries(layout, coarse, fine):
    there = between(layout, coarse, fine)
    field = FIELDS[layout]
    torch.testing.assert_close(
        there @ field(places(layout, coarse)), field(places(layout, fine)), rtol=0, atol=1e-9
    )
    back = between(layout, fine, coarse)
    eye = torch.eye(coarse, dtype=torch.float64)
    torch.testing.assert_close(back @ there, eye, rtol=0, atol=1e-9)


def test_axes_are_resampled_each_and_channels_are_not():
    rows = torch.randn(3, 2, 8, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = resample(rows, "cells", (16, 30))
    assert found.shape == (3, 2, 16, 30)
    first, second = between("cells", 8, 16), between("cells", 10, 30)
    torch.testing.assert_close(found, torch.einsum("bcij,ki,lj->bckl", rows, first, second))
    torch.testing.assert_close(resample(found, "cells", (8, 10)), rows)


def test_restriction_averages_noise():
    assert noise_gain("cells", (64, 64), (32, 32)) == pytest.approx(0.5)
    assert noise_gain("cells", (128,), (128,)) == 1.0
    white = torch.randn(
        400, 1, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    seen = resample(white, "zero-points", (32, 32)).std()
    assert float(seen) == pytest.approx(noise_gain("zero-points", (64, 64), (32, 32)), rel=0.02)


@pytest.mark.parametrize(
    ("name", "share"),
    [("darcy-2d", 0.02), ("advection-diffusion-2d", 1e-6), ("navier-stokes-2d", 0.01)],
)
def test_simulating_and_restricting_commute(name, share):
    """The layouts are where the simulators have their points; in units of the spread of y."""
    coarse, fine = dc.problems.get(name), dc.problems.get(name, grid=64)
    x = fine.sample(3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    of_x, of_y = KNOWN[name]
    y = fine.simulate(x)
    first = resample(y, of_y, (32, 32))
    then = coarse.unchecked().simulate(resample(x, of_x, (32, 32)))
    assert float((first - then).square().mean().sqrt()) < share * float(y.std())


def test_what_stands_beside_a_field_stays_positive():
    scale = torch.tensor([[1e-6, 1.0, 1e-6]])
    found = stretch(scale, (4, 1, 9))
    assert found.shape == (1, 9)
    assert float(found.min()) > 0
    torch.testing.assert_close(found[0, [0, 4, 8]], scale[0])
    assert torch.equal(stretch(torch.ones(2, 1, 1), (2, 9, 9)), torch.ones(2, 1, 1))


@pytest.mark.parametrize("grid", [1, 2.5, (3, 4, 5), True, "64"])
def test_a_grid_is_one_number_or_one_for_each_axis(grid):
    with pytest.raises(dc.ConfigError, match=r"at_grid\(grid=...\) must be a number of points"):
        regridded((1, 8, 8), grid)


@pytest.mark.parametrize("grid", [np.int64(6), (6, 6), np.array([6, 6])])
def test_a_grid_may_come_from_numpy(grid):
    assert regridded((1, 8, 8), grid) == (1, 6, 6)
