"""Tables from a sketch of the Jacobian against the dense ones."""

from dataclasses import replace

import pytest
import torch
from deceptron.core.corrections import SIZES, Corrections

import deceptron as dc
from deceptron.core import corrections as dense
from deceptron.core import sketch
from deceptron.core.bases import GridBasis
from deceptron.core.differentiate import jvp

# Beyond it no calibrated pair has been seen to go.
LARGEST_SIZE = 0.3


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
    """Corrections for a problem and its Jacobian at one latent, in units of the noise."""
    problem = dc.problems.get(name, grid=grid).unchecked()
    rng = torch.Generator().manual_seed(3)
    family = problem.sample(200, generator=rng, dtype=torch.float64)
    x, n = family[:1], family[0].numel()
    eye = torch.eye(n, dtype=torch.float64).reshape(n, *x.shape[1:])
    with torch.no_grad():
        columns = jvp(problem.simulate, x.expand(n, *x.shape[1:]).contiguous(), eye)[1].flatten(1)
    corrections = Corrections.of(family, largest=1, kept=1)
    return corrections, columns.T / problem.noise_std


def compared(corrections, jacobian, *, rank):
    """Dense and sketched corrections, and the products that the latter took."""
    exact = dense.tabulated(corrections, [jacobian])
    matrix, rng = Matrix(jacobian), torch.Generator().manual_seed(0)
    made = sketch.sketched(corrections, matrix, generator=rng, rank=rank)
    found = sketch.tabulated(corrections, [made])
    pair = [replace(corrections, log_determinants=d, log_variances=v) for d, v in (exact, found)]
    return *pair, matrix.products


def tables(corrections, member, size):
    """Log-determinant and standard deviations at one of the sizes."""
    one = torch.ones(1, dtype=torch.float64)
    determinant = corrections.log_determinant(corrections.strengths(one))
    number, length = torch.tensor([member]), torch.tensor([size], dtype=torch.float64)
    std = corrections.std(number, length, one)[1][0]
    return float(determinant[member, SIZES.index(size), 0]), std


def test_a_sketch_of_full_rank_is_exact():
    corrections, jacobian = case("advection-diffusion-2d", 8)
    exact, found, _ = compared(corrections, jacobian, rank=64)
    torch.testing.assert_close(found.log_determinants, exact.log_determinants, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.log_variances, exact.log_variances, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "grid", "rank", "determinant", "spread"),
    [
        ("advection-diffusion-2d", 16, 64, 0.05, 0.06),
        ("advection-diffusion-2d", 32, 256, 0.001, 0.001),
        ("darcy-2d", 16, 192, 0.03, 0.2),
    ],
)
def test_a_fraction_of_the_products_gives_the_tables(name, grid, rank, determinant, spread):
    corrections, jacobian = case(name, grid)
    exact, found, products = compared(corrections, jacobian, rank=rank)
    assert products == 2 * (rank + sketch.PROBES)
    for member in range(len(corrections.members)):
        for size in (s for s in SIZES if s <= LARGEST_SIZE):
            (wanted, std), (got, mine) = (tables(c, member, size) for c in (exact, found))
            assert got == pytest.approx(wanted, rel=determinant, abs=0.5), (member, size)
            error = (mine / std).log().square().mean().sqrt()
            assert float(error) < spread, (member, size)


def test_what_no_direction_spans_is_found_by_its_waves():
    """White sensors of a field: everything is in the remainder, which is the same for all waves."""
    grid = GridBasis((16, 16), ("cosine", "cosine"))
    corrections = Corrections(0.3, grid, None, None)
    exact, found, _ = compared(corrections, 50 * torch.eye(256, dtype=torch.float64), rank=4)
    # Sixteen random fields of 256 points tell a mean square to within some two percent.
    torch.testing.assert_close(found.log_determinants, exact.log_determinants, rtol=0.08, atol=0.1)
    lowrank_only = 4 / 256 * exact.log_determinants[0, -1]
    assert float(found.log_determinants[0, -1]) > 10 * float(lowrank_only)


def test_channels_have_remainders_of_their_own():
    """One channel is seen well, the other not at all."""
    grid = GridBasis((2, 16), ("none", "fourier"))
    corrections = Corrections(0.3, grid, None, None)
    weights = torch.tensor([100.0, 0.0], dtype=torch.float64).repeat_interleave(16)
    made = sketch.sketched(
        corrections, Matrix(weights.diag()), generator=torch.Generator().manual_seed(0), rank=1
    )
    seen, unseen = made.rest.reshape(2, 16)
    assert float(unseen.max()) == 0.0
    assert float(seen.mean()) > 5000
