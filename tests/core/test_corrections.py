"""Tables of corrections against dense algebra, and their way through a file."""

from dataclasses import replace

import pytest
import torch
from deceptron.core.corrections import (
    DETERMINANT_NODES,
    FINENESS,
    SIZES,
    VARIANCE_NODES,
    Corrections,
    Regression,
    tabulated,
)
from torch import nn

import deceptron as dc
from deceptron.core.bases import DiagonalGaussian
from deceptron.laws.calibration import Calibration, TrustLimits, from_tensors, to_tensors

N, M = 10, 14


def normal(*shape, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=rng)


def made(seed=0, *, points=2, kept=6):
    family = normal(200, N, seed=seed).cumsum(1)
    corrections = Corrections.of(family, largest=64, kept=kept)
    jacobians = [30 * normal(M, N, seed=seed + k + 1) for k in range(points)]
    determinants, variances = tabulated(corrections, jacobians)
    tabled = replace(corrections, log_determinants=determinants, log_variances=variances)
    return tabled, jacobians, family


def covariance(member):
    eye = torch.eye(N, dtype=torch.float64)
    return member.basis.back(member.basis.forward(eye) * member.spectrum)


def test_members_are_powers_of_the_covariance_and_smooth_fields_of_variance_one():
    corrections, _, family = made(kept=N)
    names = [member.name for member in corrections.members]
    assert names[:5] == ["C^1", "C^0.75", "C^0.5", "C^0.35", "C^0.25"]
    assert names[5:] == [f"smooth {b}, {a}" for b in (4, 8, 16, 32) for a in (2, 4)]
    for member in corrections.members:
        dense = covariance(member)
        torch.testing.assert_close(dense, dense.T)
        assert float(dense.diagonal().mean()) == pytest.approx(1.0)
        assert float(torch.linalg.eigvalsh(dense).min()) > 0
        root = member.root(torch.eye(N, dtype=torch.float64))
        torch.testing.assert_close(root.T @ root, dense)
    cov = torch.cov(family.T)
    torch.testing.assert_close(
        covariance(corrections.members[0]), cov / cov.diagonal().mean(), atol=1e-9, rtol=1e-6
    )
    half = covariance(corrections.members[2])
    torch.testing.assert_close(half @ half / (half @ half).trace() * N, cov / cov.trace() * N)
    assert corrections.scale == pytest.approx(float(cov.diagonal().mean()) ** 0.5)


@pytest.mark.parametrize("place", [0, 25, 40, 68])
def test_log_determinants_are_those_of_dense_matrices(place):
    corrections, jacobians, _ = made()
    t = torch.tensor([[10.0 ** DETERMINANT_NODES[place]]], dtype=torch.float64)
    found = corrections.log_determinant(t)[:, 0, 0]
    for member, value in zip(corrections.members, found, strict=True):
        inner = [
            torch.linalg.slogdet(
                torch.eye(M, dtype=torch.float64) + t[0, 0] * j @ covariance(member) @ j.T
            ).logabsdet
            for j in jacobians
        ]
        assert float(value) == pytest.approx(float(torch.stack(inner).mean()), rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("place", [6, 9, 12, 16])
def test_standard_deviations_are_those_of_the_dense_posterior(place):
    """At a node of the table, for two rows that took different members."""
    corrections, jacobians, _ = made(points=1)
    member = torch.tensor([1, 7])
    size = torch.tensor([0.3, 0.01], dtype=torch.float64)
    prior = (corrections.scale * size).square()
    precision = 10.0 ** VARIANCE_NODES[place] / prior
    before, after = corrections.std(member, size, precision)
    for row in range(2):
        k = prior[row] * covariance(corrections.members[int(member[row])])
        j = precision[row].sqrt() * jacobians[0]
        wanted = torch.linalg.inv(torch.linalg.inv(k) + j.T @ j).diagonal().sqrt()
        torch.testing.assert_close(after[row], wanted, rtol=1e-4, atol=0)
        torch.testing.assert_close(before[row], k.diagonal().sqrt(), rtol=1e-4, atol=0)
        # Without tables too, for rows that are solved densely.
        spread = size[row] * corrections.spread[member[row]]
        torch.testing.assert_close(spread, k.diagonal().sqrt(), rtol=1e-6, atol=0)


def test_between_the_nodes_tables_are_linear_in_the_logarithm_and_end_at_their_ends():
    corrections, _, _ = made()
    table = corrections.log_determinants
    left, right = (torch.tensor([[10.0 ** DETERMINANT_NODES[k]]]).double() for k in (40, 41))
    between = corrections.log_determinant((left**0.75) * (right**0.25))[:, 0, 0]
    torch.testing.assert_close(between, 0.75 * table[:, 40] + 0.25 * table[:, 41])
    ends = corrections.log_determinant(torch.tensor([[0.0, 1e-30, 1e30]], dtype=torch.float64))
    torch.testing.assert_close(ends[:, 0, 0], table[:, 0])
    torch.testing.assert_close(ends[:, 0, 1], table[:, 0])
    torch.testing.assert_close(ends[:, 0, 2], table[:, -1])


def test_strengths_are_the_squares_of_the_sizes():
    corrections, _, _ = made()
    t = corrections.strengths(torch.tensor([1.0, 4.0], dtype=torch.float64))
    assert t.shape == (len(SIZES), 2)
    torch.testing.assert_close(t[:, 1], 4 * t[:, 0])
    assert float(t[5 * FINENESS, 0]) == pytest.approx((0.3 * corrections.scale) ** 2)


def test_channels_of_a_field_have_corrections_in_their_own_units():
    family = normal(300, 3, 16).cumsum(2)
    units = torch.tensor([1e2, 1.0, 1e-2], dtype=torch.float64)[:, None]
    plain, mixed = (Corrections.of(rows, largest=64, kept=6) for rows in (family, units * family))
    for a, b in zip(plain.spread, mixed.spread, strict=True):
        torch.testing.assert_close(a.reshape(3, 16) * units, b.reshape(3, 16))
    kept = from_tensors(*to_tensors(Calibration(corrections=mixed))).corrections
    torch.testing.assert_close(kept.spread, mixed.spread)
    still = family * torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)[:, None]
    assert (Corrections.of(still, largest=64, kept=6).spread > 0).all()
    assert Corrections.of(family[:, :1], largest=64, kept=6).channels is None


def test_a_field_has_smooth_members_only_and_a_short_vector_powers_only():
    field = Corrections.of(normal(50, 1, 9), largest=64, kept=6)
    assert {member.name.split()[0] for member in field.members} == {"smooth"}
    short = Corrections.of(normal(50, 4), largest=64, kept=6)
    assert short.members[0].name == "C^1"
    assert short.grid is None
    assert Corrections.of(normal(50, 4), largest=3, kept=6).members == ()


def calibrated():
    corrections, _, family = made()
    regression = Regression(
        member=3,
        size=0.3,
        mean=family.mean(0),
        own=normal(N, seed=5),
        start=normal(N, seed=6),
        std=normal(N, seed=7).abs(),
        factor=1.3,
    )
    corrections = replace(corrections, factor=1.1, regression=regression, chance=(3.9, -4.5))
    spectrum = corrections.eigen.forward(family - family.mean(0)).square().mean(0)
    return Calibration(
        noise_std=torch.linspace(0.1, 0.3, M, dtype=torch.float64),
        surrogate_error=0.02,
        start="wiener",
        family=DiagonalGaussian(family.mean(0), corrections.eigen, spectrum),
        interval_factor=1.2,
        prior_share=0.3,
        linear_factor=0.9,
        linear_share=0.01,
        trust=TrustLimits({"round_trip": (-2.0, 0.25)}, 1.5),
        corrections=corrections,
        rows=77,
    )


def through_a_file(calibration, path):
    pair = dc.Deceptron(nn.Linear(N, M), nn.Linear(M, N), calibration=calibration)
    loaded = dc.load(dc.save(pair, path), forward=nn.Linear(N, M), reverse=nn.Linear(M, N))
    return loaded.calibration


def test_a_calibration_survives_a_file(tmp_path):
    known = calibrated()
    kept = through_a_file(known, tmp_path / "pair")
    for name in ("surrogate_error", "start", "trust", "rows"):
        assert getattr(kept, name) == getattr(known, name), name
    for name in ("interval_factor", "prior_share", "linear_factor", "linear_share"):
        assert getattr(kept, name) == getattr(known, name), name
    assert torch.equal(kept.noise_std, known.noise_std)
    torch.testing.assert_close(kept.family.mean, known.family.mean)
    torch.testing.assert_close(kept.family.variance, known.family.variance, rtol=1e-5, atol=0)
    before, after = known.corrections, kept.corrections
    for name in ("scale", "factor", "chance"):
        assert getattr(after, name) == getattr(before, name), name
    for a, b in zip(after.members, before.members, strict=True):
        assert a.name == b.name
        torch.testing.assert_close(covariance(a), covariance(b), rtol=1e-5, atol=1e-6)
    assert torch.equal(after.log_determinants, before.log_determinants)
    # Tabled to half precision of a logarithm: a percent or so of the variance.
    rows = torch.tensor([0, 4, 9])
    size = torch.full((3,), 0.1, dtype=torch.float64)
    precision = torch.tensor([1e-3, 1.0, 1e3], dtype=torch.float64)
    for a, b in zip(
        after.std(rows, size, precision), before.std(rows, size, precision), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=0.01, atol=0)
    for name in ("mean", "own", "start", "std"):
        torch.testing.assert_close(
            getattr(after.regression, name), getattr(before.regression, name), rtol=1e-6, atol=1e-6
        )
    assert (after.regression.member, after.regression.size, after.regression.factor) == (
        3,
        0.3,
        1.3,
    )


@pytest.mark.parametrize("kind", ["grid", "eigen"])
def test_a_family_without_corrections_survives_a_file(tmp_path, kind):
    known = calibrated()
    basis = getattr(known.corrections, kind)
    family = DiagonalGaussian(known.family.mean, basis, known.family.spectrum)
    kept = through_a_file(replace(known, corrections=None, family=family), tmp_path / "pair")
    assert kept.corrections is None
    v = normal(3, N, seed=9)
    torch.testing.assert_close(kept.family.apply(v), family.apply(v), rtol=1e-4, atol=1e-5)


def test_a_pair_that_knows_nothing_stays_so(tmp_path):
    kept = through_a_file(None, tmp_path / "pair")
    assert kept.noise_std is kept.family is kept.trust is kept.corrections is None
    assert kept.start == "reverse"
