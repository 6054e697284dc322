"""Linear pieces of time loops, applied to value and tangent by hand, because torch is slow there.

Forward mode gives every constant a symbolic zero tangent, and a product with one goes through a
Python meta kernel: 0.35 ms an operation in torch 2.13 against 5 microseconds for the product
itself. In a loop of hundreds of steps that is most of a jvp.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.autograd import forward_ad


def unpack(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Value and tangent of ``x``; no tangent outside forward mode."""
    if forward_ad._current_level < 0:
        return x, None
    value, tangent = forward_ad.unpack_dual(x)
    return value, tangent


def linear(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``function(x)`` for a linear function; its tangent is ``function`` of x's tangent."""
    value, tangent = unpack(x)
    if tangent is None:
        return function(x)
    return forward_ad.make_dual(function(value), function(tangent))
