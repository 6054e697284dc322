"""Steps for a simulator that gives values and no derivatives: an external program, NumPy code.

At each accepted point a few trial evaluations ``f(x + d_j) - f(x)`` stand for the products J d_j,
and the step is the best combination of the d_j (``solve/span.py``). Directions come from g while it
has something to say about the residual that is left, then from the adjoint of the surrogate's
Jacobian: neither has to be right, since their images are measured. Any decrease of the true misfit
is accepted, so a row never ends worse than it began; that it ends at a stationary point is not
promised, since what neither map suggests is never tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.box import Box
from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import Descent, Proposal
from deceptron.solve.rows import RowData, dot
from deceptron.solve.span import Directions, feasible, learned_pull


@dataclass(frozen=True)
class Combined(RowData):
    """The feasible step of each row, and whose directions it needed."""

    direction: Float[Tensor, "B n"]
    rule: Int[Tensor, " B"]


@dataclass(frozen=True)
class ByValues(Descent[Combined]):
    """See the module's text."""

    directions: Directions

    rules = ("learned", "surrogate")
    needs_gradient = False

    def prepare(
        self, model: Model, point: Point, state: Combined | None, box: Box | None
    ) -> Combined:
        """One evaluation of f a direction."""
        everyone = torch.ones_like(point.misfit, dtype=torch.bool)
        pulls = (learned_pull, _surrogate_pull)
        span = self.directions.span(model, point, box, pulls, everyone)
        return Combined(feasible(point.x, span.d, box), span.kind)

    def propose(self, model: Model, point: Point, state: Combined, scale: Tensor) -> Proposal:
        """Backtrack along the step."""
        x = torch.addcmul(point.x, scale[:, None], state.direction)
        return Proposal(x, rule=state.rule)


def _surrogate_pull(model: Model, point: Point, residual: Tensor) -> Float[Tensor, "B n"]:
    """Steepest descent by the surrogate, as long as it takes to the minimum along it."""
    weigh = model.objective.weigh
    jacobian = model.linearise(point.x)
    for kind in ("vjp", "jvp"):
        model.charge(kind)
    downhill = -jacobian.vjp(weigh(weigh(residual)))
    image = weigh(jacobian.jvp(downhill))
    return (dot(downhill, downhill) / dot(image, image))[:, None] * downhill
