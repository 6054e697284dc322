"""Steps pulled back through the learned reverse map: D-IPG as published and its two relatives.

With y_t = f(x_t), r_t = y_t - y*, and a the scale that the search controls:

========== ============================ ==================================================
published  rho (g(y_t - a r_t) - x_t)   Algorithm 1; does not vanish with a, since g(y_t) != x_t
difference g(y_t - a r_t) - g(y_t)      vanishes with a; fixed point g(f(x)) = g(y*)
tangent    -a J_g(y_t) r_t              linear in a, so an ordinary line search applies
========== ============================ ==================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.checks import check_range
from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import Descent, Proposal
from deceptron.solve.rows import RowData


@dataclass(frozen=True)
class Published(Descent[RowData]):
    """The step of Algorithm 1. At a = 1 it heads for g(y*), whatever x_t is."""

    relaxation: float = 0.4

    rules = ("published",)

    def __post_init__(self) -> None:
        check_range("relaxation", self.relaxation, low=0, high=1, open_low=True)

    def prepare(
        self, model: Model, point: Point, state: RowData | None, box: Box | None
    ) -> RowData:
        """Nothing to keep between trials."""
        return RowData()

    def propose(self, model: Model, point: Point, state: RowData, scale: Tensor) -> Proposal:
        """Propose in measurement space, pull back, relax."""
        pulled_back = model.g(torch.addcmul(point.y, point.r, scale[:, None], value=-1))
        return Proposal(torch.lerp(point.x, pulled_back, self.relaxation))


@dataclass(frozen=True)
class RoundTrip(RowData):
    """g(y*), which changes only where a sensor is missing, and g(y_t)."""

    g_target: Float[Tensor, "B n"]
    g_here: Float[Tensor, "B n"]


@dataclass(frozen=True)
class Difference(Descent[RoundTrip]):
    """The difference of two pull-backs. g(y*) is kept, so a full step costs one g: two where a
    sensor is missing.
    """

    relaxation: float = 1.0

    rules = ("difference",)

    def __post_init__(self) -> None:
        check_range("relaxation", self.relaxation, low=0, high=1, open_low=True)

    def prepare(
        self, model: Model, point: Point, state: RoundTrip | None, box: Box | None
    ) -> RoundTrip:
        """Evaluate g where the row stands."""
        if state is None:
            return RoundTrip(model.g(point.y - point.r), model.g(point.y))
        target, observed = state.g_target, model.objective.observed
        if observed is not None:
            # At a missing sensor r = 0: there y* is what f predicts, at every point anew.
            rows = (observed == 0).any(1).nonzero().flatten()
            if len(rows):
                part = point.take(rows)
                target = target.index_copy(0, rows, model.at(rows).g(part.y - part.r))
        return RoundTrip(target, model.g(point.y))

    def propose(self, model: Model, point: Point, state: RoundTrip, scale: Tensor) -> Proposal:
        """At scale 1 nothing new is evaluated."""
        ahead = state.g_target
        shorter = (scale != 1).nonzero().flatten()
        if len(shorter):
            part = point.take(shorter)
            ahead = ahead.clone()
            ahead[shorter] = model.at(shorter).g(part.y - scale[shorter, None] * part.r)
        return Proposal(point.x + self.relaxation * (ahead - state.g_here))


@dataclass(frozen=True)
class Direction(RowData):
    """A direction that the scale multiplies."""

    direction: Float[Tensor, "B n"]


@dataclass(frozen=True)
class Tangent(Descent[Direction]):
    """The reverse Jacobian applied to the residual, by one jvp per accepted point."""

    rules = ("tangent",)

    def prepare(
        self, model: Model, point: Point, state: Direction | None, box: Box | None
    ) -> Direction:
        """One jvp through g."""
        return Direction(-model.g_jvp(point.y, point.r))

    def propose(self, model: Model, point: Point, state: Direction, scale: Tensor) -> Proposal:
        """Scale the direction."""
        return Proposal(torch.addcmul(point.x, scale[:, None], state.direction))
