"""A recipe that takes seconds on any problem: it exercises every stage and promises no accuracy."""

from __future__ import annotations

import torch
from torch import nn

from deceptron.maps import FlatMLP
from deceptron.problems import Dataset, Problem
from deceptron.train.recipe import Recipe, Stage, Weights


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
        correction_limit=512,
        train_rows=256,
        val_rows=64,
    )
