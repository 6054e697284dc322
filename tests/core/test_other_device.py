"""What works on the CPU works elsewhere: no tensor of one device meets one of the other."""

import pytest
import torch

import deceptron as dc
from deceptron.core.bases import GridBasis, principal
from deceptron.laws.data import DataLaws
from deceptron.laws.odds import CORRECTION, FAMILY, Odds
from deceptron.laws.shapes import corrections_of, roughened
from deceptron.laws.start import StartLaw
from deceptron.train.families import family_of
from tests.other_device import other_device
from tests.solve.linear_case import NOISE, Case, tabled_for, with_beliefs


def test_the_other_device_refuses_tensors_of_the_cpu():
    with other_device() as elsewhere:
        there = torch.ones(3).to(elsewhere)
        assert there.device == elsewhere
        assert float((2 * there).sum()) == 6
        with pytest.raises(RuntimeError, match="mixes devices"):
            there + torch.ones(3)


@pytest.mark.parametrize("shape", [(12,), (2, 24)])
def test_shapes_of_samples_that_are_elsewhere_stand_side_by_side(shape):
    rows = torch.randn(100, *shape, generator=torch.Generator().manual_seed(0)).cumsum(-1)
    here = corrections_of(rows)
    with other_device() as elsewhere:
        there = corrections_of(rows.to(elsewhere))
        torch.testing.assert_close(there.spread, here.spread)
        torch.testing.assert_close(there.units, here.units)
        family = family_of(rows.to(elsewhere))
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


def believing_everything(n, m, odds):
    """A pair with laws of every kind."""
    case = Case(n, m)
    law = case.know_family()
    family = tabled_for(roughened(law), case.matrix)
    _, y = case.observe(200)
    eigen, spectrum = principal(y, m)
    grid = GridBasis((m,), ("cosine",))
    power = grid.forward(y - y.mean(0)).square().mean(0)
    powers = torch.linspace(1.0, 0.25, len(family.shapes), dtype=torch.float64)[:, None]
    data = tuple(
        DataLaws(basis, y.mean(0), s**powers * (s.mean() / (s**powers).mean(1, keepdim=True)))
        for basis, s in ((eigen, spectrum), (grid, power))
    )
    ones = torch.ones(n, dtype=torch.float64)
    start = StartLaw(3, 24, law.mean, ones, 0 * ones, 0.1 * ones)
    case.pair = with_beliefs(
        case.pair, family=family, data=data, start=start, surrogate=odds, simulator=odds
    )
    return case


@pytest.mark.parametrize(("n", "m"), [(8, 12), (60, 70)], ids=["all of space", "a subspace"])
@pytest.mark.parametrize("bounds", [None, (-0.5, 0.5)], ids=["free", "boxed"])
@pytest.mark.parametrize(
    "odds",
    [Odds.expected(), Odds.only(CORRECTION), Odds.only(FAMILY)],
    ids=["odds", "correction", "family"],
)
def test_laws_work_elsewhere_as_they_do_here(n, m, bounds, odds):
    case = believing_everything(n, m, odds)
    _, y = case.observe(4)
    y[3, :3] = torch.nan
    y[2] *= 3
    settings = {"bounds": bounds, "noise_std": NOISE}
    here = dc.solve(case.pair, y, **settings)
    assert bool((here.iterations > 0).any())
    wanted = {name: getattr(here, name) for name in ("x", "std", "over_noise", "reason", "rule")}
    draws = here.posterior(2, generator=torch.Generator().manual_seed(0))
    with other_device() as elsewhere:
        there = dc.solve(case.pair.to(elsewhere), y.to(elsewhere), **settings)
        for name, value in wanted.items():
            found = getattr(there, name)
            assert found.device == elsewhere
            torch.testing.assert_close(found.cpu(), value, rtol=1e-6, atol=1e-8)
        assert there.posterior(2).shape == draws.shape
