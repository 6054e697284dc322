"""The score that chooses shape, size and noise against the marginal likelihood of dense Gaussians.

Where the span is all of space it is exact; elsewhere its log-determinant is the table's.
"""

import math
from itertools import product

import pytest
import torch

from deceptron.laws.noise import PREFERENCE
from deceptron.laws.score import Quadratics, _determinant, _inverse, choose, fitted
from tests.laws.dense import M, N, corrections, covariance, normal

ROWS = 6


def everything(laws, jacobian, r):
    """All of space, the directions being the unknowns."""
    stiffness = torch.stack([torch.linalg.inv(covariance(shape)) for shape in laws.shapes])
    return Quadratics(
        hessian=(jacobian.T @ jacobian).expand(len(r), -1, -1),
        slope=r @ jacobian,
        square=r.square().sum(1),
        stiffness=stiffness[:, None].expand(-1, len(r), -1, -1),
    )


def total(laws, shape, size, jacobian):
    """Covariance of the data: ``t J K J' + 1``."""
    t = (laws.scale * laws.sizes[size]) ** 2
    spread = t * jacobian @ covariance(laws.shapes[shape]) @ jacobian.T
    return spread + torch.eye(len(jacobian), dtype=torch.float64)


def price_of(noise, *, told):
    """Minus twice the logarithm of ``v^-PREFERENCE``, and of the odds that it is wrong."""
    odds = torch.where(noise > 1, -2 * math.log(0.01), 0.0) if told else 0.0
    return 2 * PREFERENCE * noise.log() + odds


def scores(laws, jacobian, r, *, told, loudest=math.inf):
    """Minus twice the log density of r under every law (without m log 2 pi), the noise at its own
    value or at the one that the quadratic form asks for, whichever is cheaper.
    """
    found, noises = [], []
    for shape, size in product(range(len(laws.shapes)), range(len(laws.sizes))):
        dense = total(laws, shape, size, jacobian)
        form = (r * torch.linalg.solve(dense, r.T).T).sum(1)
        determinant = torch.linalg.slogdet(dense).logabsdet
        v = (form / r.shape[1]).sqrt().clamp(1.0, loudest)
        louder = form / v**2 + 2 * r.shape[1] * v.log() + price_of(v, told=told)
        found.append(torch.minimum(form, louder) + determinant)
        noises.append(torch.where(form <= louder, 1.0, v))
    return torch.stack(found), torch.stack(noises)


def drawn(laws, jacobian, *, noise=1.0, seed=11):
    """Residuals of rows of every kind of law."""
    places = [(0, 8), (2, 20), (5, 12), (7, 16), (9, 20), (12, 24)]
    e = [
        laws.sizes[size] * laws.scale * laws.shapes[shape].root(normal(N, seed=seed + k))
        for k, (shape, size) in enumerate(places)
    ]
    return torch.stack(e) @ jacobian.T + noise * normal(ROWS, len(jacobian), seed=seed - 1)


def test_the_least_value_its_place_and_the_determinant_are_those_of_the_dense_gaussian():
    laws, (jacobian,) = corrections()
    r = drawn(laws, jacobian)
    quadratics, t = everything(laws, jacobian, r), laws.strengths(r)
    for number, shape in enumerate(laws.shapes):
        stiffness = quadratics.stiffness[number]
        each = t[:, None].expand(-1, ROWS)
        z, value, factor = quadratics.minimise(stiffness, each)
        determinant = _determinant(quadratics, stiffness, each, factor, laws, number)
        for size in range(0, len(laws.sizes), 3):
            dense = total(laws, number, size, jacobian)
            half = torch.linalg.solve(dense, r.T).T
            wanted = t[size] * half @ jacobian @ covariance(shape)
            torch.testing.assert_close(z[size], wanted, rtol=0, atol=1e-7 * laws.scale)
            torch.testing.assert_close(value[size], (r * half).sum(1), rtol=1e-7, atol=1e-7)
            exact = torch.linalg.slogdet(dense).logabsdet.expand(ROWS)
            torch.testing.assert_close(determinant[size], exact, rtol=1e-7, atol=1e-6)


def test_the_tabled_determinant_and_that_of_the_row_itself_agree():
    """But for what lies between nodes: a chord of a function that bends by a quarter at most."""
    laws, (jacobian,) = corrections()
    quadratics, t = everything(laws, jacobian, drawn(laws, jacobian)), laws.strengths(laws.units)
    tabled = laws.log_determinant(t[:, None].expand(-1, ROWS))
    for number in range(len(laws.shapes)):
        stiffness, each = quadratics.stiffness[number], t[:, None].expand(-1, ROWS)
        factor = quadratics.minimise(stiffness, each)[2]
        own = _determinant(quadratics, stiffness, each, factor, laws, number)
        above = tabled[number] - own
        assert float(above.min()) > -1e-5
        assert float(above.max()) < (0.25 * math.log(10)) ** 2 / 32 * N


@pytest.mark.parametrize("told", [True, False], ids=["noise told", "noise free"])
@pytest.mark.parametrize("noise", [1.0, 4.0])
@pytest.mark.parametrize("loudest", [math.inf, 2.0])
def test_the_law_of_the_largest_marginal_likelihood_is_chosen(told, noise, loudest):
    laws, (jacobian,) = corrections()
    r = drawn(laws, jacobian, noise=noise)
    ones = torch.ones(ROWS, dtype=torch.float64)
    settings = {"count": M * ones, "loudest": loudest * ones, "told": told}
    quadratics = everything(laws, jacobian, r)
    chosen = choose(laws, quadratics, precision=ones, complete=True, **settings)
    wanted, noises = scores(laws, jacobian, r, told=told, loudest=loudest)
    place = chosen.shape * len(laws.sizes) + chosen.size
    rows = torch.arange(ROWS)
    torch.testing.assert_close(wanted[place, rows], wanted.min(0).values, rtol=1e-9, atol=1e-5)
    torch.testing.assert_close(chosen.noise, noises[place, rows])
    assert float(chosen.noise.max()) <= loudest
    assert len(set(place.tolist())) > 3  # rows differ
    if noise > 1 and not told:
        assert float(chosen.noise.max()) > 1.5


def test_by_the_table_a_law_is_chosen_that_is_as_likely_but_for_its_chords():
    laws, (jacobian,) = corrections()
    r = drawn(laws, jacobian)
    ones = torch.ones(ROWS, dtype=torch.float64)
    settings = {"count": M * ones, "loudest": math.inf * ones, "told": True, "precision": ones}
    chosen = choose(laws, everything(laws, jacobian, r), complete=False, **settings)
    wanted, _ = scores(laws, jacobian, r, told=True)
    place = chosen.shape * len(laws.sizes) + chosen.size
    worse = wanted[place, torch.arange(ROWS)] - wanted.min(0).values
    assert float(worse.max()) < (0.25 * math.log(10)) ** 2 / 32 * N


def test_a_law_of_given_shape_and_size_is_the_dense_posterior():
    laws, (jacobian,) = corrections()
    r = drawn(laws, jacobian)
    shape, size = torch.tensor([0, 1, 5, 7, 9, 12]), torch.tensor([28, 20, 24, 16, 12, 8])
    ones = torch.ones(ROWS, dtype=torch.float64)
    found = fitted(
        laws,
        everything(laws, jacobian, r),
        shape,
        size,
        count=M * ones,
        loudest=math.inf * ones,
        told=False,
    )
    for row in range(ROWS):
        t = laws.strengths(r)[size[row]]
        prior = torch.linalg.inv(t * covariance(laws.shapes[int(shape[row])]))
        posterior = torch.linalg.inv(prior + jacobian.T @ jacobian)
        torch.testing.assert_close(found.z[row], posterior @ jacobian.T @ r[row], rtol=1e-6, atol=0)
        torch.testing.assert_close(
            found.spread[row], posterior.diagonal().sqrt(), rtol=1e-6, atol=0
        )
        decided = (posterior @ jacobian.T @ jacobian).trace()
        assert float(found.freedom[row]) == pytest.approx(float(decided), rel=1e-6)
        form = (r[row] - jacobian @ found.z[row]).square().sum() + found.z[row] @ prior @ found.z[
            row
        ]
        assert float(found.value[row]) == pytest.approx(float(form), rel=1e-6)


def test_mass_inside_the_bounds_is_what_a_law_is_normalised_by():
    """A law whose mass is outside of the bounds counts for less than it says."""
    laws, (jacobian,) = corrections()
    r = drawn(laws, jacobian)
    ones = torch.ones(ROWS, dtype=torch.float64)
    settings = {
        "count": M * ones,
        "loudest": math.inf * ones,
        "told": True,
        "precision": ones,
        "complete": True,
    }
    quadratics = everything(laws, jacobian, r)
    wanted = scores(laws, jacobian, r, told=True)[0]
    mass = -normal(len(laws.shapes), len(laws.sizes), 1, seed=4).abs().expand(-1, -1, ROWS) * 3
    # Smooth in the size, as masses are: what is sought from mark to mark must not jump between.
    mass = mass[:, :1] * torch.linspace(1, 3, len(laws.sizes), dtype=torch.float64)[:, None]
    chosen = choose(laws, quadratics, mass=mass, **settings)
    within = wanted + 2 * mass.flatten(0, 1)
    place = chosen.shape * len(laws.sizes) + chosen.size
    rows = torch.arange(ROWS)
    torch.testing.assert_close(within[place, rows], within.min(0).values, rtol=1e-9, atol=1e-5)
    assert not torch.equal(place, wanted.argmin(0))


def test_rows_are_chosen_for_one_by_one():
    laws, (jacobian,) = corrections()
    r = drawn(laws, jacobian)
    r[2] = torch.nan
    quadratics = everything(laws, jacobian, r)

    def found(rows):
        part = Quadratics(
            quadratics.hessian[rows],
            quadratics.slope[rows],
            quadratics.square[rows],
            quadratics.stiffness[:, rows],
        )
        ones = torch.ones(len(part.square), dtype=torch.float64)
        settings = {"count": M * ones, "loudest": math.inf * ones, "told": True}
        return choose(laws, part, precision=ones, complete=True, **settings)

    together = found(slice(None))
    for row in (0, 1, 3, 5):
        alone = found(slice(row, row + 1))
        assert int(alone.shape) == int(together.shape[row])
        assert int(alone.size) == int(together.size[row])
        torch.testing.assert_close(alone.z[0], together.z[row], rtol=1e-9, atol=1e-12)


def test_a_direction_that_is_zero_or_not_finite_tells_nothing_and_costs_nothing():
    laws, (jacobian,) = corrections()
    r = drawn(laws, jacobian)
    quadratics = everything(laws, jacobian, r)
    hessian, stiffness = (part.clone() for part in (quadratics.hessian, quadratics.stiffness))
    slope = quadratics.slope.clone()
    # In row 1 the last direction is none.
    for part in (hessian, stiffness):
        part[..., 1, -1, :] = part[..., 1, :, -1] = 0.0
    slope[1, -1] = 0.0
    hessian[3] = torch.nan
    t = laws.strengths(r)[20].expand(1, ROWS)
    part = Quadratics(hessian, slope, quadratics.square, stiffness)
    z, value, _ = part.minimise(stiffness[0], t)
    assert float(z[0, 1, -1]) == 0.0
    fewer = torch.linalg.solve(
        hessian[1, :-1, :-1] + stiffness[0, 1, :-1, :-1] / t[0, 1], slope[1, :-1]
    )
    torch.testing.assert_close(z[0, 1, :-1], fewer, rtol=1e-6, atol=0)
    assert bool((z[0, 3] == 0).all())
    assert float(value[0, 3]) == math.inf
    plain = quadratics.minimise(quadratics.stiffness[0], t)[0]
    others = [0, 2, 4, 5]
    torch.testing.assert_close(z[0, others], plain[0, others])


def test_a_singular_factor_costs_no_other_row_its_spread():
    matrix = normal(3, 4, 4, seed=1)
    system = matrix @ matrix.mT + torch.eye(4, dtype=torch.float64)
    factor = torch.linalg.cholesky(system)
    factor[0, 2, 2], factor[1, 3, 0] = 0.0, torch.nan
    inverse, sound = _inverse(factor)
    assert sound.tolist() == [False, False, True]
    torch.testing.assert_close(inverse[2], torch.linalg.inv(system[2]))
    assert bool(inverse.isfinite().all())
