"""The tables of plausible corrections at validation points: dense where that is quick, else by
products with the Jacobian and its transpose.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import corrections as dense
from deceptron.core import sketch
from deceptron.core.corrections import Corrections, Told
from deceptron.core.differentiate import Linearisation, jacobian_of_row
from deceptron.core.protocols import RowMap
from deceptron.maps import Deceptron
from deceptron.problems import Problem
from deceptron.train.streams import stream

# Jacobians that are averaged over.
POINTS = 2
# Unknowns up to which they are formed. CPU seconds on darcy-2d, dense and by a sketch: 1.5 and 3.0
# at 256, 8.5 and 5.6 at 1024; a sketch takes 17 at 4096 (python -m benchmarks.grids growth), the 16
# dense decompositions would cost 64 times those at 1024.
LARGEST_DENSE = 1024
# Numbers that go through the simulator at a time as dual numbers, and as a graph, which may hold
# every step that it takes.
HELD, HELD_GRAPH = 2**18, 2**16


def with_tables(
    corrections: Corrections,
    pair: Deceptron,
    problem: Problem,
    x: Float[Tensor, "B *x"],
    *,
    told: Told = lambda share: None,
) -> Corrections:
    """With log-determinants and variances at validation points, by the simulator's Jacobian where
    it has one and by the surrogate's where it has not. ``told`` hears the share that is done.
    """
    y_shape = tuple(pair.f(x[:1]).shape[1:])
    noise = pair.scaler.noise(problem.noise_std, y_shape).double().flatten()
    noise = noise / corrections.scale  # x in units of its own spread
    simulate = problem.unchecked().simulate if problem.differentiable else None

    def forward(rows: Tensor) -> Tensor:
        return pair.f(rows) if simulate is None else pair.scaler.normalise(simulate(rows)).to(rows)

    # Vectors have powers of their covariance too, which are not diagonal in waves.
    formed = x[0].numel() <= LARGEST_DENSE or corrections.eigen is not None
    points: list[Any] = []
    rows = x[:POINTS].split(1)
    for place, row in enumerate(rows):
        if formed:
            jacobian = jacobian_of_row(forward, row, max(1, HELD // row.numel()))
            points.append(jacobian.cpu() / noise.cpu()[:, None])
        else:
            generator = stream(0, "sketch", place)
            products = _Products(forward, row, noise)
            points.append(sketch.sketched(corrections, products, generator=generator))
        told(0.5 * (place + 1) / len(rows))
    tabulated = dense.tabulated if formed else sketch.tabulated
    determinants, variances = tabulated(
        corrections, points, told=lambda share: told(0.5 + 0.5 * share)
    )
    return replace(
        corrections,
        log_determinants=determinants,
        log_variances=variances,
        table_unit=corrections.scale,
    )


class _Products:
    """The Jacobian at one row in units of the noise, several products at a time."""

    def __init__(self, forward: RowMap, row: Float[Tensor, "1 *x"], noise: Tensor) -> None:
        self._noise, self._rows = noise.cpu(), max(1, HELD_GRAPH // row.numel())
        self._x = row.expand(self._rows, *row.shape[1:]).contiguous()
        self._y_shape: tuple[int, ...] = tuple(forward(row).shape[1:])
        self._linear = Linearisation(forward, self._x)

    def forward(self, v: Float[Tensor, "k n"]) -> Float[Tensor, "k m"]:
        """``J v`` of each."""
        return self._each(self._linear.jvp, v, tuple(self._x.shape[1:])) / self._noise

    def back(self, w: Float[Tensor, "k m"]) -> Float[Tensor, "k n"]:
        """``J' w`` of each."""
        return self._each(self._linear.vjp, w / self._noise, self._y_shape)

    def _each(self, product: RowMap, rows: Tensor, shape: tuple[int, ...]) -> Tensor:
        found = []
        for some in rows.split(self._rows):
            full = self._x.new_zeros(self._rows, *shape)
            full[: len(some)] = some.reshape(-1, *shape).to(full)
            found.append(product(full)[: len(some)].detach().flatten(1).double().cpu())
        return torch.cat(found)
