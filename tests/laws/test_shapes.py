"""Which covariances the laws have, against dense ones, and what they make of bounds."""

import pytest
import torch

from deceptron.core.bases import DiagonalGaussian, EigenBasis, GridBasis
from deceptron.laws.law import Laws, Shape
from deceptron.laws.shapes import (
    FAMILY_POWERS,
    FAMILY_SIZES,
    FIRST_SHAPES,
    FIRST_SIZE,
    LARGEST_VECTOR,
    corrections_of,
    roughened,
)
from tests.laws.dense import N, covariance, family_rows, gaussian_of, normal


def test_shapes_are_powers_of_the_covariance_and_smooth_fields_of_variance_one():
    family = family_rows()
    laws = corrections_of(family)
    names = [shape.name for shape in laws.shapes]
    assert names[:5] == ["C^1", "C^0.75", "C^0.5", "C^0.35", "C^0.25"]
    assert names[5:] == [f"smooth {b}, {a}" for b in (4, 8, 16, 32) for a in (2, 4)]
    for shape in laws.shapes:
        dense = covariance(shape)
        torch.testing.assert_close(dense, dense.T)
        assert float(dense.diagonal().mean()) == pytest.approx(1.0)
        assert float(torch.linalg.eigvalsh(dense).min()) > 0
        root = shape.root(torch.eye(N, dtype=torch.float64))
        torch.testing.assert_close(root.T @ root, dense)
    cov = torch.cov(family.T)
    torch.testing.assert_close(
        covariance(laws.shapes[0]), cov / cov.diagonal().mean(), atol=1e-9, rtol=1e-6
    )
    half = covariance(laws.shapes[2])
    torch.testing.assert_close(half @ half / (half @ half).trace() * N, cov / cov.trace() * N)
    assert laws.scale == pytest.approx(float(cov.diagonal().mean()) ** 0.5)
    assert laws.mean is None  # each row has its own
    assert (names[laws.first[0]], laws.first[1]) == (FIRST_SHAPES[0], FIRST_SIZE)


def test_the_family_roughened_is_the_family_and_powers_of_it_about_its_mean():
    family = gaussian_of(family_rows(), corrections_of(family_rows()).shapes[0])
    laws = roughened(family)
    assert len(laws.shapes) == len(FAMILY_POWERS)
    assert laws.sizes == FAMILY_SIZES
    torch.testing.assert_close(laws.mean, family.mean)
    eye = torch.eye(N, dtype=torch.float64)
    # As it is: the first shape in the first size.
    plain = laws.strengths(eye)[0] * covariance(laws.shapes[0])
    torch.testing.assert_close(plain, family.apply(eye), rtol=1e-9, atol=1e-9)
    for power, shape in zip(FAMILY_POWERS, laws.shapes, strict=True):
        values = torch.linalg.eigvalsh(family.apply(eye)) ** power
        torch.testing.assert_close(
            torch.linalg.eigvalsh(covariance(shape)), values / values.mean(), rtol=1e-6, atol=1e-9
        )


def test_channels_of_a_field_have_corrections_in_their_own_units():
    family = normal(300, 3, 16).cumsum(2)
    units = torch.tensor([1e2, 1.0, 1e-2], dtype=torch.float64)[:, None]
    plain, mixed = (corrections_of(rows) for rows in (family, units * family))
    for a, b in zip(plain.spread, mixed.spread, strict=True):
        torch.testing.assert_close(a.reshape(3, 16) * units, b.reshape(3, 16))
    torch.testing.assert_close(plain.units.reshape(3, 16) * units, mixed.units.reshape(3, 16))
    still = family * torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)[:, None]
    assert bool((corrections_of(still).spread > 0).all())
    torch.testing.assert_close(
        corrections_of(family[:, :1]).units,
        torch.full((16,), plain.scale).double(),
        rtol=0.2,
        atol=0,
    )


def test_a_field_has_smooth_shapes_only_a_short_vector_powers_only_and_a_long_one_neither():
    field = corrections_of(normal(50, 1, 9))
    assert {shape.name.split()[0] for shape in field.shapes} == {"smooth"}
    short = corrections_of(normal(50, 4))
    assert {type(shape.basis) for shape in short.shapes} == {EigenBasis}
    long = normal(3, 7, 7, 7, 4)  # no axis is long enough for waves
    assert long[0].numel() > LARGEST_VECTOR
    assert corrections_of(long) is None


def test_strengths_are_the_squares_of_the_sizes_in_the_scale_of_the_family():
    laws = corrections_of(family_rows())
    t = laws.strengths(laws.units)
    assert t.shape == (len(laws.sizes),)
    assert float(t[laws.sizes.index(0.3)]) == pytest.approx((0.3 * laws.scale) ** 2)


def test_distance_is_that_of_the_dense_law_of_each_row():
    laws = corrections_of(family_rows())
    off = normal(4, N, seed=3)
    shape, size = torch.tensor([0, 6, 6, 12]), torch.tensor([3, 20, 5, 28])
    t = laws.strengths(off)[size]
    wanted = [
        off[k] @ torch.linalg.solve(t[k] * covariance(laws.shapes[int(shape[k])]), off[k])
        for k in range(4)
    ]
    torch.testing.assert_close(
        laws.distance(off, shape, size), torch.stack(wanted), rtol=1e-6, atol=0
    )


def components(spectrum: torch.Tensor) -> Laws:
    """Of independent components with these variances, and a size of one and of three."""
    basis = EigenBasis(torch.eye(len(spectrum), dtype=torch.float64))
    units = torch.full_like(spectrum, 2.0)
    return Laws((Shape.of("own", basis, spectrum),), (1.0, 3.0), 1, 2.0, units)


def log_normal_mass(laws: Laws, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """``log prod (Phi(high / s) - Phi(low / s))`` for each size and row."""
    law = torch.distributions.Normal(0.0, 1.0)
    std = 2.0 * laws.shapes[0].spectrum.sqrt()
    return torch.stack(
        [(law.cdf(high / (s * std)) - law.cdf(low / (s * std))).log().sum(1) for s in laws.sizes]
    )


@pytest.mark.parametrize("spectrum", ["alike", "unlike"])
def test_the_mass_of_independent_components_in_a_box_is_the_product_of_theirs(spectrum):
    variances = torch.ones(5) if spectrum == "alike" else torch.tensor([4.0, 2.0, 1.0, 0.5, 0.1])
    laws = components(variances.double())
    low, high = -normal(3, 5).abs() - 0.1, normal(3, 5, seed=1).abs() + 0.1
    high[1, 2], low[2, 4] = torch.inf, -torch.inf
    found = laws.log_mass(low, high)
    torch.testing.assert_close(found[0], log_normal_mass(laws, low, high))


def test_without_bounds_all_mass_is_inside_and_a_larger_law_has_less_of_it_in_a_box():
    laws = corrections_of(family_rows())
    far = torch.full((2, N), torch.inf, dtype=torch.float64)
    torch.testing.assert_close(
        laws.log_mass(-far, far), torch.zeros(len(laws.shapes), len(laws.sizes), 2).double()
    )
    near = torch.full((2, N), laws.scale, dtype=torch.float64)
    mass = laws.log_mass(-near, near)
    assert bool((mass.diff(dim=1) <= 0).all())
    assert float(mass[:, -1].max()) < -1.0


def test_components_that_go_together_count_as_fewer():
    """Ten that are all but one: the mass of one, not its tenth power."""
    ones = torch.ones(1, N, dtype=torch.float64) / N**0.5
    spectrum = torch.full((N,), 1e-9, dtype=torch.float64)
    spectrum[0] = 1.0
    laws = Laws(
        (Shape.of("one", EigenBasis(ones), spectrum),), (1.0,), 1, 1.0, torch.ones(N).double()
    )
    box = torch.full((1, N), 0.7, dtype=torch.float64)
    one = torch.distributions.Normal(0.0, 1.0)
    wanted = float((one.cdf(box[0, 0]) - one.cdf(-box[0, 0])).log())
    assert float(laws.log_mass(-box, box)) == pytest.approx(wanted, rel=1e-3)


def test_a_gaussian_on_waves_is_roughened_in_its_waves():
    grid = GridBasis((16,), ("sine",))
    spectrum = 1 / (1 + grid.wavenumbers.square())
    laws = roughened(DiagonalGaussian(torch.zeros(16).double(), grid, spectrum))
    assert {type(shape.basis) for shape in laws.shapes} == {GridBasis}
    assert all(
        bool(b.spectrum[-1] / b.spectrum[0] > a.spectrum[-1] / a.spectrum[0])
        for a, b in zip(laws.shapes, laws.shapes[1:], strict=False)
    )
