"""A small U-Net: local detail at full resolution, global context at a fraction of the cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from deceptron.core import ShapeError
from deceptron.core.checks import check_choice, check_count
from deceptron.maps.convolution import PADDINGS, Convolution, channels_last
from deceptron.maps.network import Network, check_shape, register
from deceptron.maps.network import activation as make_activation

# Channels of a level over those at full resolution, at most; levels, from the lowest one on, that
# have gates.
WIDEST, GATED = 4, 3


@register("unet")
class UNet(Network):
    """``levels`` resolutions, each half the one above with twice its channels, up to four times
    ``channels``; two convolutions a level on the way down and on the way up, the second of them
    residual.

    Shapes are ``(channels, *grid)``; every axis of the grid must be divisible by
    2^(levels - 1). The exit starts at zero, so a fresh network is the zero map. ``gates`` lets
    the mean over the grid scale the channels of the lowest level and of the two above it, on the
    way up: an answer whose size depends on the whole field, as a pressure's does, needs that.
    Every gate is a product with what the last one has scaled: more of them are unstable.
    """

    def __init__(
        self,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        *,
        channels: int = 24,
        levels: int = 3,
        padding: str = "zeros",
        gates: bool = False,
        activation: str = "silu",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_shape = check_shape("UNet(in_shape=...)", in_shape)
        self.out_shape = check_shape("UNet(out_shape=...)", out_shape)
        self.channels = check_count("UNet(channels=...)", channels)
        self.levels = check_count("UNet(levels=...)", levels)
        check_choice("UNet(padding=...)", padding, PADDINGS)
        self.padding, self.gates, self.activation = padding, gates, activation
        grid, d = self.in_shape[1:], len(self.in_shape) - 1
        if d not in (1, 2, 3) or self.out_shape[1:] != grid:
            raise ShapeError(
                "UNet(in_shape=..., out_shape=...) must be (channels, *grid) on one grid of 1 to "
                f"3 axes; got {self.in_shape} and {self.out_shape}"
            )
        if any(n % 2 ** (levels - 1) for n in grid):
            raise ShapeError(
                f"UNet(levels={levels}) needs grid axes divisible by {2 ** (levels - 1)}; "
                f"got {grid}"
            )

        def convolution(n: int, m: int) -> Convolution:
            return Convolution(d, n, m, padding=padding, generator=generator)

        widths = [channels * min(2**level, WIDEST) for level in range(levels)]
        entering = [self.in_shape[0], *widths[:-1]]
        pairs = list(pairwise(widths))
        self.down = nn.ModuleList(convolution(n, m) for n, m in zip(entering, widths, strict=True))
        self.down_more = nn.ModuleList(convolution(m, m) for m in widths)
        self.up = nn.ModuleList(convolution(n + m, n) for n, m in pairs)
        self.up_more = nn.ModuleList(convolution(n, n) for n, _ in pairs)
        gated = widths[: -GATED - 1 : -1] if gates else []
        self.gate = nn.ModuleList(Gate(m) for m in gated)
        self.exit = Convolution(d, channels, self.out_shape[0], size=1, zero=True)
        self.act = make_activation(activation)

    def forward(self, x: Float[Tensor, "B *n"]) -> Float[Tensor, "B *m"]:
        """Map each row's field."""
        self.check_rows(x)
        h, kept = channels_last(x), []
        for level, (first, second) in enumerate(zip(self.down, self.down_more, strict=True)):
            if level:
                kept.append(h)
                h = halve(h)
            h = self.act(first(h))
            h = h + self.act(second(h))
        h = self._gated(h, 0)
        for turn in range(len(self.up)):
            first, second = self.up[-1 - turn], self.up_more[-1 - turn]
            h = self.act(first(torch.cat([kept.pop(), double(h)], dim=1)))
            h = self._gated(h + self.act(second(h)), turn + 1)
        y: Tensor = self.exit(h)
        return y

    def _gated(self, h: Tensor, turn: int) -> Tensor:
        return self.gate[turn](h) if turn < len(self.gate) else h


class Gate(nn.Module):
    """``h * (1 + W mean(h))``, the mean over the grid; W starts at zero."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, h: Tensor) -> Tensor:
        """Scale the channels of each row."""
        factor = 1 + nn.functional.linear(h.flatten(2).mean(2), self.weight, self.bias)
        return h * factor.reshape(*factor.shape, *(1,) * (h.ndim - 2))


def halve(h: Tensor) -> Tensor:
    """Mean over blocks of two points along every grid axis."""
    pool = (nn.functional.avg_pool1d, nn.functional.avg_pool2d, nn.functional.avg_pool3d)
    return pool[h.ndim - 3](h, 2)


def double(h: Tensor) -> Tensor:
    """Every point twice along every grid axis."""
    return nn.functional.interpolate(h, scale_factor=2.0, mode="nearest")
