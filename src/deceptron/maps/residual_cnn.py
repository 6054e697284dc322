"""Residual convolutional maps of fields in one, two or three dimensions, as the paper uses them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from deceptron.core import ConfigError, ShapeError
from deceptron.core.checks import check_choice, check_count
from deceptron.maps.convolution import LAYERS, PADDINGS, channels_last, wrapped
from deceptron.maps.network import Network, check_shape, kaiming_uniform, register
from deceptron.maps.network import activation as make_activation


@register("residual-cnn")
class ResidualCNN(Network):
    """Entry convolution, ``blocks`` residual blocks, exit convolution; 3^d kernels throughout.

    A block is ``h <- act(h + conv(act(conv(h))))``. Fields need no channel axis: with
    ``dimensions=2`` both ``(32, 32)`` and ``(2, 32, 32)`` are fields of size 32 x 32, with one and
    with two channels. ``padding`` is ``"zeros"`` or, for periodic problems, ``"circular"``.
    """

    def __init__(
        self,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        *,
        dimensions: int,
        channels: int = 16,
        blocks: int = 2,
        padding: str = "zeros",
        activation: str = "leaky_relu",
        output_activation: str | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_shape = check_shape("ResidualCNN(in_shape=...)", in_shape)
        self.out_shape = check_shape("ResidualCNN(out_shape=...)", out_shape)
        if dimensions not in LAYERS:
            raise ConfigError(f"ResidualCNN(dimensions=...) must be 1, 2 or 3; got {dimensions!r}")
        check_choice("ResidualCNN(padding=...)", padding, PADDINGS)
        check_count("ResidualCNN(channels=...)", channels)
        check_count("ResidualCNN(blocks=...)", blocks, low=0)
        self.dimensions, self.channels, self.blocks = dimensions, channels, blocks
        self.padding, self.activation = padding, activation
        self.output_activation = output_activation
        entering, self._grid = _split("in_shape", self.in_shape, dimensions)
        leaving, out_grid = _split("out_shape", self.out_shape, dimensions)
        if out_grid != self._grid:
            raise ShapeError(
                "ResidualCNN(in_shape=..., out_shape=...) must share their grid; "
                f"got {self._grid} and {out_grid}"
            )
        self._channels_last = dimensions > 1

        def convolution(n: int, m: int) -> nn.Module:
            return _convolution(dimensions, n, m, padding, generator)

        self.entry = convolution(entering, channels)
        self.first = nn.ModuleList(convolution(channels, channels) for _ in range(blocks))
        self.second = nn.ModuleList(convolution(channels, channels) for _ in range(blocks))
        self.exit = convolution(channels, leaving)
        self.act = make_activation(activation)
        self.out_act = make_activation(output_activation or "identity")

    def forward(self, x: Float[Tensor, "B *n"]) -> Float[Tensor, "B *m"]:
        """Map each row's field."""
        self.check_rows(x)
        h = self._framed(x.reshape(x.shape[0], -1, *self._grid))
        h = self.entry(h)
        if self._channels_last:
            h = channels_last(h)
        h = self.act(h)
        for first, second in zip(self.first, self.second, strict=True):
            h = self.act(h + second(self._framed(self.act(first(self._framed(h))))))
        y: Tensor = self.out_act(self.exit(self._framed(h)))
        return y.reshape(x.shape[0], *self.out_shape)

    def _framed(self, h: Tensor) -> Tensor:
        return wrapped(h) if self.padding == "circular" else h


def _split(name: str, shape: tuple[int, ...], dimensions: int) -> tuple[int, tuple[int, ...]]:
    if len(shape) == dimensions:
        return 1, shape
    if len(shape) == dimensions + 1:
        return shape[0], shape[1:]
    raise ShapeError(
        f"ResidualCNN({name}=...) must have {dimensions} axes, or one more for channels; "
        f"got {shape}"
    )


def _convolution(
    dimensions: int, n: int, m: int, padding: str, generator: torch.Generator | None
) -> nn.Module:
    margin = 1 if padding == "zeros" else 0  # a periodic field comes with its frame
    layer = nn.utils.skip_init(LAYERS[dimensions], n, m, kernel_size=3, padding=margin)
    # PyTorch's default for convolutions, which keeps the residual sums tame, with zero biases.
    kaiming_uniform(layer.weight, slope=math.sqrt(5), generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
