"""Batched solves of -div(a grad u) = f by elimination, line by line of the grid.

Finite volumes on n x n cells, u = 0 on the boundary. With D the difference across faces and t the
transmissibilities of the faces, the matrix is A = D' diag(t) D, linear in t; that makes the
derivatives short. For A u = f:  A du = df - D' (dt * D u), and with A l = g the pullback of g is
f-bar = l, t-bar = -(D l) * (D u). All of them are solves with the same A, which is eliminated once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from deceptron.problems.linear import unpack

# Numbers of double precision that an elimination may keep, and that it works on at a time.
KEPT, TOGETHER = 2**26, 2**22


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
    t1: Float[Tensor, "B n+1 n"],
    t2: Float[Tensor, "B n n+1"],
    f: Float[Tensor, "B n n"],
    elimination: Elimination | None = None,
) -> Float[Tensor, "B n n"]:
    """``A(t)^-1 f``, differentiable in all arguments, forwards, backwards and repeatedly.

    ``elimination`` is that of an earlier solve with the same t.
    """
    (t1, dt1), (t2, dt2), (f, df) = unpack(t1), unpack(t2), unpack(f)
    if elimination is None:
        graph = torch.is_grad_enabled() and any(part.requires_grad for part in (t1, t2, f))
        tangents = any(part is not None for part in (dt1, dt2, df))
        elimination = Elimination(kept=graph or tangents)
    u: Tensor = _Solve.apply(t1, t2, f, elimination)
    if dt1 is None and dt2 is None and df is None:
        return u
    # The tangent is put on by hand, since torch runs Function.jvp with forward mode off: a jvp of
    # a jvp would silently lose a term. Function.jvp still serves the outermost of two levels.
    return forward_ad.make_dual(u, _tangent(t1, t2, u, dt1, dt2, df, elimination))


def _tangent(
    t1: Tensor,
    t2: Tensor,
    u: Tensor,
    dt1: Tensor | None,
    dt2: Tensor | None,
    df: Tensor | None,
    elimination: Elimination,
) -> Tensor:
    source = torch.zeros_like(u) if df is None else df
    if dt1 is not None:
        source = source - _gather(dt1 * _across(u, -2), -2)
    if dt2 is not None:
        source = source - _gather(dt2 * _across(u, -1), -1)
    tangent: Tensor = _Solve.apply(t1, t2, source, elimination)
    return tangent


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(t1: Tensor, t2: Tensor, f: Tensor, elimination: Elimination) -> Tensor:
        return elimination.solve(t1, t2, f)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        t1, t2, _, ctx.elimination = inputs
        ctx.save_for_backward(t1, t2, output)
        ctx.save_for_forward(t1, t2, output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        t1, t2, u = ctx.saved_tensors
        adjoint = solve_elliptic(t1, t2, g, ctx.elimination)
        return (
            -_across(adjoint, -2) * _across(u, -2),
            -_across(adjoint, -1) * _across(u, -1),
            adjoint,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, dt1: Tensor | None, dt2: Tensor | None, df: Tensor | None, _: None) -> Tensor:
        t1, t2, u = ctx.saved_tensors
        return _tangent(t1, t2, u, dt1, dt2, df, ctx.elimination)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        size = info.batch_size
        moved = [
            arg.expand(size, *arg.shape) if dim is None else arg.movedim(dim, 0)
            for arg, dim in zip(args[:3], in_dims[:3], strict=True)
        ]
        rows = moved[0].shape[1]
        flat = (arg.reshape(-1, *arg.shape[2:]) for arg in moved)
        solution: Tensor = _Solve.apply(*flat, Elimination(kept=False))
        return solution.reshape(size, rows, *solution.shape[1:]), 0


class Elimination:
    """Of the cells of one grid line after the other; ``kept`` for more solves with the same t, if
    it is not too large.

    A is block tridiagonal: with T the (diagonal) coupling of a line to the next and B its own
    block, what is left of a line once those before it are gone is S_1 = B_1 and
    S_i+1 = B_i+1 - T_i S_i^-1 T_i. Sweeps forwards and back with the inverses solve. A is an
    M-matrix, for which that is stable whatever the contrast. It costs about 2 n^4 operations, the
    sweeps 4 n^3; in double precision, so the answer is right to the last digit of a single.
    """

    def __init__(self, *, kept: bool) -> None:
        self._kept = kept
        self._inverses: Float[Tensor, "n B n n"] | None = None

    def solve(self, t1: Tensor, t2: Tensor, f: Tensor) -> Tensor:
        """``A^-1 f``; a row that is not finite or has no positive coefficient becomes NaN."""
        rows, n = f.shape[:2]
        if self._inverses is None and self._kept and rows * n**3 <= KEPT:
            self._inverses = f.new_empty(n, rows, n, n, dtype=torch.float64)
            for some in _portions(rows, n):
                self._inverses[:, some] = _inverses(t1[some].double(), t2[some].double())
        u = torch.empty_like(f)
        if self._inverses is not None:
            return u.copy_(_swept(self._inverses, t1.double(), f.double()))
        for some in _portions(rows, n):
            d1 = t1[some].double()
            u[some] = _swept(_inverses(d1, t2[some].double()), d1, f[some].double())
        return u


def _portions(rows: int, n: int) -> Iterator[slice]:
    size = max(1, TOGETHER // n**3)
    return (slice(first, first + size) for first in range(0, rows, size))


def _inverses(
    t1: Float[Tensor, "B n+1 n"], t2: Float[Tensor, "B n n+1"]
) -> Float[Tensor, "n B n n"]:
    """S_i^-1 of every line."""
    n = t1.shape[2]
    own = (t1[:, :-1] + t1[:, 1:] + t2[:, :, :-1] + t2[:, :, 1:]).movedim(1, 0)
    beside = -t2[:, :, 1:-1].movedim(1, 0)
    blocks = torch.diag_embed(own)
    for side in (-1, 1):
        blocks.diagonal(side, -2, -1).copy_(beside)
    eye = torch.eye(n, dtype=t1.dtype, device=t1.device)
    failed = torch.zeros(t1.shape[0], 1, 1, dtype=torch.bool, device=t1.device)
    for line, block in enumerate(blocks):
        if line:
            coupling = t1[:, line]
            block -= coupling[:, :, None] * blocks[line - 1] * coupling[:, None, :]
        factor, info = torch.linalg.cholesky_ex(block)
        failed |= info[:, None, None] != 0
        # What cannot be factored would end the whole batch.
        torch.cholesky_inverse(torch.where(failed, eye, factor), out=block)
    return blocks.masked_fill_(failed, torch.nan)


def _swept(
    inverses: Float[Tensor, "n B n n"], t1: Float[Tensor, "B n+1 n"], f: Float[Tensor, "B n n"]
) -> Float[Tensor, "B n n"]:
    n = len(inverses)
    couplings, lines = t1.movedim(1, 0)[..., None], list(f.movedim(1, 0)[..., None])
    for line in range(n):
        if line:
            lines[line] = torch.addcmul(lines[line], couplings[line], lines[line - 1])
        lines[line] = inverses[line] @ lines[line]
    for line in range(n - 2, -1, -1):
        after = couplings[line + 1] * lines[line + 1]
        lines[line] = torch.baddbmm(lines[line], inverses[line], after)
    return torch.cat(lines, 2).mT


def _across(u: Tensor, axis: int) -> Tensor:
    """D u: differences across the n + 1 faces of an axis, zero beyond the boundary."""
    edge = torch.zeros_like(u.narrow(axis, 0, 1))
    return torch.diff(u, dim=axis, prepend=edge, append=edge)


def _gather(flux: Tensor, axis: int) -> Tensor:
    """D' flux."""
    return -torch.diff(flux, dim=axis)
