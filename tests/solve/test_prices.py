"""A price that is measured; what is done with it is in ``test_subspace.py``."""

import math

import pytest
import torch

import deceptron as dc
from deceptron.core.units import Units


@pytest.fixture(scope="module")
def seen():
    problem, pair = dc.problems.get("heat-2d"), dc.load("heat-2d")
    return problem, pair, problem.dataset(7).shifted.y[:4]


def test_rows_that_are_told_a_price_ask_the_network_less_and_are_explained_all_the_same(seen):
    problem, pair, y = seen
    assert 0 < dc.reverse_price(pair, y, forward=problem) < math.inf
    method = dc.methods.guarded(reverse_price=30.0)
    free, told = (
        dc.solve(pair, y, forward=problem, method=m, history=False) for m in ("guarded", method)
    )
    assert bool((told.cost.g < free.cost.g / 2).all())
    assert bool(told.explained.all())


def test_a_simulator_of_values_has_no_price(seen):
    problem, pair, y = seen
    assert dc.reverse_price(pair, y, forward=dc.simulators.wrap(values_only(problem))) == 0


def test_a_simulator_that_fails_is_named_and_a_bad_row_is_left_out(seen):
    problem, pair, y = seen
    with pytest.raises(dc.SimulatorError, match="division"):
        dc.reverse_price(pair, y, forward=lambda x: x / (1 // 0))
    with pytest.raises(dc.ConfigError, match="finite value"):
        dc.reverse_price(pair, y, forward=lambda x: torch.nan * x)
    with pytest.raises(dc.ConfigError, match="graph"):
        dc.reverse_price(pair, y, forward=lambda x: problem.simulate(x.detach()))
    with pytest.raises(dc.ConfigError, match="simulator"):
        dc.reverse_price(pair, y, forward=None)
    bad = y.clone()
    bad[0] = torch.inf
    assert dc.reverse_price(pair, bad, forward=problem) > 0


def values_only(problem):
    def simulate(x):
        return problem.simulate(torch.as_tensor(x)).numpy()

    return simulate


def test_a_price_is_a_number_from_zero_on():
    with pytest.raises(dc.ConfigError, match="reverse_price"):
        dc.methods.guarded(reverse_price=-1.0)


def test_units_are_taken_off_first():
    inner = dc.load("heat-1d")
    units = Units(shift=torch.tensor(2.0), scale=torch.tensor(3.0))
    pair = inner.with_units(units, None)
    problem = dc.problems.get("heat-1d")
    y = problem.dataset(7).test.y[:2]
    seen = []

    def simulate(x):
        seen.append(float(x.detach().mean()))
        return problem.simulate((x - 2.0) / 3.0)

    assert dc.reverse_price(pair, y, forward=simulate) > 0
    assert all(2.0 < mean < 5.0 for mean in seen)  # latents lie between 0 and 1
