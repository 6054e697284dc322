"""Gradient descent: minus the gradient, with the box left to the projection."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deceptron.core.box import Box
from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import Descent, Proposal
from deceptron.solve.rows import RowData


@dataclass(frozen=True)
class Steepest(Descent[RowData]):
    """``-scale J'r``, or ``-scale J'r / m`` with ``of_mean``: the gradient of the mean square."""

    of_mean: bool = False

    rules = ("gradient",)

    def prepare(
        self, model: Model, point: Point, state: RowData | None, box: Box | None
    ) -> RowData:
        """The point already carries its gradient."""
        return RowData()

    def propose(self, model: Model, point: Point, state: RowData, scale: Tensor) -> Proposal:
        """Follow the negative gradient."""
        length = scale / point.r.shape[1] if self.of_mean else scale
        return Proposal(torch.addcmul(point.x, length[:, None], point.gradient, value=-1))
