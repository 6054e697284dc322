"""Batched damped Gauss-Newton steps over the free components: with the objective's w, k, m, M,

    min_d  |w (J d + r)|^2 + k |x + d - m|_M^2 + damping |d|_M^2

Two solvers share this protocol: ``ConjugateGradients`` (``solve/conjugate_gradients.py``), through
products with J alone, and ``Dense`` (``solve/dense.py``), which forms it.
"""

from __future__ import annotations

from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.box import Box
from deceptron.solve.model import Model, Point
from deceptron.solve.rows import RowData


class LinearSolver(Protocol):
    """Prepares a linearisation once per point, then solves it for any damping."""

    def factor(self, model: Model, point: Point, box: Box | None) -> RowData:
        """What the solves at this point share."""
        ...

    def solve(
        self, model: Model, point: Point, factors: RowData, damping: Float[Tensor, " B"]
    ) -> Float[Tensor, "B n"]:
        """The step d."""
        ...


def free_components(point: Point, box: Box | None) -> Float[Tensor, "B n"]:
    """1 where a step may move, 0 where -gradient pushes against a bound that is already reached.

    Restricting the quadratic model to the free components is what keeps a projected Newton step a
    descent step (Bertsekas 1982).
    """
    if box is None:
        return torch.ones_like(point.x)
    return box.free(point.x, point.gradient).to(point.x.dtype)
