"""Gradient descent: minus the gradient, with the box left to the projection."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from deceptron.core.box import Box
from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import Proposal
from deceptron.solve.rows import RowData


@dataclass(frozen=True)
class Steepest:
    """``-scale * gradient``."""

    rules = ("gradient",)

    def prepare(
        self, model: Model, point: Point, state: RowData | None, box: Box | None
    ) -> RowData:
        """The point already carries its gradient."""
        return RowData()

    def propose(self, model: Model, point: Point, state: RowData, scale: Tensor) -> Proposal:
        """Follow the negative gradient."""
        return Proposal(-scale[:, None] * point.gradient)
