"""The elliptic solve against a sparse direct one and a manufactured solution."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import scipy.sparse as sparse
import scipy.sparse.linalg
import torch
from torch import Tensor

import deceptron as dc
from deceptron.core.differentiate import Linearisation
from deceptron.problems import elliptic
from deceptron.problems.elliptic import face_transmissibilities, solve_elliptic
from tests.problems.small import generator


def direct_solve(a: Tensor, f: Tensor) -> Tensor:
    """Assemble from the definition, cell by cell, and factorise."""
    n = a.shape[-1]
    matrix = sparse.lil_matrix((n * n, n * n))
    for i in range(n):
        for j in range(n):
            row = i * n + j
            for p, q in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
                inside = 0 <= p < n and 0 <= q < n
                here = float(a[i, j])
                there = float(a[p, q]) if inside else math.nan
                face = 2 * here * there / (here + there) if inside else 2 * here
                matrix[row, row] += face * n * n
                if inside:
                    matrix[row, p * n + q] -= face * n * n
    solution = scipy.sparse.linalg.spsolve(matrix.tocsc(), f.flatten().numpy())
    return torch.from_numpy(solution).reshape(n, n)


@pytest.mark.parametrize("family", ["prior", "extreme"])
def test_matches_a_sparse_direct_solve(family: str) -> None:
    problem = dc.problems.get("darcy-2d")
    x = problem.sample(2, generator=generator(), family=family, dtype=torch.float64)
    for row in range(2):
        a = 0.2 * 25 ** x[row, 0]
        expected = direct_solve(a, torch.ones(32, 32, dtype=torch.float64))
        error = (problem.simulate(x)[row, 0] - expected).norm() / expected.norm()
        assert float(error) < 1e-8


def test_worst_of_the_box_converges() -> None:
    problem = dc.problems.get("darcy-2d")
    x = (torch.rand(4, 1, 32, 32, dtype=torch.float64, generator=generator()) > 0.5).double()
    t1, t2 = face_transmissibilities(0.2 * 25 ** x[:, 0])
    u = torch.nn.functional.pad(problem.simulate(x)[:, 0], (1, 1, 1, 1))
    flux1, flux2 = t1 * u[:, :, 1:-1].diff(dim=1), t2 * u[:, 1:-1].diff(dim=2)
    residual = -flux1.diff(dim=1) - flux2.diff(dim=2) - 1
    assert float(residual.abs().max()) < 1e-6


def test_single_precision_is_right_at_any_contrast() -> None:
    problem = dc.problems.get("darcy-2d", lowest=1e-4, highest=1e4)
    x = (torch.rand(4, 1, 32, 32, generator=generator()) > 0.5).float()
    found, exact = problem.simulate(x).double(), problem.simulate(x.double())
    errors = (found - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)
    assert float(errors.max()) < 1e-5


def test_a_row_that_is_not_finite_harms_no_other() -> None:
    problem = dc.problems.get("darcy-2d", grid=8).unchecked()
    x = torch.rand(3, 1, 8, 8, generator=generator())
    alone = problem.simulate(x)
    x[1, 0, 3, 4] = math.nan
    found = problem.simulate(x)
    assert bool(found[1].isnan().all())
    torch.testing.assert_close(found[[0, 2]], alone[[0, 2]])


def test_products_at_a_point_share_one_elimination(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    whole = elliptic._inverses
    monkeypatch.setattr(elliptic, "_inverses", lambda *t: made.append(1) or whole(*t))
    problem = dc.problems.get("darcy-2d", grid=8)
    x = torch.rand(2, 1, 8, 8, dtype=torch.float64, generator=generator())
    v = torch.randn(2, 1, 8, 8, dtype=torch.float64, generator=generator(1))
    at = Linearisation(problem.simulate, x)
    products = [at.jvp(v), at.vjp(v), at.jvp(2 * v)]
    assert len(made) == 1
    monkeypatch.setattr(elliptic, "KEPT", 0)
    monkeypatch.setattr(elliptic, "TOGETHER", 8**3)  # a row at a time
    at = Linearisation(problem.simulate, x)
    torch.testing.assert_close(products, [at.jvp(v), at.vjp(v), at.jvp(2 * v)])
    assert len(made) > 2


def manufactured_error(n: int) -> float:
    """u = sin(pi x) sin(2 pi y), a = exp(sin(2 pi x) cos(pi y) / 2), f by automatic derivative."""
    centres = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    x, y = (p.clone().requires_grad_() for p in torch.meshgrid(centres, centres, indexing="ij"))
    u = torch.sin(math.pi * x) * torch.sin(2 * math.pi * y)
    a = torch.exp(0.5 * torch.sin(2 * math.pi * x) * torch.cos(math.pi * y))
    slopes = torch.autograd.grad(u.sum(), (x, y), create_graph=True)
    source = -sum(
        torch.autograd.grad((a * slope).sum(), point, retain_graph=True)[0]
        for slope, point in zip(slopes, (x, y), strict=True)
    )
    t1, t2 = face_transmissibilities(a.detach()[None])
    solution = solve_elliptic(t1, t2, source.detach()[None])[0]
    return float((solution - u.detach()).square().mean().sqrt())


def test_second_order_on_a_smooth_coefficient() -> None:
    errors = [manufactured_error(n) for n in (16, 32, 64)]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert all(1.9 < order < 2.1 for order in orders), orders


def test_solve_is_linear_in_the_source_and_zero_for_zero() -> None:
    t1, t2 = face_transmissibilities(torch.rand(2, 8, 8, dtype=torch.float64) + 0.5)
    f = torch.randn(2, 8, 8, dtype=torch.float64, generator=generator())
    torch.testing.assert_close(solve_elliptic(t1, t2, 3 * f), 3 * solve_elliptic(t1, t2, f))
    assert torch.equal(solve_elliptic(t1, t2, 0 * f), 0 * f)


def test_derivatives_of_every_order_and_argument() -> None:
    a = torch.rand(1, 4, 4, dtype=torch.float64, generator=generator()) + 0.5
    inputs = [t.requires_grad_() for t in face_transmissibilities(a)]
    inputs.append(torch.randn(1, 4, 4, dtype=torch.float64, generator=generator(1)))
    inputs[2].requires_grad_()
    # Transmissibilities are of the size n^2; a relative step keeps the differences accurate.
    assert torch.autograd.gradcheck(solve_elliptic, inputs, eps=1e-5, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(solve_elliptic, inputs, eps=1e-5)


def test_vmap_over_the_solve() -> None:
    problem = dc.problems.get("darcy-2d", grid=5).unchecked()
    x = torch.rand(3, 1, 5, 5, dtype=torch.float64, generator=generator())

    def one(row: Tensor) -> Tensor:
        return problem.simulate(row[None])[0]

    forward = torch.func.vmap(torch.func.jacfwd(one))(x)
    backward = torch.func.vmap(torch.func.jacrev(one))(x)
    torch.testing.assert_close(forward, backward, rtol=1e-9, atol=1e-12)


def test_noise_is_one_percent_of_the_training_spread() -> None:
    problem = dc.problems.get("darcy-2d", train_count=1024)
    spread = float(problem.dataset(seed=7).train.y.std())
    assert problem.noise_std == pytest.approx(0.01 * spread, rel=0.05)


def test_pressure_is_positive_and_falls_with_permeability() -> None:
    problem = dc.problems.get("darcy-2d")
    flat = torch.full((1, 1, 32, 32), 0.5, dtype=torch.float64)
    middle = float(problem.simulate(flat).max())
    # The unit square with a = 1 and f = 1 has maximum pressure 0.07367.
    assert middle == pytest.approx(0.07367, rel=2e-3)
    assert float(problem.simulate(flat + 0.5).max()) == pytest.approx(middle / 5, rel=1e-6)
