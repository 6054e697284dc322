"""The pairs the paper trained, so that its architectures are one call away."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from deceptron.maps.mlp import MLP
from deceptron.maps.pair import Deceptron
from deceptron.maps.residual_cnn import ResidualCNN


def mlp_pair(size: int = 64, *, generator: torch.Generator | None = None) -> Deceptron:
    """Heat-1d: linear and LeakyReLU(0.1) forward; back through a hidden layer twice as wide."""
    forward = MLP((size, size), output_activation="leaky_relu", generator=generator)
    reverse = MLP((size, 2 * size, size), generator=generator)
    return Deceptron(forward, reverse)


def cnn_pair(
    x_shape: Sequence[int],
    y_shape: Sequence[int],
    *,
    dimensions: int,
    channels: int = 16,
    blocks: int = 2,
    padding: str = "zeros",
    activation: str = "leaky_relu",
    reverse_output_activation: str | None = None,
    generator: torch.Generator | None = None,
) -> Deceptron:
    """The other problems: the same residual CNN both ways (heat-2d's channels by default).

    heat-3d: 12 channels. allen-cahn-2d: 48 channels, 4 blocks, circular, ``tanh`` on the reverse.
    """
    network = partial(
        ResidualCNN,
        dimensions=dimensions,
        channels=channels,
        blocks=blocks,
        padding=padding,
        activation=activation,
        generator=generator,
    )
    reverse = partial(network, output_activation=reverse_output_activation)
    return Deceptron(network(x_shape, y_shape), reverse(y_shape, x_shape))
