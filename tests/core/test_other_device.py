"""What works on the CPU works elsewhere: no tensor of one device meets one of the other."""

import pytest
import torch

import deceptron as dc
from deceptron.train.families import corrections_of, family_of
from tests.other_device import other_device


def test_the_other_device_refuses_tensors_of_the_cpu():
    with other_device() as elsewhere:
        there = torch.ones(3).to(elsewhere)
        assert there.device == elsewhere
        assert float((2 * there).sum()) == 6
        with pytest.raises(RuntimeError, match="mixes devices"):
            there + torch.ones(3)


@pytest.mark.parametrize("shape", [(12,), (2, 24)])
def test_members_of_samples_that_are_elsewhere_stand_side_by_side(shape):
    rows = torch.randn(100, *shape, generator=torch.Generator().manual_seed(0)).cumsum(-1)
    here = corrections_of(rows)
    with other_device() as elsewhere:
        there = corrections_of(rows.to(elsewhere))
        torch.testing.assert_close(there.spread, here.spread)
        torch.testing.assert_close(there.units, here.units)
        family = family_of(rows.to(elsewhere), there)
        assert family is not None
        assert family.sqrt(rows.to(elsewhere)).device == elsewhere


@pytest.mark.parametrize("case", ["simulator", "gap", "values"])
def test_a_solve_elsewhere_gives_the_same_answers_and_bars(case):
    problem = dc.problems.get("heat-1d")
    x = problem.dataset(seed=7).test.x[:2]
    # Half a wave more than the pair knows, seen so well that one row needs a correction.
    y = problem.simulate((x + 0.4 * torch.linspace(0.0, 3.14, 64).sin()).clamp(0, 1))
    if case == "gap":
        y[0, :20] = torch.nan
    settings = {"noise_std": problem.noise_std / 10}
    if case == "values":
        settings["differentiable"] = False
    here = dc.solve(dc.load("heat-1d"), y, forward=problem, **settings)
    assert bool((here.iterations > 0).any())
    wanted = {name: getattr(here, name) for name in ("x", "std", "over_noise", "iterations")}
    with other_device() as elsewhere:
        pair = dc.load("heat-1d").to(elsewhere)
        there = dc.solve(pair, y, forward=problem, **settings)
        for name, value in wanted.items():
            found = getattr(there, name)
            assert found.device == elsewhere
            torch.testing.assert_close(found.cpu(), value, rtol=1e-4, atol=1e-5)
        assert there.trust.score.device == elsewhere
        assert len(there[1:].frame()) == len(there[1:].std) == 1
