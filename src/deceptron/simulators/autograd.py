"""A simulator's products with its Jacobian as torch sees them, in every mode of differentiation.

``Values`` is the map, ``Pull`` is ``(x, w) -> J(x)' w`` and ``Push`` is ``(x, v) -> J(x) v``. The
last two are linear in their second argument and there each other's transpose, so a backward pass
through a backward pass is ``J v``. Second derivatives of the simulator are not known: they are NaN.
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
        return (None if grads[0] is None else Pull.apply(x, grads[0], ctx.point)), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        """J v."""
        (x,) = ctx.saved_tensors
        return Push.apply(x, tangents[0], ctx.point)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, point: Point) -> Any:
        """Rows of rows are rows."""
        rows = x.movedim(in_dims[0], 0)
        found = Values.apply(rows.flatten(0, 1), point.fresh())
        return found.unflatten(0, rows.shape[:2]), 0


class Pull(torch.autograd.Function):
    """(x, w) -> J(x)' w."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, point: Point) -> Tensor:
        """J' w."""
        return point.pull(x, w)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep x."""
        x, _, ctx.point = inputs
        _keep(ctx, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Of w: J v."""
        return _backward(ctx, grads[0], Push)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        """Of w: J' dw."""
        return _jvp(ctx, tangents, Pull)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, w: Tensor, point: Point) -> Any:
        """Rows of rows are rows."""
        return _vmap(info, in_dims, x, w, point, Pull)


class Push(torch.autograd.Function):
    """(x, v) -> J(x) v."""

    @staticmethod
    def forward(x: Tensor, v: Tensor, point: Point) -> Tensor:
        """J v."""
        return point.push(x, v)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep x."""
        x, _, ctx.point = inputs
        _keep(ctx, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Of v: J' w."""
        return _backward(ctx, grads[0], Pull)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        """Of v: J dv."""
        return _jvp(ctx, tangents, Push)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, v: Tensor, point: Point) -> Any:
        """Rows of rows are rows."""
        return _vmap(info, in_dims, x, v, point, Push)


def _keep(ctx: Any, x: Tensor) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x)
    ctx.save_for_forward(x)


def _backward(ctx: Any, gradient: Tensor | None, transpose: Any) -> Any:
    if gradient is None:
        return None, None, None
    (x,) = ctx.saved_tensors
    # Whoever asks for the derivative by x must see that there is none.
    unknown = torch.full_like(x, torch.nan) if ctx.needs_input_grad[0] else None
    return unknown, transpose.apply(x, gradient, ctx.point), None


def _jvp(ctx: Any, tangents: tuple[Any, ...], function: Any) -> Any:
    (x,) = ctx.saved_tensors
    by_x, by_second = tangents[0], tangents[1]
    found = None if by_second is None else function.apply(x, by_second, ctx.point)
    if by_x is None:
        return found
    like = function.apply(x, by_second, ctx.point) if found is None else found
    return torch.full_like(like, torch.nan)


def _vmap(
    info: Any, in_dims: tuple[Any, ...], x: Tensor, second: Tensor, point: Point, function: Any
) -> Any:
    x, second = (
        t.movedim(dim, 0) if dim is not None else t.expand(info.batch_size, *t.shape)
        for t, dim in ((x, in_dims[0]), (second, in_dims[1]))
    )
    found = function.apply(x.flatten(0, 1), second.flatten(0, 1), point.fresh())
    return found.unflatten(0, x.shape[:2]), 0
