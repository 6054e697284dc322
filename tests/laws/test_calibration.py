"""All that a pair knows, through a file and back; what is no calibration is refused."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.core.bases import DiagonalGaussian, GridBasis, principal
from deceptron.laws.calibration import Calibration, TrustLimits, from_tensors, to_tensors
from deceptron.laws.data import DataLaws
from deceptron.laws.odds import START, Odds
from deceptron.laws.shapes import corrections_of, roughened
from deceptron.laws.start import StartLaw
from deceptron.laws.tables import Formed, tabled
from tests.laws.dense import (
    M,
    N,
    believed,
    corrections,
    covariance,
    family_rows,
    gaussian_of,
    normal,
)


def calibrated() -> Calibration:
    """With everything that there is."""
    laws, (jacobian,) = corrections()
    family = gaussian_of(family_rows(), laws.shapes[0])
    about_mean = roughened(family)
    about_mean = tabled(about_mean, [Formed(about_mean.scale * jacobian)])
    start = StartLaw(
        shape=3,
        size=8,
        mean=family.mean,
        own=normal(N, seed=5),
        first=normal(N, seed=6),
        std=normal(N, seed=7).abs(),
        factor=1.3,
    )
    grid = GridBasis((M,), ("cosine",))
    eigen, spectrum = principal(normal(60, M, seed=9), M)
    shapes = len(about_mean.shapes)
    powers = torch.linspace(1.0, 0.25, shapes, dtype=torch.float64)[:, None]
    beliefs = believed(
        replace(laws, factor=1.1),
        family=replace(about_mean, factor=0.8),
        data=(
            DataLaws(eigen, normal(M, seed=2), spectrum**powers),
            DataLaws(grid, normal(M, seed=3), (1 + grid.wavenumbers) ** -powers),
        ),
        start=start,
        surrogate=Odds(normal(3, 3, seed=8), normal(3, 3, seed=10)),
        simulator=Odds.only(START),
    )
    return Calibration(
        noise_std=torch.linspace(0.1, 0.3, M, dtype=torch.float64),
        surrogate_error=0.02,
        start="wiener",
        family=family,
        observations=DiagonalGaussian(normal(M, seed=4), eigen, spectrum),
        interval_factor=1.2,
        prior_share=0.3,
        linear_factor=0.9,
        linear_share=0.01,
        trust=TrustLimits({"round_trip": (-2.0, 0.25)}, 1.5),
        beliefs=beliefs,
        rows=77,
    )


def through_a_file(calibration, path):
    pair = dc.Deceptron(nn.Linear(N, M), nn.Linear(M, N), calibration=calibration)
    loaded = dc.load(dc.save(pair, path), forward=nn.Linear(N, M), reverse=nn.Linear(M, N))
    return loaded.calibration


def through_json(calibration, path):
    document, tensors = to_tensors(calibration)
    return from_tensors(json.loads(json.dumps(document)), tensors)


WAYS = pytest.mark.parametrize("way", [through_a_file, through_json])


@WAYS
def test_all_that_is_said_of_bars_and_trust_survives(tmp_path, way):
    known = calibrated()
    kept = way(known, tmp_path / "pair")
    for name in ("surrogate_error", "start", "trust", "rows"):
        assert getattr(kept, name) == getattr(known, name), name
    for name in ("interval_factor", "prior_share", "linear_factor", "linear_share"):
        assert getattr(kept, name) == getattr(known, name), name
    assert torch.equal(kept.noise_std, known.noise_std)
    for name in ("family", "observations"):
        a, b = getattr(kept, name), getattr(known, name)
        torch.testing.assert_close(a.mean, b.mean)
        torch.testing.assert_close(a.variance, b.variance, rtol=1e-5, atol=1e-9)


@WAYS
@pytest.mark.parametrize("which", ["corrections", "family"])
def test_laws_survive_with_their_tables(tmp_path, way, which):
    known = calibrated()
    before = getattr(known.beliefs, which)
    after = getattr(way(known, tmp_path / "pair").beliefs, which)
    for name in ("sizes", "stride", "scale", "first", "factor"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.tables.unit == before.tables.unit
    torch.testing.assert_close(after.units, before.units, rtol=1e-6, atol=0)
    assert (after.mean is None) == (before.mean is None)
    if before.mean is not None:
        torch.testing.assert_close(after.mean, before.mean)
    for a, b in zip(after.shapes, before.shapes, strict=True):
        assert a.name == b.name
        torch.testing.assert_close(covariance(a), covariance(b), rtol=1e-5, atol=1e-6)
    assert torch.equal(after.tables.log_determinants, before.tables.log_determinants)
    # Tabled to half precision of a logarithm: a percent or so of the variance.
    shape, size = torch.tensor([0, 4, 6]), torch.tensor([0, 3, 5])
    precision = torch.tensor([1e-3, 1.0, 1e3], dtype=torch.float64)
    for a, b in zip(
        after.std(shape, size, precision), before.std(shape, size, precision), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=0.01, atol=0)


@WAYS
def test_the_law_of_the_start_the_odds_and_the_laws_of_data_survive(tmp_path, way):
    known = calibrated()
    after, before = way(known, tmp_path / "pair").beliefs, known.beliefs
    for name in ("mean", "own", "first", "std"):
        torch.testing.assert_close(
            getattr(after.start, name), getattr(before.start, name), rtol=1e-6, atol=1e-6
        )
    assert (after.start.shape, after.start.size, after.start.factor) == (3, 8, 1.3)
    for name in ("surrogate", "simulator"):
        a, b = getattr(after, name), getattr(before, name)
        assert torch.equal(a.answer, b.answer)
        assert torch.equal(a.open, b.open)
    assert after.simulator.keeps_starts
    assert len(after.data) == 2
    rows = normal(4, M, seed=1)
    for a, b in zip(after.data, before.data, strict=True):
        torch.testing.assert_close(a.mean, b.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(a.spectra, b.spectra, rtol=1e-6, atol=0)
        torch.testing.assert_close(a.basis.forward(rows), b.basis.forward(rows), atol=1e-5, rtol=0)


@WAYS
@pytest.mark.parametrize("lacks", [{"family": None, "data": ()}, {"start": None}, {"data": ()}])
def test_beliefs_without_some_of_it_survive(tmp_path, way, lacks):
    known = calibrated()
    known = replace(known, beliefs=replace(known.beliefs, **lacks))
    kept = way(known, tmp_path / "pair").beliefs
    for name, value in lacks.items():
        assert getattr(kept, name) == value
    assert len(kept.corrections.shapes) == len(known.beliefs.corrections.shapes)


def test_laws_without_tables_stay_without(tmp_path):
    known = calibrated()
    plain = replace(known.beliefs.corrections, tables=None)
    known = replace(known, beliefs=replace(known.beliefs, corrections=plain))
    assert through_a_file(known, tmp_path / "pair").beliefs.corrections.tables is None


def test_channels_keep_their_own_units():
    units = torch.tensor([1e2, 1.0, 1e-2], dtype=torch.float64)[:, None]
    laws = corrections_of(units * normal(300, 3, 16).cumsum(2))
    kept = through_json(Calibration(beliefs=believed(laws)), None).beliefs.corrections
    torch.testing.assert_close(kept.spread, laws.spread)


@pytest.mark.parametrize("kind", ["grid", "eigen"])
def test_a_family_without_beliefs_survives_a_file(tmp_path, kind):
    known = calibrated()
    basis = known.family.basis if kind == "eigen" else GridBasis((N,), ("sine",))
    family = DiagonalGaussian(known.family.mean, basis, known.family.spectrum)
    kept = through_a_file(replace(known, beliefs=None, family=family), tmp_path / "pair")
    assert kept.beliefs is None
    v = normal(3, N, seed=9)
    torch.testing.assert_close(kept.family.apply(v), family.apply(v), rtol=1e-4, atol=1e-5)


def test_a_pair_that_knows_nothing_stays_so(tmp_path):
    kept = through_a_file(None, tmp_path / "pair")
    assert kept.noise_std is kept.family is kept.trust is kept.beliefs is None
    assert kept.start == "reverse"
    assert kept.rows == 0


def test_of_an_older_calibration_the_laws_are_left_out_and_the_verdict_says_what_to_do():
    document, tensors = to_tensors(calibrated())
    document["version"] = 1
    kept = from_tensors(document, tensors)
    assert kept.beliefs is kept.family is kept.observations is None
    assert kept.interval_factor is None
    # What no law is needed for is as good as it was.
    assert torch.equal(kept.noise_std, calibrated().noise_std)
    assert kept.trust == calibrated().trust
    assert kept.start == "wiener"


def laws(document):
    return document["beliefs"]["corrections"]


@pytest.mark.parametrize(
    "change",
    [
        lambda d, t: d.update(start="nowhere"),
        lambda d, t: d.update(surrogate_error=-1.0),
        lambda d, t: d.update(prior_share="much"),
        lambda d, t: d.update(trust={"parts": {}}),
        lambda d, t: d.update(family="grid"),
        lambda d, t: d["family"].update(basis=99),
        lambda d, t: d["bases"].clear(),
        lambda d, t: d["bases"][-1].update(shape=[M], waves=["square"]),
        lambda d, t: d["beliefs"].pop("corrections"),
        lambda d, t: d["beliefs"].pop("simulator"),
        lambda d, t: d["beliefs"]["surrogate"].pop("open"),
        lambda d, t: d["beliefs"]["surrogate"].update(answer=[[0.0] * 3] * 2),
        lambda d, t: d["beliefs"]["simulator"].update(open=[[float("nan")] * 3] * 3),
        lambda d, t: d["beliefs"]["start"].update(shape=99),
        lambda d, t: d["beliefs"]["start"].update(size=-1),
        lambda d, t: d["beliefs"]["start"].update(factor=float("nan")),
        lambda d, t: laws(d).update(scale=float("nan")),
        lambda d, t: laws(d).update(scale=-1.0),
        lambda d, t: laws(d).update(factor="wide"),
        lambda d, t: laws(d).update(first=[99, 0.3]),
        lambda d, t: laws(d).update(sizes=[-1.0]),
        lambda d, t: laws(d)["shapes"].pop(),
        lambda d, t: laws(d)["shapes"].__setitem__(0, ["C", 99]),
        lambda d, t: laws(d).update(unit=float("inf")),
        lambda d, t: t.pop("corrections.spectra"),
        lambda d, t: t.pop("corrections.units"),
        lambda d, t: t.pop("corrections.log_determinants"),
        lambda d, t: t.pop("start.own"),
        lambda d, t: t.update({"corrections.spectra": -t["corrections.spectra"]}),
        lambda d, t: t.update(
            {"corrections.log_variances": t["corrections.log_variances"][:, :-1]}
        ),
        lambda d, t: t.update({"roughened.log_determinants": t["roughened.log_determinants"][:-1]}),
        lambda d, t: t.update({"data.0.spectra": 0 * t["data.0.spectra"]}),
        lambda d, t: t.update({"data.1.spectra": t["data.1.spectra"][:-1]}),
        lambda d, t: t.pop("data.0.mean"),
    ],
)
def test_what_is_no_calibration_is_refused(change):
    document, tensors = to_tensors(calibrated())
    document = json.loads(json.dumps(document))
    change(document, tensors)
    with pytest.raises((KeyError, TypeError, ValueError)):
        from_tensors(document, tensors)


def test_what_was_not_changed_is_not_refused():
    """Else the test above would pass whatever is changed."""
    document, tensors = to_tensors(calibrated())
    assert from_tensors(json.loads(json.dumps(document)), tensors).beliefs is not None


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (Calibration(surrogate_error=0.01, beliefs=None), "does as well without forward="),
        (Calibration(surrogate_error=0.05), "for better answers"),
        (Calibration(surrogate_error=0.2), "too much to check answers with it"),
        (Calibration(rows=10), "it has no corrections"),
    ],
)
def test_the_verdict_is_about_the_surrogate_and_what_it_lacks(known, words):
    assert words in known.verdict(0.1)
    assert "is not known" in known.verdict(None)


def test_the_verdict_of_a_pair_whose_starts_are_left_alone_says_why():
    only = believed(corrections()[0], simulator=Odds.only(START))
    assert "several x may give the same y" in Calibration(beliefs=only).verdict(0.1)
    assert "several x" not in Calibration(beliefs=believed(corrections()[0])).verdict(0.1)
