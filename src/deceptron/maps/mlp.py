"""Fully connected maps of vectors: the paper's heat-1d pair and anything of its size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from deceptron.core import ConfigError
from deceptron.maps.network import Network, check_shape, kaiming_uniform, register
from deceptron.maps.network import activation as make_activation


@register("mlp")
class MLP(Network):
    """``widths = (n, ..., m)``: linear layers with an activation between them.

    ``output_activation`` follows the last layer. Weights start Kaiming-uniform with the slope of
    LeakyReLU(0.1), biases at zero. The theory asks for a twice differentiable reverse map, which
    ``silu``, ``gelu``, ``softplus`` and ``tanh`` give and ``leaky_relu`` does not.
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        activation: str = "leaky_relu",
        output_activation: str | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.widths = check_shape("MLP(widths=...)", widths)
        if len(self.widths) < 2:
            raise ConfigError(f"MLP(widths=...) must hold at least input and output; got {widths}")
        self.activation, self.output_activation = activation, output_activation
        self.in_shape, self.out_shape = self.widths[:1], self.widths[-1:]
        layers = zip(self.widths, self.widths[1:], strict=False)
        self.layers = nn.ModuleList(_linear(n, m, generator) for n, m in layers)
        self.act = make_activation(activation)
        self.out_act = make_activation(output_activation or "identity")

    def forward(self, x: Float[Tensor, "B n"]) -> Float[Tensor, "B m"]:
        """Apply the layers to each row."""
        self.check_rows(x)
        *hidden, last = self.layers
        for layer in hidden:
            x = self.act(layer(x))
        y: Tensor = self.out_act(last(x))
        return y


@register("flat-mlp")
class FlatMLP(Network):
    """A small MLP between rows of any two shapes, which it flattens."""

    def __init__(
        self,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        *,
        hidden: Sequence[int] = (16,),
        activation: str = "silu",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_shape = check_shape("FlatMLP(in_shape=...)", in_shape)
        self.out_shape = check_shape("FlatMLP(out_shape=...)", out_shape)
        self.hidden, self.activation = tuple(hidden), activation
        widths = (math.prod(self.in_shape), *self.hidden, math.prod(self.out_shape))
        self.inner = MLP(widths, activation=activation, generator=generator)

    def forward(self, x: Float[Tensor, "B *n"]) -> Float[Tensor, "B *m"]:
        """Map each row."""
        self.check_rows(x)
        y: Tensor = self.inner(x.flatten(1))
        return y.reshape(x.shape[0], *self.out_shape)


def _linear(n: int, m: int, generator: torch.Generator | None) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, n, m)
    kaiming_uniform(layer.weight, slope=0.1, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
