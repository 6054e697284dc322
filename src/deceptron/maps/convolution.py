"""Convolutions that cost the same on a periodic grid as inside a zero boundary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from deceptron.maps.network import kaiming_uniform

LAYERS: dict[int, type[nn.Conv1d] | type[nn.Conv2d] | type[nn.Conv3d]] = {
    1: nn.Conv1d,
    2: nn.Conv2d,
    3: nn.Conv3d,
}
PADDINGS = ("zeros", "circular")


class Convolution(nn.Module):
    """A 3^d (or 1^d) convolution that keeps the grid; weights start Kaiming-uniform or at zero.

    Periodic borders are copied around the field once; PyTorch's own ``padding_mode`` measured up to
    twice slower on CPU.
    """

    def __init__(
        self,
        dimensions: int,
        n: int,
        m: int,
        *,
        padding: str = "zeros",
        size: int = 3,
        zero: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.padding = padding if size > 1 else "zeros"
        margin = size // 2 if self.padding == "zeros" else 0
        layer = nn.utils.skip_init(LAYERS[dimensions], n, m, kernel_size=size, padding=margin)
        if zero:
            nn.init.zeros_(layer.weight)
        else:
            kaiming_uniform(layer.weight, slope=0.1, generator=generator)
        nn.init.zeros_(layer.bias)
        self.layer = layer

    def forward(self, h: Tensor) -> Tensor:
        """Convolve each row."""
        y: Tensor = self.layer(wrapped(h) if self.padding == "circular" else h)
        return y


def wrapped(h: Tensor) -> Tensor:
    """One more point at both ends of every grid axis, from the other end."""
    framed: Tensor = _Wrapped.apply(h)
    return framed


class _RowMap(torch.autograd.Function):
    """A linear map of rows that is its own tangent; ``transpose`` is what backward applies."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int], h: Tensor) -> tuple[Tensor, int]:
        h = h.movedim(in_dims[0], 0)
        mapped = cls.apply(h.flatten(0, 1))
        return mapped.unflatten(0, h.shape[:2]), 0


class _Wrapped(_RowMap):
    """A periodic field in a frame of its own far ends: one copy, where ``cat`` makes d of them and
    autograd as many again.
    """

    @staticmethod
    def forward(h: Tensor) -> Tensor:
        shape = [side + 2 for side in h.shape[2:]]
        # Channels innermost, as convolutions like it.
        framed = h.new_empty(len(h), *shape, h.shape[1]).movedim(-1, 1)
        framed[_inside(h.ndim)] = h
        for axis in range(2, h.ndim):
            framed.narrow(axis, 0, 1).copy_(framed.narrow(axis, framed.shape[axis] - 2, 1))
            framed.narrow(axis, framed.shape[axis] - 1, 1).copy_(framed.narrow(axis, 1, 1))
        return framed

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _Folded.apply(gradient)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return _Wrapped.apply(tangent)


class _Folded(_RowMap):
    """The transpose: a frame added to where it was copied from."""

    @staticmethod
    def forward(framed: Tensor) -> Tensor:
        framed = framed.movedim(1, -1).clone(memory_format=torch.contiguous_format).movedim(-1, 1)
        for axis in reversed(range(2, framed.ndim)):
            last = framed.shape[axis] - 1
            framed.narrow(axis, last - 1, 1).add_(framed.narrow(axis, 0, 1))
            framed.narrow(axis, 1, 1).add_(framed.narrow(axis, last, 1))
        return framed[_inside(framed.ndim)]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _Wrapped.apply(gradient)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return _Folded.apply(tangent)


def _inside(axes: int) -> tuple[slice, ...]:
    return (slice(None), slice(None), *[slice(1, -1)] * (axes - 2))


def channels_last(h: Tensor) -> Tensor:
    """The same values with channels innermost in memory: twice as fast to train on CPU."""
    # Not contiguous(memory_format=...), which vmap does not support.
    return h.movedim(1, -1).contiguous().movedim(-1, 1)
