"""Coordinates in which covariances are diagonal, against dense matrices."""

import pytest
import torch

from deceptron.core import bases
from deceptron.core.bases import (
    DiagonalGaussian,
    EigenBasis,
    GridBasis,
    as_kinds,
    leading,
)
from deceptron.core.identity import digest

KINDS = ("sine", "cosine", "fourier", "none")


def normal(*shape, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=rng)


def dense(basis, n):
    """The matrix whose rows are the waves: ``forward(v) = W v``."""
    return basis.forward(torch.eye(n, dtype=torch.float64)).T


@pytest.mark.parametrize("length", [8, 9, 15, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_waves_are_orthonormal_and_back_undoes_forward(kind, length):
    basis = GridBasis((length,), (kind,))
    waves = dense(basis, length)
    torch.testing.assert_close(
        waves @ waves.T, torch.eye(length, dtype=torch.float64), atol=1e-12, rtol=0
    )
    v = normal(5, length)
    torch.testing.assert_close(basis.back(basis.forward(v)), v, atol=1e-12, rtol=0)
    torch.testing.assert_close(basis.forward(v), v @ waves.T, atol=1e-12, rtol=0)


@pytest.mark.parametrize("length", [8, 9, 15, 16])
@pytest.mark.parametrize("kind", bases.WAVES)
def test_long_axes_have_the_same_waves(kind, length, monkeypatch):
    basis, v = GridBasis((3, length, 2), ("none", kind, "none")), normal(4, 6 * length)
    expected = basis.forward(v), basis.back(v)
    monkeypatch.setattr(bases, "LONG", 7)
    torch.testing.assert_close(basis.forward(v), expected[0], atol=1e-12, rtol=0)
    torch.testing.assert_close(basis.back(v), expected[1], atol=1e-12, rtol=0)


@pytest.mark.parametrize("length", [8, 9])
@pytest.mark.parametrize(
    ("kind", "curvature"),
    [
        ("sine", lambda k, n: 2 - 2 * torch.cos(torch.pi * k / (n + 1))),
        ("cosine", lambda k, n: 2 - 2 * torch.cos(torch.pi * k / n)),
        ("fourier", lambda k, n: 2 - 2 * torch.cos(torch.pi * k / n)),
    ],
)
def test_waves_are_those_of_the_second_difference_with_its_boundary(kind, curvature, length):
    """Which also says that ``wavenumbers`` belong to their waves."""
    second = 2 * torch.eye(length, dtype=torch.float64)
    second -= torch.diag(torch.ones(length - 1), 1) + torch.diag(torch.ones(length - 1), -1)
    if kind == "cosine":
        second[0, 0] = second[-1, -1] = 1.0
    if kind == "fourier":
        second[0, -1] = second[-1, 0] = -1.0
    basis = GridBasis((length,), (kind,))
    waves = dense(basis, length)
    expected = curvature(basis.wavenumbers, length).diag()
    torch.testing.assert_close(waves @ second @ waves.T, expected, atol=1e-12, rtol=0)


def test_axes_of_a_field_are_turned_each_in_its_own_waves():
    shape, kinds = (3, 8, 9), ("none", "sine", "fourier")
    basis = GridBasis(shape, kinds)
    v = normal(4, 3 * 8 * 9)
    waves = [
        dense(GridBasis((n,), (kind,)), n) for n, kind in zip(shape[1:], kinds[1:], strict=True)
    ]
    expected = torch.einsum("bcij,ki,lj->bckl", v.reshape(4, *shape), *waves).reshape(4, -1)
    torch.testing.assert_close(basis.forward(v), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(basis.back(expected), v, atol=1e-12, rtol=0)
    # Leading axes are any.
    several = v.reshape(2, 2, -1)
    torch.testing.assert_close(basis.forward(several), expected.reshape(2, 2, -1))
    along = [GridBasis((n,), (k,)).wavenumbers for n, k in zip(shape[1:], kinds[1:], strict=True)]
    length = torch.hypot(along[0][:, None], along[1]).expand(shape).flatten()
    torch.testing.assert_close(basis.wavenumbers, length)


@pytest.mark.parametrize("kept", [1, 4, 11, 12])
def test_principal_directions_are_completed_to_a_basis(kept):
    n = 12
    vectors = torch.linalg.qr(normal(n, n))[0][:, :kept].T
    basis = EigenBasis(vectors)
    matrix = dense(basis, n)
    torch.testing.assert_close(
        matrix @ matrix.T, torch.eye(n, dtype=torch.float64), atol=1e-12, rtol=0
    )
    torch.testing.assert_close(matrix[:kept], vectors, atol=1e-12, rtol=0)
    v = normal(3, n, seed=1)
    torch.testing.assert_close(basis.back(basis.forward(v)), v, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", ["grid", "eigen"])
def test_a_diagonal_gaussian_is_its_dense_covariance(kind):
    shape, n = (2, 9), 18
    if kind == "grid":
        basis = GridBasis(shape, ("none", "cosine"))
    else:
        basis = EigenBasis(torch.linalg.qr(normal(n, n))[0][:, :5].T)
    spectrum = torch.logspace(1, -3, n, dtype=torch.float64)
    prior = DiagonalGaussian(normal(*shape, seed=1), basis, spectrum)
    waves = dense(basis, n)
    covariance = waves.T @ spectrum.diag() @ waves
    v = normal(4, *shape, seed=2)
    flat = v.reshape(4, n)
    torch.testing.assert_close(prior.apply(v).reshape(4, n), flat @ covariance)
    expected = torch.linalg.solve(covariance, flat.T).T
    torch.testing.assert_close(prior.solve(v).reshape(4, n), expected, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(prior.sqrt(prior.sqrt(v)), prior.apply(v))
    torch.testing.assert_close(prior.variance.flatten(), covariance.diagonal())
    assert prior.apply(v.float()).dtype == torch.float32


def test_the_diagonal_of_a_covariance_needs_no_dense_matrix():
    basis = GridBasis((30, 20), ("sine", "fourier"))
    spectra = torch.rand(2, 600, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    waves = dense(basis, 600)
    expected = torch.stack([(waves.T @ s.diag() @ waves).diagonal() for s in spectra])
    torch.testing.assert_close(basis.diagonal(spectra), expected)


@pytest.mark.parametrize("length", [16, 21])
@pytest.mark.parametrize("kind", ["sine", "cosine", "fourier"])
def test_the_boundary_of_a_family_is_found(kind, length):
    """Smooth draws that are zero at the ends, flat there, or periodic."""
    true = GridBasis((length,), (kind,))
    spectrum = (1 + (true.wavenumbers / 3).square()) ** -2
    rows = true.back(normal(400, length) * spectrum.sqrt())
    assert GridBasis.fit(rows + 5.0).kinds == (kind,)
    field = torch.stack([rows, 2 * rows], 1)  # two channels are no grid
    assert GridBasis.fit(field).kinds == ("none", kind)


def test_a_short_vector_is_no_grid():
    assert GridBasis.fit(normal(50, 7)) is None
    assert GridBasis.fit(normal(50, 3, 5)) is None


def test_kinds_from_a_file_are_checked():
    assert as_kinds(["sine", "none"]) == ("sine", "none")
    with pytest.raises(ValueError, match="kinds of waves must be among"):
        as_kinds(["sine", "square"])


def test_leading_directions_are_those_of_the_dense_covariance():
    spectrum = torch.logspace(0, -20, 300, dtype=torch.float64)
    rows = normal(200, 300) * spectrum.sqrt()
    values, vectors = torch.linalg.eigh(rows.T @ rows)
    found, directions = leading(rows, 12)
    torch.testing.assert_close(found, values.flip(0)[:12], rtol=1e-3, atol=0)
    overlap = (directions.T @ vectors.flip(1)[:, :12]).abs().diagonal()
    torch.testing.assert_close(overlap, torch.ones_like(overlap), rtol=1e-2, atol=0)
    again = leading(rows, 12)[1]
    assert torch.equal(again, directions)


def test_a_basis_that_was_used_is_still_the_same():
    basis = EigenBasis(torch.linalg.qr(normal(6, 6)).Q[:3])
    before = digest(basis)
    basis.forward(normal(2, 6))
    assert digest(basis) == before


@pytest.mark.parametrize("kind", ["waves", "eigen"])
def test_a_basis_that_was_first_used_in_inference_mode_can_be_differentiated(kind):
    # Of a length that no other test uses: waves are kept for the process.
    n = 23
    basis = GridBasis((n,), ("cosine",)) if kind == "waves" else EigenBasis(torch.eye(n)[:5])
    with torch.inference_mode():
        basis.forward(normal(2, n))
    x = normal(3, n).requires_grad_()
    basis.back(basis.forward(x)).square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
