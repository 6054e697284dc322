"""A simulator's products with its Jacobian as torch sees them, in every mode of differentiation.

``Values`` is the map, ``Product`` is ``(x, v) -> J(x) v`` or ``(x, w) -> J(x)' w``. These two are
linear in their second argument and there each other's transpose, so a backward pass through a
backward pass is ``J v``. Second derivatives of the simulator are not known: they are NaN.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Point(Protocol):
    """Products at the rows of one call; it may keep what several of them share."""

    def value(self, x: Tensor) -> Tensor:
        """f(x)."""

    def pull(self, x: Tensor, w: Tensor) -> Tensor:
        """J(x)' w."""

    def push(self, x: Tensor, v: Tensor) -> Tensor:
        """J(x) v."""

    def fresh(self) -> Point:
        """The same simulator at other rows."""


class Values(torch.autograd.Function):
    """x -> f(x)."""

    @staticmethod
    def forward(x: Tensor, point: Point) -> Tensor:
        """f(x)."""
        return point.value(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep x."""
        x, ctx.point = inputs
        _keep(ctx, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """J' w."""
        (x,) = ctx.saved_tensors
        return (None if grads[0] is None else Product.apply(x, grads[0], ctx.point, True)), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        """J v."""
        (x,) = ctx.saved_tensors
        return Product.apply(x, tangents[0], ctx.point, False)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, point: Point) -> Any:
        """Rows of rows are rows."""
        rows = x.movedim(in_dims[0], 0)
        found = Values.apply(rows.flatten(0, 1), point.fresh())
        return found.unflatten(0, rows.shape[:2]), 0


class Product(torch.autograd.Function):
    """(x, v) -> J(x) v, or with ``transposed`` J(x)' v."""

    @staticmethod
    def forward(x: Tensor, v: Tensor, point: Point, transposed: bool) -> Tensor:
        """The product."""
        return point.pull(x, v) if transposed else point.push(x, v)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep x."""
        x, _, ctx.point, ctx.transposed = inputs
        ctx.shape = output.shape
        _keep(ctx, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Of v: the other product."""
        if grads[0] is None:
            return None, None, None, None
        (x,) = ctx.saved_tensors
        # Whoever asks for the derivative by x must see that there is none.
        unknown = torch.full_like(x, torch.nan) if ctx.needs_input_grad[0] else None
        return unknown, Product.apply(x, grads[0], ctx.point, not ctx.transposed), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        """Of v: the same product."""
        by_x, by_v = tangents[:2]
        (x,) = ctx.saved_tensors
        if by_x is not None:
            return x.new_full(ctx.shape, torch.nan)
        return Product.apply(x, by_v, ctx.point, ctx.transposed)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], x: Tensor, v: Tensor, point: Point, transposed: bool
    ) -> Any:
        """Rows of rows are rows."""
        x, v = (
            t.movedim(dim, 0) if dim is not None else t.expand(info.batch_size, *t.shape)
            for t, dim in ((x, in_dims[0]), (v, in_dims[1]))
        )
        found = Product.apply(x.flatten(0, 1), v.flatten(0, 1), point.fresh(), transposed)
        return found.unflatten(0, x.shape[:2]), 0


def _keep(ctx: Any, x: Tensor) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x)
    ctx.save_for_forward(x)
