"""Subspaces that answers are chosen from: what they hold, what they cost, what round-off does."""

import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.laws.calibration import Calibration
from deceptron.laws.shapes import FIRST_SHAPES, FIRST_SIZE, corrections_of
from deceptron.solve import growth
from deceptron.solve.descents.posterior import PAIRS
from tests.laws.dense import believed, normal
from tests.solve.linear_case import NOISE, Case, tabled_for


def test_all_of_space_holds_the_dense_problem():
    case = Case(12, 8)
    _, y = case.observe(4)
    with torch.no_grad():
        span, start = case.subspace(y)
        span.fill()
    quadratics, a = span.quadratics(), case.matrix / NOISE
    r = (y - start @ case.matrix.T) / NOISE
    torch.testing.assert_close(quadratics.hessian, (a.T @ a).expand(4, -1, -1))
    torch.testing.assert_close(quadratics.slope, r @ a)
    torch.testing.assert_close(quadratics.square, r.square().sum(1))
    z = normal(4, 12, seed=9)
    torch.testing.assert_close(span.combined(z), z)
    torch.testing.assert_close(span.promised(z), z @ a.T - r)


def test_what_is_left_open_is_measured_from_the_mean_of_the_law_and_not_from_where_the_row_is():
    case = Case(12, 8)
    _, y = case.observe(4)
    with torch.no_grad():
        span, start = case.subspace(y, at=normal(4, 12, seed=9))
        span.fill()
    r = (y - start @ case.matrix.T) / NOISE
    torch.testing.assert_close(span.residual, r)


def test_a_subspace_of_enough_pairs_holds_the_posterior_means(monkeypatch):
    """All of them for the law that it was grown with, roughly that of the likeliest one."""
    monkeypatch.setattr(growth, "PAYS", -1.0)  # every pair does
    case = Case(60, 80)
    _, y = case.observe(3)
    with torch.no_grad():
        span, start = case.subspace(y)
        growth.grow(span, None, 40)
    quadratics, sizes = span.quadratics(), case.laws.sizes
    t = case.laws.strengths(y)[:, None].expand(-1, 3)
    values, means = case.scores(y, start)
    errors = torch.empty_like(values)
    for number, stiffness in enumerate(quadratics.stiffness):
        z, _, _ = quadratics.minimise(stiffness, t)
        for size in range(len(sizes)):
            place = number * len(sizes) + size
            error = start + span.combined(z[size]) - means[place]
            errors[place] = error.norm(dim=1) / (means[place] - start).norm(dim=1)
    names = [shape.name for shape in case.laws.shapes]
    grown = len(sizes) * names.index(FIRST_SHAPES[0])
    assert float(errors[grown : grown + len(sizes)].max()) < 1e-2
    assert float(errors[grown : grown + sizes.index(FIRST_SIZE)].max()) < 1e-6
    assert float(errors.gather(0, values.argmin(0)[None]).median()) < 0.5


def test_directions_stay_orthonormal_when_the_subspace_is_nearly_everything(monkeypatch):
    """A bent simulator and many directions: what is new in each is a small part of it."""
    monkeypatch.setattr(growth, "PAYS", -1.0)
    case = Case(40, 40)
    x, _ = case.observe(4)
    y = torch.sin(x) @ case.matrix.T
    with torch.no_grad():
        span, _ = case.subspace(y, forward=lambda rows: torch.sin(rows) @ case.matrix.T)
        growth.grow(span, None, 20)
    products = span.directions @ span.directions.mT
    # A direction that was none is zero.
    known = products.diagonal(dim1=1, dim2=2).round().diag_embed()
    torch.testing.assert_close(products, known, rtol=0, atol=1e-6)
    assert float(known.diagonal(dim1=1, dim2=2).sum(1).min()) > 20


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_a_few_pairs_come_close_to_the_dense_answer(differentiable):
    case = Case(60, 80)
    x, y = case.observe(6)
    solution = dc.solve(case.pair, y, noise_std=NOISE, **case.by_values(differentiable))
    start = case.pair.g(y)
    wanted = case.best(y, start)
    error = (solution.x - wanted).norm(dim=1) / (wanted - start).norm(dim=1)
    assert float(error.max()) < 0.15
    rmse = [float((a - x).square().mean().sqrt()) for a in (solution.x, wanted)]
    assert rmse[0] < 1.1 * rmse[1]


def test_a_direction_that_the_subspace_holds_but_for_round_off_is_not_taken():
    """Single precision: a suggestion that is a multiple of the first one, with noise of 1e-4."""
    case = Case(60, 80)
    _, y = case.observe(3)
    case.pair = case.pair.float()
    with torch.no_grad():
        span, _ = case.subspace(y.float())
        grown = growth._Growth(span, None, 14, 0.0)
        first = normal(3, 60)
        grown._add(first, None)
        for size, taken in ((1e-4, False), (1.0, True)):
            grown._add(first + size * normal(3, 60, seed=1), None)
            lengths = span.directions[:, -1].norm(dim=1)
            assert bool((lengths > 0.5).all()) == taken
            assert bool((lengths > 0).any()) == taken


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_the_dearer_a_pass_through_g_the_fewer_are_made(differentiable):
    case = Case(60, 80)
    _, y = case.observe(12)
    passes = []
    for price in (0.0, 1.0, 100.0):
        method = dc.methods.guarded(reverse_price=price)
        solution = dc.solve(
            case.pair, y, method=method, noise_std=NOISE, **case.by_values(differentiable)
        )
        passes.append(float(solution.cost.g.double().mean()))
        # A start, a linearisation, an end; later ones grow from the correction so far.
        steps = solution.iterations.double()
        spans = PAIRS[0] + steps * PAIRS[1]
        runs = 3 if differentiable else 2
        assert bool((solution.cost.forward <= 1 + runs * spans + 6 * (steps + 1)).all())
    if not differentiable:
        assert passes[0] == passes[2]  # every direction is one run, whoever suggests it
        return
    assert passes[0] > passes[1] > passes[2]
    # g(y), g(y_t), and one direction that shows what another would be worth.
    assert passes[2] <= 1 + 2 * float(solution.cost.g.double().mean().clamp(max=steps.max() + 1))


def in_units(unit):
    """Two fields side by side, the second in this unit: a pair and its simulator."""
    units = torch.tensor([1.0, unit], dtype=torch.float64)[:, None]
    matrix = normal(60, 40) / 40**0.5
    family = units * normal(300, 2, 20, seed=1).cumsum(2) / 20**0.5

    class Forward(nn.Module):
        def forward(self, x):
            return 2 * torch.sin(0.5 * (x / units).flatten(1)) @ matrix.T

    class Reverse(nn.Module):
        def forward(self, y):
            return 0.5 * units * (y @ torch.linalg.pinv(matrix).T).reshape(-1, 2, 20)

    laws = tabled_for(corrections_of(family), matrix / units.expand(2, 20).flatten())
    known = Calibration(noise_std=NOISE, beliefs=believed(laws))
    maps = {"x_shape": (2, 20), "y_shape": (60,), "calibration": known}
    return dc.Deceptron(Forward(), Reverse(), **maps).double(), units


@pytest.mark.parametrize("differentiable", [True, False], ids=["derivatives", "values"])
def test_the_unit_of_a_channel_does_not_matter(differentiable):
    truth = normal(6, 2, 20, seed=3).cumsum(2) / 20**0.5
    found = []
    for unit in (1.0, 1e-3):
        pair, units = in_units(unit)
        y = pair.f(units * truth) + NOISE * normal(6, 60, seed=4)
        solution = dc.solve(pair, y, forward=pair.f, differentiable=differentiable)
        assert int(solution.explained.sum()) >= 3
        assert int(solution.iterations.min()) > 0
        found.append(solution.x / units)
    if differentiable:
        torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-6)
    # Differences of values are taken along other combinations of the same directions.
    errors = [float((x - truth).square().mean().sqrt()) for x in found]
    assert errors[1] < 1.5 * errors[0]


@pytest.mark.parametrize("bounds", [None, (0.0, 1e6)], ids=["free", "boxed"])
def test_differences_are_divided_by_the_steps_that_round_off_leaves(bounds):
    """In float32 latents near 1e5 are a multiple of 0.008, a quarter of a step."""
    case, far = Case(6, 9), 1e5
    case.pair = case.pair.float()
    _, y = case.observe(4)
    matrix = case.matrix.numpy()
    settings = {
        "forward": lambda x: (x.double().numpy() - far) @ matrix.T,
        "differentiable": False,
        "bounds": bounds,
    }
    at = (far + normal(4, 6, seed=5)).float()
    span, _ = case.subspace(y.float(), at=at, **settings)
    span.fill()
    # Columns of A in units of the noise; y, too, is rounded to float32.
    wanted = (case.matrix.T / NOISE).expand(4, 6, 9)
    torch.testing.assert_close(span.images, wanted, rtol=0, atol=1e-3 / NOISE)


def test_without_derivatives_the_residual_at_the_start_is_right_at_the_bounds():
    """The image of the correction so far is measured by a step, which must not leave the box."""
    case = Case(40, 60)
    x, y = case.observe(6)
    settings = {"forward": case.values, "differentiable": False, "bounds": (-0.4, 0.4)}
    at = (3 * x).clamp(-0.4, 0.4)  # most components at a bound
    span, start = case.subspace(y, at=at, **settings)
    so_far = torch.zeros(6, dtype=torch.int64), torch.full((6,), case.laws.sizes.index(0.3))
    growth.grow(span, so_far, 2)
    expected = (y - start @ case.matrix.T) / NOISE
    torch.testing.assert_close(span.residual, expected, rtol=1e-6, atol=1e-6)
