"""Gauss-Newton and Levenberg-Marquardt: the damped linear least-squares step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.checks import check_range
from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import Descent, LinearSolver, Proposal
from deceptron.solve.rows import RowData, dot, norm


@dataclass(frozen=True)
class Solved(RowData):
    """The step for a fixed damping, and what it would be without."""

    step: Float[Tensor, "B n"]
    attainable: Float[Tensor, " B"]
    reach: Float[Tensor, " B"]


@dataclass(frozen=True)
class FixedDamping(Descent[Solved]):
    """``scale`` times the step for one fixed damping: 0 is Gauss-Newton, 1e-2 the paper's LM."""

    linear: LinearSolver
    damping: float = 0.0
    relaxation: float = 1.0

    def __post_init__(self) -> None:
        check_range("damping", self.damping, low=0)
        check_range("relaxation", self.relaxation, low=0, high=1, open_low=True)

    @property
    def rules(self) -> tuple[str, ...]:
        """One rule, named after the damping."""
        return ("levenberg-marquardt" if self.damping else "gauss-newton",)

    def prepare(self, model: Model, point: Point, state: Solved | None, box: Box | None) -> Solved:
        """One linear solve per accepted point."""
        factors = self.linear.factor(model, point, box)
        damping = torch.full_like(point.misfit, self.damping)
        step = self.linear.solve(model, point, factors, damping)
        _, attainable, reach = _decrease(model, point, step, damping)
        return Solved(step, attainable, reach)

    def propose(self, model: Model, point: Point, state: Solved, scale: Tensor) -> Proposal:
        """Backtrack along the step."""
        x = torch.addcmul(point.x, (self.relaxation * scale)[:, None], state.step)
        return Proposal(x, attainable=state.attainable, reach=state.reach)


@dataclass(frozen=True)
class SearchedDamping(Descent[RowData]):
    """The step for damping ``scale``: the search lengthens or shortens it by the damping."""

    linear: LinearSolver

    rules = ("levenberg-marquardt",)

    def prepare(
        self, model: Model, point: Point, state: RowData | None, box: Box | None
    ) -> RowData:
        """What all dampings at this point share."""
        return self.linear.factor(model, point, box)

    def propose(self, model: Model, point: Point, state: RowData, scale: Tensor) -> Proposal:
        """One linear solve per trial."""
        step = self.linear.solve(model, point, state, scale)
        predicted, attainable, reach = _decrease(model, point, step, scale)
        return Proposal(point.x + step, predicted, attainable=attainable, reach=reach)


def _decrease(
    model: Model, point: Point, step: Float[Tensor, "B n"], damping: Float[Tensor, " B"]
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, " B"]]:
    """What the quadratic model loses by the step d, would lose without damping, and how far off.

    With (H + damping M) d = -g it loses -g'd - d'H d / 2 = (s + t) / 2, where s = -g'd and
    t = damping d'M d: no difference of nearly equal misfits. If all directions in d have the same
    curvature h, then t / s = damping / (h + damping), the undamped step is s / (s - t) times as
    long, and (s + t) / 2 times that factor is at least what it would lose.
    """
    s = -dot(point.gradient, step)
    t = damping * dot(step, model.objective.metric(step))
    held_back = torch.where(s > t, s / (s - t), torch.inf)
    predicted = 0.5 * (s + t)
    # A step of zero, made of a Jacobian that is not finite, tells nothing: 0 times inf is NaN.
    return predicted, held_back * predicted, held_back * norm(step)
