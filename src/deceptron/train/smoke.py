"""A recipe that takes seconds on any problem: it exercises every stage and promises no accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from deceptron.maps import MLP, Network, register
from deceptron.maps.network import check_shape
from deceptron.problems import Dataset, Problem
from deceptron.train.recipe import Recipe, Stage, Weights


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

    def config(self) -> dict[str, Any]:
        """Constructor arguments, as JSON values."""
        return {
            "in_shape": list(self.in_shape),
            "out_shape": list(self.out_shape),
            "hidden": list(self.hidden),
            "activation": self.activation,
        }


def build_small(
    problem: Problem, data: Dataset, generator: torch.Generator
) -> tuple[nn.Module, nn.Module]:
    """Sixteen hidden units each way."""
    return (
        FlatMLP(problem.x_shape, problem.y_shape, generator=generator),
        FlatMLP(problem.y_shape, problem.x_shape, generator=generator),
    )


def smoke_recipe(problem: Problem) -> Recipe:
    """Three epochs a stage on 256 rows, with every loss that suits any map."""

    def stage(name: str) -> Stage:
        return Stage(name=name, epochs=3, learning_rate=3e-3, batch_size=64, schedule="one-cycle")

    return Recipe(
        name="smoke",
        build=build_small,
        forward=stage("forward"),
        reverse=stage("reverse"),
        jcp=stage("jcp"),
        weights=Weights(cycle=0.1, jcp=0.1),
        noisy_pairs=True,
        train_probe_rows=8,
        val_probe_rows=16,
        selection_rjcp=0.1,
        guard=1.25,
        correction_limit=256,
        train_rows=256,
        val_rows=64,
    )
