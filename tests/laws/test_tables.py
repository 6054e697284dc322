"""Log-determinants and variances of laws, tabled and sketched, against dense algebra."""

import pytest
import torch

import deceptron as dc
from deceptron.core.bases import GridBasis
from deceptron.core.differentiate import jvp
from deceptron.laws import tables
from deceptron.laws.law import DETERMINANT_NODES, VARIANCE_NODES, Laws
from deceptron.laws.shapes import SIZE_MARKS, corrections_of, smooth
from tests.laws.dense import corrections, covariance, log_determinant, normal

# Beyond it no calibrated pair has been seen to go.
LARGEST_SIZE = 0.3


@pytest.mark.parametrize("place", [0, 25, 40, 68])
def test_log_determinants_are_those_of_dense_matrices(place):
    laws, jacobians = corrections(points=2)
    t = torch.tensor([[10.0 ** DETERMINANT_NODES[place]]], dtype=torch.float64) * laws.scale**2
    found = laws.log_determinant(t)[:, 0, 0]
    for shape, value in zip(laws.shapes, found, strict=True):
        inner = torch.stack([log_determinant(shape, t[0, 0], j) for j in jacobians])
        assert float(value) == pytest.approx(float(inner.mean()), rel=1e-8, abs=1e-10)


def test_between_the_nodes_a_table_is_a_chord_of_the_determinant_and_ends_at_its_ends():
    """Each eigenvalue gives a function of log t that bends upwards by a quarter at most: over a
    step h of it the chord is above by no more than h^2 / 32.
    """
    laws, (jacobian,) = corrections()
    t = laws.strengths(jacobian)[:, None]
    found = laws.log_determinant(t)[:, :, 0]
    exact = torch.stack(
        [
            torch.stack([log_determinant(s, float(v), jacobian) for v in t[:, 0]])
            for s in laws.shapes
        ]
    )
    above = found - exact
    step = (DETERMINANT_NODES[1] - DETERMINANT_NODES[0]) * torch.tensor(10.0).log()
    assert float(above.min()) > -1e-8
    assert 0.01 < float(above.max()) < float(step**2) / 32 * min(jacobian.shape)
    assert laws.tables is not None
    table = laws.tables.log_determinants
    ends = torch.tensor([[0.0, 1e-30, 1e30]], dtype=torch.float64)
    beyond = laws.log_determinant(ends)[:, 0]
    assert torch.equal(beyond, table[:, [0, 0, -1]])


@pytest.mark.parametrize("place", [6, 9, 12, 16])
def test_standard_deviations_are_those_of_the_dense_posterior(place):
    """At a node of the table, for two rows that took different shapes and sizes."""
    laws, (jacobian,) = corrections()
    shape, size = torch.tensor([1, 7]), torch.tensor([20, 8])
    prior = (laws.scale * torch.tensor(laws.sizes, dtype=torch.float64)[size]).square()
    precision = 10.0 ** VARIANCE_NODES[place] * laws.scale**2 / prior
    before, after = laws.std(shape, size, precision)
    for row in range(2):
        k = prior[row] * covariance(laws.shapes[int(shape[row])])
        j = precision[row].sqrt() * jacobian
        wanted = torch.linalg.inv(torch.linalg.inv(k) + j.T @ j).diagonal().sqrt()
        torch.testing.assert_close(after[row], wanted, rtol=1e-4, atol=0)
        torch.testing.assert_close(before[row], k.diagonal().sqrt(), rtol=1e-4, atol=0)
        # Without tables, too, for rows that are solved in all of space.
        spread = laws.sizes[int(size[row])] * laws.spread[shape[row]]
        torch.testing.assert_close(spread, k.diagonal().sqrt(), rtol=1e-6, atol=0)


def test_fewer_data_take_their_share_out_of_the_table():
    """Data of half the precision, as with half of the sensors, decide what half of t would."""
    laws, _ = corrections()
    t = laws.strengths(laws.units)[:, None]
    half, one = torch.tensor([0.5]).double(), torch.tensor([1.0]).double()
    torch.testing.assert_close(laws.log_determinant(t * half), laws.log_determinant(t / 2 * one))
    assert bool((laws.log_determinant(t * half) < laws.log_determinant(t * one)).all())


@pytest.mark.parametrize("unit", [1e-5, 1e5])
def test_tables_do_not_depend_on_the_unit_of_x(unit):
    family = normal(200, 10).cumsum(1)
    jacobian = 30 * normal(14, 10, seed=1)
    found = []
    for scale in (1.0, unit):
        laws = corrections_of(scale * family)
        laws = tables.tabled(laws, [tables.Formed(laws.scale * jacobian / scale)])
        t = laws.strengths(jacobian)[:, None]
        place = torch.tensor([3]), torch.tensor([20])
        std = laws.std(*place, torch.ones(1, dtype=torch.float64))[1] / scale
        found.append((laws.log_determinant(t), std))
    torch.testing.assert_close(*(d for d, _ in found), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(*(s for _, s in found), rtol=1e-6, atol=0)


class Matrix:
    """A Jacobian that counts what is asked of it."""

    def __init__(self, matrix):
        self.matrix, self.products = matrix, 0

    def forward(self, v):
        self.products += len(v)
        return v @ self.matrix.T

    def back(self, w):
        self.products += len(w)
        return w @ self.matrix


def case(name, grid):
    """Laws of corrections for a problem and its Jacobian at one latent, in units of the noise and
    of the laws' scale.
    """
    problem = dc.problems.get(name, grid=grid).unchecked()
    rng = torch.Generator().manual_seed(3)
    family = problem.sample(200, generator=rng, dtype=torch.float64)
    x, n = family[:1], family[0].numel()
    eye = torch.eye(n, dtype=torch.float64).reshape(n, *x.shape[1:])
    with torch.no_grad():
        columns = jvp(problem.simulate, x.expand(n, *x.shape[1:]).contiguous(), eye)[1].flatten(1)
    laws = corrections_of(family)
    return laws, laws.scale * columns.T / problem.noise_std


def compared(laws, jacobian, *, rank):
    """Dense and sketched tables, and the products that the latter took."""
    matrix, rng = Matrix(jacobian), torch.Generator().manual_seed(0)
    sketch = tables.sketched(laws, laws.shapes[0].basis, matrix, generator=rng, rank=rank)
    pair = [tables.tabled(laws, [point]) for point in (tables.Formed(jacobian), sketch)]
    return *pair, matrix.products


def looked_up(laws, shape, size):
    """Log-determinant and standard deviations of one law."""
    one, place = torch.ones(1, dtype=torch.float64), laws.sizes.index(size)
    determinant = laws.log_determinant(laws.strengths(one)[:, None])
    std = laws.std(torch.tensor([shape]), torch.tensor([place]), one)[1][0]
    return float(determinant[shape, place, 0]), std


def test_a_sketch_of_full_rank_is_exact():
    laws, jacobian = case("advection-diffusion-2d", 8)
    exact, found, _ = compared(laws, jacobian, rank=64)
    torch.testing.assert_close(
        found.tables.log_determinants, exact.tables.log_determinants, rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(
        found.tables.log_variances, exact.tables.log_variances, rtol=0, atol=1e-4
    )


@pytest.mark.parametrize(
    ("name", "grid", "rank", "determinant", "spread"),
    [
        ("advection-diffusion-2d", 16, 64, 0.05, 0.06),
        ("advection-diffusion-2d", 32, 256, 0.001, 0.001),
        ("darcy-2d", 16, 192, 0.03, 0.2),
    ],
)
def test_a_fraction_of_the_products_gives_the_tables(name, grid, rank, determinant, spread):
    laws, jacobian = case(name, grid)
    exact, found, products = compared(laws, jacobian, rank=rank)
    assert products == 2 * (rank + tables.PROBES)
    for shape in range(len(laws.shapes)):
        for size in (s for s in SIZE_MARKS if s <= LARGEST_SIZE):
            (wanted, std), (got, mine) = (looked_up(c, shape, size) for c in (exact, found))
            assert got == pytest.approx(wanted, rel=determinant, abs=0.5), (shape, size)
            error = (mine / std).log().square().mean().sqrt()
            assert float(error) < spread, (shape, size)


def waves(shape, kinds):
    """Smooth laws on a grid."""
    grid = GridBasis(shape, kinds)
    n = len(grid.wavenumbers)
    ones = torch.ones(n, dtype=torch.float64)
    return grid, Laws(tuple(smooth(grid, ones)), SIZE_MARKS, 1, 0.3, ones, first=(4, 0.3))


def test_what_no_direction_spans_is_found_by_its_waves():
    """White sensors of a field: everything is in the remainder, which is the same for all waves."""
    _, laws = waves((16, 16), ("cosine", "cosine"))
    exact, found, _ = compared(laws, 50 * torch.eye(256, dtype=torch.float64), rank=4)
    exact, found = exact.tables.log_determinants, found.tables.log_determinants
    # Sixteen random fields of 256 points tell a mean square to within some two percent.
    torch.testing.assert_close(found, exact, rtol=0.08, atol=0.1)
    lowrank_only = 4 / 256 * exact[0, -1]
    assert float(found[0, -1]) > 10 * float(lowrank_only)


def test_channels_have_remainders_of_their_own():
    """One channel is seen well, the other not at all."""
    grid, laws = waves((2, 16), ("none", "fourier"))
    weights = torch.tensor([100.0, 0.0], dtype=torch.float64).repeat_interleave(16)
    made = tables.sketched(
        laws, grid, Matrix(weights.diag()), generator=torch.Generator().manual_seed(0), rank=1
    )
    seen, unseen = made.rest.reshape(2, 16)
    assert float(unseen.max()) == 0.0
    assert float(seen.mean()) > 5000


def test_points_are_averaged_and_whoever_listens_hears_the_share():
    laws, jacobians = corrections(points=2)
    heard = []
    points = [tables.Formed(laws.scale * j) for j in jacobians]
    found = tables.tabled(laws, points, listener=heard.append)
    each = [tables.tabled(laws, [point]).tables for point in points]
    mean = (each[0].log_determinants + each[1].log_determinants) / 2
    torch.testing.assert_close(found.tables.log_determinants, mean)
    assert heard == sorted(heard)
    assert heard[-1] == 1.0
    assert laws.tables is not None  # and these stay what they were
    assert found is not laws
