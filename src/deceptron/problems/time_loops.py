"""Time loops with tangent and adjoint loops of their own: autograd through every operation of every
step takes longer and keeps several times as many fields.

A loop gives two things: ``plain(x)``, made of torch operations alone, and ``linearised(x)``, which
keeps the few fields that products with J(x) and J(x)' need. First derivatives take the second,
whatever mode asks for them, and repeated products at one point do not run the simulation again.
Derivatives of derivatives, and all that ``torch.func`` transforms, take the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from deceptron.core.differentiate import pull_back
from deceptron.problems.linear import linear, unpack

Product = Callable[[Tensor], Tensor]

# Bytes of one field over the rows that run together, for each thread: the dozen or so fields that
# a step works on then stay in a cache of a mebibyte or two.
CHUNK_BYTES = 2**16


class Linearised(Protocol):
    """Products with the Jacobian of rows at one point; they record no graph."""

    def push(self, v: Tensor) -> Tensor:
        """J v."""

    def pull(self, w: Tensor) -> Tensor:
        """J' w."""


class TimeLoop(Protocol):
    """A simulator that takes rows through many steps."""

    def plain(self, x: Tensor) -> Tensor:
        """f(x), by operations that torch can differentiate."""

    def linearised(self, x: Tensor) -> tuple[Tensor, Linearised]:
        """f(x) and its products; called without a graph."""


def run(loop: TimeLoop, x: Tensor) -> Tensor:
    """f(x), differentiable forwards, backwards and repeatedly."""
    value, tangent = unpack(x)
    graph = torch.is_grad_enabled() and any(
        part is not None and part.requires_grad for part in (value, tangent)
    )
    if torch._C._are_functorch_transforms_active() or (graph and tangent is not None):
        return loop.plain(x)
    if graph:
        y: Tensor = _Values.apply(x, loop)
        return y
    with torch.no_grad():
        if tangent is None:
            return torch.cat([loop.plain(rows) for rows in _chunks(value)])
        values, pushed = [], []
        for rows, v in zip(_chunks(value), _chunks(tangent), strict=True):
            y, linearised = loop.linearised(rows)
            values.append(y)
            pushed.append(linearised.push(v))
    return forward_ad.make_dual(torch.cat(values), torch.cat(pushed))


def _chunks(x: Tensor) -> tuple[Tensor, ...]:
    if x.device.type != "cpu" or len(x) == 0:
        return (x,)
    row = x[0].numel() * x.element_size()
    return x.split(max(1, CHUNK_BYTES * torch.get_num_threads() // row))


class _Point:
    """Products at the rows of one call, chunk by chunk."""

    def __init__(self, products: list[Linearised], sizes: list[int]) -> None:
        self._products, self._sizes = products, sizes

    @classmethod
    def run(cls, loop: TimeLoop, x: Tensor) -> tuple[Tensor, _Point]:
        """Values, and the point, which must not hold them: a node of autograd that holds its own
        result is a circle, and its states stay in memory until the garbage is collected.
        """
        chunks = _chunks(x)
        runs = [loop.linearised(rows) for rows in chunks]
        values = torch.cat([y for y, _ in runs])
        return values, cls([p for _, p in runs], [len(rows) for rows in chunks])

    def push(self, v: Tensor) -> Tensor:
        return torch.cat([p.push(rows) for p, rows in self._paired(v)])

    def pull(self, w: Tensor) -> Tensor:
        return torch.cat([p.pull(rows) for p, rows in self._paired(w)])

    def _paired(self, rows: Tensor) -> Iterable[tuple[Linearised, Tensor]]:
        return zip(self._products, rows.split(self._sizes), strict=True)


class _Values(torch.autograd.Function):
    """x -> f(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, loop: TimeLoop) -> Tensor:
        values, point = _Point.run(loop, x.detach())
        ctx.loop, ctx.products = loop, (point.push, point.pull)
        ctx.save_for_backward(x)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (w,) = grads
        if not torch.is_grad_enabled():
            return linear(ctx.products[1], w), None
        (x,) = ctx.saved_tensors
        # Two nodes, because autograd runs a node for all of its inputs: J v, the derivative of J'w
        # by w, must not wait for a second derivative that nobody has asked for. What a node is not
        # to be differentiated by goes in where autograd does not look.
        by_w = _Pull.apply(w, _Hidden(ctx.loop, x, w), ctx.products)
        by_x = _Bend.apply(x, _Hidden(ctx.loop, x, w))
        return by_w + by_x, None


class _Hidden(NamedTuple):
    loop: TimeLoop
    x: Tensor
    w: Tensor


class _Pull(torch.autograd.Function):
    """w -> J(x)' w."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, hidden: _Hidden, products: tuple[Product, Product]) -> Tensor:
        ctx.hidden, (ctx.push, pull) = hidden, products
        # Whoever is after J v differentiates J'w at w = 0, which need not be computed.
        return pull(w) if bool(w.any()) else torch.zeros_like(hidden.x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (v,) = grads
        if not torch.is_grad_enabled():
            return linear(ctx.push, v), None, None
        y = ctx.hidden.loop.plain(ctx.hidden.x)
        u = torch.zeros_like(y, requires_grad=True)
        pulled = pull_back(y, ctx.hidden.x, u, create_graph=True)
        return pull_back(pulled, u, v, create_graph=True), None, None


class _Bend(torch.autograd.Function):
    """x -> 0, whose derivative is that of J(x)' w by x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, hidden: _Hidden) -> Tensor:
        ctx.hidden = hidden
        return torch.zeros_like(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (v,) = grads
        loop, x, w = ctx.hidden
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            if not again:
                x, w = x.detach().requires_grad_(), w.detach()
            pulled = pull_back(loop.plain(x), x, w, create_graph=True)
            return pull_back(pulled, x, v, create_graph=again), None
