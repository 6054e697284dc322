"""Batched solves of -div(a grad u) = f: conjugate gradients with a sine-transform preconditioner.

Finite volumes on n x n cells, u = 0 on the boundary. With D the difference across faces and t the
transmissibilities of the faces, the matrix is A = D' diag(t) D, linear in t; that makes the
derivatives short. For A u = f:  A du = df - D' (dt * D u), and with A l = g the pullback of g is
f-bar = l, t-bar = -(D l) * (D u). A row that has converged leaves the batch.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from deceptron.problems.grids import cell_sine_basis, constant
from deceptron.problems.linear import unpack

# Energy-norm reduction asked for; float32 cannot do better than a few 1e-7.
TOLERANCES = {torch.float64: 1e-13, torch.float32: 3e-7}
_ITERATION_LIMIT = 2000


def face_transmissibilities(
    a: Float[Tensor, "B n n"],
) -> tuple[Float[Tensor, "B n+1 n"], Float[Tensor, "B n n+1"]]:
    """Harmonic means on inner faces; on the boundary the half cell doubles the coefficient."""
    n = a.shape[-1]

    def along(axis: int) -> Tensor:
        left, right = a.narrow(axis, 0, n - 1), a.narrow(axis, 1, n - 1)
        inner = 2 * left * right / (left + right)
        first, last = 2 * a.narrow(axis, 0, 1), 2 * a.narrow(axis, n - 1, 1)
        return torch.cat([first, inner, last], dim=axis) * n**2

    return along(-2), along(-1)


def solve_elliptic(
    t1: Float[Tensor, "B n+1 n"], t2: Float[Tensor, "B n n+1"], f: Float[Tensor, "B n n"]
) -> Float[Tensor, "B n n"]:
    """``A(t)^-1 f``, differentiable in all arguments, forwards, backwards and repeatedly."""
    (t1, dt1), (t2, dt2), (f, df) = unpack(t1), unpack(t2), unpack(f)
    u: Tensor = _Solve.apply(t1, t2, f)
    if dt1 is None and dt2 is None and df is None:
        return u
    # The tangent is put on by hand, since torch runs Function.jvp with forward mode off: a jvp of
    # a jvp would silently lose a term. Function.jvp still serves the outermost of two levels.
    return forward_ad.make_dual(u, _tangent(t1, t2, u, dt1, dt2, df))


def _tangent(
    t1: Tensor, t2: Tensor, u: Tensor, dt1: Tensor | None, dt2: Tensor | None, df: Tensor | None
) -> Tensor:
    source = torch.zeros_like(u) if df is None else df
    if dt1 is not None:
        source = source - _gather(dt1 * _across(u, -2), -2)
    if dt2 is not None:
        source = source - _gather(dt2 * _across(u, -1), -1)
    tangent: Tensor = _Solve.apply(t1, t2, source)
    return tangent


def apply_elliptic(t1: Tensor, t2: Tensor, u: Float[Tensor, "B n n"]) -> Float[Tensor, "B n n"]:
    """``A(t) u``."""
    return _gather(t1 * _across(u, -2), -2) + _gather(t2 * _across(u, -1), -1)


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(t1: Tensor, t2: Tensor, f: Tensor) -> Tensor:
        return conjugate_gradients(t1, t2, f)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        t1, t2, _ = inputs
        ctx.save_for_backward(t1, t2, output)
        ctx.save_for_forward(t1, t2, output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        t1, t2, u = ctx.saved_tensors
        adjoint = solve_elliptic(t1, t2, g)
        return (
            -_across(adjoint, -2) * _across(u, -2),
            -_across(adjoint, -1) * _across(u, -1),
            adjoint,
        )

    @staticmethod
    def jvp(ctx: Any, dt1: Tensor | None, dt2: Tensor | None, df: Tensor | None) -> Tensor:
        t1, t2, u = ctx.saved_tensors
        return _tangent(t1, t2, u, dt1, dt2, df)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Tensor) -> tuple[Tensor, int]:
        size = info.batch_size
        moved = [
            arg.expand(size, *arg.shape) if dim is None else arg.movedim(dim, 0)
            for arg, dim in zip(args, in_dims, strict=True)
        ]
        rows = moved[0].shape[1]
        solution: Tensor = _Solve.apply(*(arg.reshape(-1, *arg.shape[2:]) for arg in moved))
        return solution.reshape(size, rows, *solution.shape[1:]), 0


def conjugate_gradients(t1: Tensor, t2: Tensor, f: Tensor) -> Tensor:
    """Each row to its own tolerance; rows that are not finite or do not converge become NaN.

    The preconditioner is d^1/2 L^-1 d^1/2 with L the Laplacian, inverted by sine transforms, and
    d = diag(L) / diag(A) (Concus and Golub 1973): for a smooth coefficient the preconditioned
    operator is the Laplacian plus a bounded potential, whatever the contrast.
    """
    n = f.shape[-1]
    basis, inverse_values, laplacian = _laplacian(n, f.dtype, f.device)
    diagonal = t1[:, :-1] + t1[:, 1:] + t2[:, :, :-1] + t2[:, :, 1:]
    root = (laplacian / diagonal).sqrt()
    tolerance = TOLERANCES.get(f.dtype, 10 * math.sqrt(torch.finfo(f.dtype).eps))

    def precondition(r: Tensor, root: Tensor) -> Tensor:
        modes = basis.mT @ (root * r) @ basis
        return root * (basis @ (modes * inverse_values) @ basis.mT)

    solution = torch.full_like(f, math.nan)
    rows = torch.arange(f.shape[0], device=f.device)
    u, r = torch.zeros_like(f), f
    z = precondition(r, root)
    p, rz = z, _dot(r, z)
    goal = tolerance**2 * rz
    for _ in range(_ITERATION_LIMIT):
        done = rz <= goal
        going = rz > goal  # a row with NaN is neither, and stays NaN
        if not bool(going.all()):
            solution[rows[done]] = u[done]
            if not bool(going.any()):
                break
            keep = going.nonzero().flatten()
            rows, t1, t2, root, u, r, p, rz, goal = (
                value.index_select(0, keep) for value in (rows, t1, t2, root, u, r, p, rz, goal)
            )
        q = apply_elliptic(t1, t2, p)
        step = _wide(rz / _dot(p, q))
        u, r = u + step * p, r - step * q
        z = precondition(r, root)
        previous, rz = rz, _dot(r, z)
        p = z + _wide(rz / previous) * p
    return solution


@constant
def _laplacian(n: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvectors, inverse eigenvalues and diagonal of A for a = 1."""
    k = torch.arange(1, n + 1, dtype=torch.float64)
    values = (2 * n * torch.sin(math.pi * k / (2 * n))) ** 2
    ones = torch.ones(n, dtype=torch.float64)
    ends = 2 * n**2 * ones
    ends[0] += n**2
    ends[-1] += n**2
    inverse = 1 / (values[:, None] + values[None, :])
    diagonal = ends[:, None] + ends[None, :]
    return (
        cell_sine_basis(n, dtype, device),
        inverse.to(dtype=dtype, device=device),
        diagonal.to(dtype=dtype, device=device),
    )


def _across(u: Tensor, axis: int) -> Tensor:
    """D u: differences across the n + 1 faces of an axis, zero beyond the boundary."""
    edge = torch.zeros_like(u.narrow(axis, 0, 1))
    return torch.diff(u, dim=axis, prepend=edge, append=edge)


def _gather(flux: Tensor, axis: int) -> Tensor:
    """D' flux."""
    return -torch.diff(flux, dim=axis)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).flatten(1).sum(1)


def _wide(value: Tensor) -> Tensor:
    return value[:, None, None]
