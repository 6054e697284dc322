"""What a row's own data say of its kind, its law and its noise, before any run that could."""

import pytest
import torch

import deceptron as dc
from deceptron.core import Reason
from deceptron.core.bases import GridBasis, principal
from deceptron.laws.data import DataLaws
from deceptron.laws.odds import CORRECTION, FAMILY, START, Odds
from deceptron.laws.shapes import roughened
from deceptron.solve.descents.posterior import BY_FAMILY
from deceptron.solve.first_fits import features
from tests.laws.dense import covariance, normal
from tests.solve.linear_case import NOISE, Case, tabled_for, with_beliefs

# By surprise alone: START to ten nats, the family beyond.
BY_SURPRISE = torch.tensor([[0.0, -99.0, -3.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]).double()


def knowing(n=12, m=40, *, share=0.98):
    """A pair that knows what its family's laws make of data, exactly."""
    case = Case(n, m, share=share)
    law = case.know_family()
    family = tabled_for(roughened(law), case.matrix)
    mean = case.matrix @ law.mean
    of_data = [
        family.scale**2 * case.matrix @ covariance(shape) @ case.matrix.T for shape in family.shapes
    ]
    draws = torch.linalg.cholesky(of_data[0] + 1e-9 * torch.eye(m)) @ normal(m, 20000, seed=3)
    eigen, _ = principal(draws.T, m)
    bases = eigen, GridBasis((m,), ("cosine",))
    data = []
    for basis in bases:
        directions = basis.forward(torch.eye(m, dtype=torch.float64)).T
        spectra = torch.stack([(directions @ k @ directions.T).diagonal() for k in of_data])
        data.append(DataLaws(basis, mean, spectra.clamp_min(1e-9)))
    odds = Odds(BY_SURPRISE, BY_SURPRISE)
    case.pair = with_beliefs(
        case.pair, family=family, data=tuple(data), surrogate=odds, simulator=odds
    )
    return case, law, family


def of_family(case, law, rows, *, size=1.0, noise=1.0, seed=7):
    x = law.mean + size * law.sqrt(normal(rows, case.n, seed=seed))
    return x, x @ case.matrix.T + noise * NOISE * normal(rows, case.m, seed=seed + 1)


def test_rows_of_the_family_surprise_less_than_larger_ones_and_misfit_is_of_the_start():
    case, law, _ = knowing()
    plain, wide = (
        features(case.pair, of_family(case, law, 60, size=s)[1], forward=None) for s in (1.0, 5.0)
    )
    assert float(plain[0].median()) < 2 < 10 < float(wide[0].median())
    _, y = of_family(case, law, 60)
    r = (case.pair.f(case.pair.g(y)) - y) / NOISE
    wanted = (r.square().sum(1) - case.m) / (2 * case.m) ** 0.5
    # In deviations of chi-squared, at the noise that the data themselves have.
    torch.testing.assert_close(plain[1].median(), wanted.median(), rtol=0.3, atol=0.3)


def test_surprising_rows_are_answered_about_the_family_and_others_are_left_at_their_start():
    case, law, family = knowing()
    _, y = of_family(case, law, 40)
    _, theirs = of_family(case, law, 40, size=5.0, seed=17)
    found = dc.solve(case.pair, torch.cat([y, theirs]), noise_std=NOISE)
    assert float((found.iterations[:40] == 0).double().mean()) > 0.9
    moved = found.rule[40:] == BY_FAMILY
    assert float(moved.double().mean()) > 0.9
    # By a law that is larger than the family as it is.
    corrections, case.laws = case.laws, family
    values, means = case.scores(theirs, law.mean.expand(40, -1))
    case.laws = corrections
    best = means[values.argmin(0), torch.arange(40)]
    torch.testing.assert_close(found.x[40:][moved], best[moved], rtol=0, atol=1e-6)


@pytest.mark.parametrize("told", [True, False])
def test_louder_rows_are_told_apart_from_strange_ones(told):
    case, law, _ = knowing()
    settings = {"noise_std": NOISE} if told else {}
    _, loud = of_family(case, law, 40, noise=6.0)
    _, strange = of_family(case, law, 40, size=5.0)
    noisy, rough = (dc.solve(case.pair, rows, **settings) for rows in (loud, strange))
    assert float((noisy.reason == Reason.NOISIER).double().mean()) > 0.7
    assert not bool(noisy.converged.any())
    assert bool((noisy.iterations == 0).double().mean() > 0.8)
    assert not bool((rough.reason == Reason.NOISIER).any())


def test_a_row_of_right_noise_is_not_said_to_be_noisier():
    case, law, _ = knowing()
    _, y = of_family(case, law, 300)
    for settings in ({}, {"noise_std": NOISE}):
        found = dc.solve(case.pair, y, **settings)
        assert float((found.reason == Reason.NOISIER).double().mean()) < 0.03
        assert float((found.reason == Reason.DISCREPANCY).double().mean()) > 0.9


def test_a_missing_sensor_surprises_nobody():
    case, law, _ = knowing()
    _, y = of_family(case, law, 20)
    gappy = y.clone()
    gappy[:, ::4] = torch.nan
    said = torch.where(gappy.isnan(), 1e3, y)
    noise = torch.full_like(y, NOISE).masked_fill(gappy.isnan(), torch.inf)
    a = dc.solve(case.pair, gappy, noise_std=NOISE)
    b = dc.solve(case.pair, said, noise_std=noise)
    torch.testing.assert_close(a.x, b.x, rtol=0, atol=1e-8)
    assert a.reason.tolist() == b.reason.tolist()
    assert float((a.reason == Reason.NOISIER).double().mean()) < 0.1


def test_rows_together_equal_rows_alone_whatever_kind_they_are():
    case, law, _ = knowing()
    parts = [of_family(case, law, 2, **kind)[1] for kind in ({}, {"size": 5.0}, {"noise": 6.0})]
    y = torch.cat([*parts, 0.5 * parts[0]])
    odds = Odds.of([[0.0, -5.0, -3.5], [0.0, 0.0, 1.0], [0.0, 4.0, 0.0]], BY_SURPRISE.tolist())
    pair = with_beliefs(case.pair, surrogate=odds)
    together = dc.solve(pair, y, noise_std=NOISE)
    assert len(set(together.reason.tolist())) > 1
    assert len(set(together.rule.tolist())) > 1
    for row in range(len(y)):
        alone = dc.solve(pair, y[row : row + 1], noise_std=NOISE)
        torch.testing.assert_close(alone.x[0], together.x[row], rtol=0, atol=1e-9)
        torch.testing.assert_close(alone.std[0], together.std[row], rtol=1e-6, atol=0)
        assert int(alone.reason[0]) == int(together.reason[row])
        for kind in ("f", "g", "jvp", "vjp"):
            assert getattr(alone.cost, kind)[0] == getattr(together.cost, kind)[row], kind


@pytest.mark.parametrize("kind", [START, CORRECTION, FAMILY])
def test_odds_of_one_kind_are_followed_whatever_the_data_say(kind):
    case, law, _ = knowing(share=0.5)
    _, y = of_family(case, law, 12, size=2.0)
    found = dc.solve(with_beliefs(case.pair, surrogate=Odds.only(kind)), y, noise_std=NOISE)
    if kind == START:
        assert torch.equal(found.x, case.pair.g(y))
    else:
        wanted = BY_FAMILY if kind == FAMILY else 0
        assert set(found.rule.tolist()) == {wanted}
