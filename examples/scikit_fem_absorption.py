"""
A finite-element coefficient problem with a hand-written adjoint
================================================================

Light from three lamps spreads through a slab that absorbs it unevenly,

    -div grad u + q u = lamp   in the unit square,   du/dn + u = 0   on its edge,

and sixteen detectors along the edge see each lamp's u. What is the absorption q(x)? scikit-fem
assembles the matrices, SciPy factors them, and the adjoint takes ten lines: with A u = b, y = S u,

    (J' w)_k = -u' (dA/dq_k) l   where   A l = S' w.

``dc.simulators.wrap`` makes value and adjoint a differentiable map; J v comes from differences.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import skfem
import torch
from common import compare, options, scipy_answers, show_bars, with_gaps
from scipy.linalg import lu_factor, lu_solve
from skfem.helpers import dot, grad

import deceptron as dc

CELLS, COARSE, STRONGEST = 12, 4, 40.0

mesh = skfem.MeshQuad.init_tensor(*2 * (np.linspace(0, 1, CELLS + 1),))
basis = skfem.Basis(mesh, skfem.ElementQuad1())
edge = skfem.FacetBasis(mesh, skfem.ElementQuad1())


@skfem.BilinearForm
def diffusion(u, v, w):
    return dot(grad(u), grad(v))


@skfem.BilinearForm
def mass(u, v, w):
    return u * v


def tile(k: int) -> np.ndarray:
    """The elements of the k-th of the coarse squares on which q is constant."""
    column, row = (mesh.p[:, mesh.t].mean(1) * COARSE).astype(int)
    return np.flatnonzero(column * COARSE + row == k)


def lamp(x0: float, y0: float) -> np.ndarray:
    @skfem.LinearForm
    def form(v, w):
        return 30 * np.exp(-60 * ((w.x[0] - x0) ** 2 + (w.x[1] - y0) ** 2)) * v

    return form.assemble(basis)


# On so few nodes dense matrices are faster than sparse ones.
FIXED = (diffusion.assemble(basis) + mass.assemble(edge)).toarray()
MASSES = np.stack(
    [
        mass.assemble(skfem.Basis(mesh, skfem.ElementQuad1(), elements=tile(k))).toarray()
        for k in range(COARSE**2)
    ]
)
LAMPS = np.stack([lamp(0.2, 0.2), lamp(0.8, 0.3), lamp(0.4, 0.8)], axis=1)
angles = np.linspace(0, 1, 16, endpoint=False)
on_edge = mesh.boundary_nodes()
around = np.arctan2(*(mesh.p[:, on_edge] - 0.5)) / (2 * np.pi) % 1
DETECTORS = on_edge[[np.abs(around - a).argmin() for a in angles]]


@lru_cache(maxsize=4)
def solved(content: bytes):
    q = STRONGEST * np.frombuffer(content)
    factors = lu_factor(FIXED + np.tensordot(q, MASSES, axes=1))
    return factors, lu_solve(factors, LAMPS)


def value(x: np.ndarray) -> np.ndarray:
    return solved(x.tobytes())[1][DETECTORS].T.ravel()


def adjoint(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    factors, u = solved(x.tobytes())
    sources = np.zeros_like(u)
    sources[DETECTORS] = w.reshape(3, -1).T
    backward = lu_solve(factors, sources, trans=1)
    return -STRONGEST * np.tensordot(MASSES, backward @ u.T, axes=2)


def sample(count: int, generator: torch.Generator) -> torch.Tensor:
    """Smooth fields of absorption, squashed into the box."""
    at = torch.cartesian_prod(*2 * (torch.arange(COARSE, dtype=torch.float64),))
    covariance = torch.exp(-0.5 * (torch.cdist(at, at) / 1.2) ** 2) + 1e-6 * torch.eye(COARSE**2)
    white = torch.randn(count, COARSE**2, generator=generator, dtype=torch.float64)
    return torch.sigmoid(1.5 * white @ torch.linalg.cholesky(covariance).T)


if __name__ == "__main__":
    asked = options()
    simulator = dc.simulators.wrap(value, vjp=adjoint, batched=False)
    # Every other detector is an old one, three times as noisy.
    noise = torch.tensor([0.002, 0.006]).repeat(24)
    problem = dc.problems.define(
        "absorption",
        simulate=simulator,
        sample=sample,
        bounds=(0.0, 1.0),
        noise_std=noise,
        train_count=asked.train_rows,
        val_count=asked.val_rows,
    )
    dc.problems.verify(problem, rows=8)
    pair = dc.train(problem, preset=asked.preset)

    x = problem.sample(asked.rows, generator=torch.Generator().manual_seed(0))
    y = problem.add_noise(problem.simulate(x), generator=torch.Generator().manual_seed(1))
    y = with_gaps(y, asked)
    compare(
        f"absorption of {COARSE**2} squares, {asked.rows} fresh rows",
        x,
        {
            "one-shot network": lambda: dc.solve(pair, y, method="one-shot", noise_std=noise),
            "dc.solve": lambda: dc.solve(pair, y, forward=problem.simulate, noise_std=noise),
            "SciPy least_squares": lambda: scipy_answers(
                simulator, y, noise, problem.prior, (0.0, 1.0)
            ),
        },
        simulator,
    )
    solution = dc.solve(pair, y, forward=problem.simulate, noise_std=noise)
    show_bars(solution, x, [f"square {k}" for k in range(4)], asked.picture)
