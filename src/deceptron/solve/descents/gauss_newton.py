"""Gauss-Newton and Levenberg-Marquardt: the damped linear least-squares step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.checks import check_range
from deceptron.solve.linear import LinearSolver
from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import Proposal
from deceptron.solve.rows import RowData, dot


@dataclass(frozen=True)
class Solved(RowData):
    """The step for a fixed damping."""

    step: Float[Tensor, "B n"]


@dataclass(frozen=True)
class FixedDamping:
    """``scale`` times the step for one fixed damping: 0 is Gauss-Newton, 1e-2 the paper's LM."""

    linear: LinearSolver
    damping: float = 0.0
    relaxation: float = 1.0

    def __post_init__(self) -> None:
        check_range("damping", self.damping, low=0)
        check_range("relaxation", self.relaxation, low=0, high=1, open_low=True)

    notes = ()
    needs_gradient = True

    @property
    def rules(self) -> tuple[str, ...]:
        """One rule, named after the damping."""
        return ("levenberg-marquardt" if self.damping else "gauss-newton",)

    def prepare(self, model: Model, point: Point, state: Solved | None, box: Box | None) -> Solved:
        """One linear solve per accepted point."""
        factors = self.linear.factor(model, point, box)
        damping = torch.full_like(point.misfit, self.damping)
        step = self.linear.solve(model, point, factors, damping)
        return Solved(step)

    def propose(self, model: Model, point: Point, state: Solved, scale: Tensor) -> Proposal:
        """Backtrack along the step."""
        return Proposal(torch.addcmul(point.x, (self.relaxation * scale)[:, None], state.step))


@dataclass(frozen=True)
class SearchedDamping:
    """The step for damping ``scale``: the search lengthens or shortens it by the damping."""

    linear: LinearSolver

    rules = ("levenberg-marquardt",)
    notes = ()
    needs_gradient = True

    def prepare(
        self, model: Model, point: Point, state: RowData | None, box: Box | None
    ) -> RowData:
        """What all dampings at this point share."""
        return self.linear.factor(model, point, box)

    def propose(self, model: Model, point: Point, state: RowData, scale: Tensor) -> Proposal:
        """One linear solve per trial."""
        step = self.linear.solve(model, point, state, scale)
        # -g'd - d'H d / 2 with (H + scale M) d = -g: no difference of nearly equal misfits.
        length = dot(step, model.objective.metric(step))
        predicted = 0.5 * (scale * length - dot(point.gradient, step))
        return Proposal(point.x + step, predicted=predicted)
