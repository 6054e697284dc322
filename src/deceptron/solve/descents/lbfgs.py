"""Limited-memory BFGS, batched: every row has its own memory of curvature pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.checks import check_count
from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import Descent, Proposal
from deceptron.solve.rows import RowData, dot, norm

# Pairs that a row remembers.
MEMORY = 20
P = TypeVar("P", bound="Pairs")


@dataclass(frozen=True)
class Pairs(RowData):
    """Pairs (s, y) of steps and changes of the gradient, newest first (zeros are an empty slot),
    and the point that the next pair is measured from.
    """

    s: Float[Tensor, "B h n"]
    y: Float[Tensor, "B h n"]
    x: Float[Tensor, "B n"]
    gradient: Float[Tensor, "B n"]

    @staticmethod
    def none(point: Point, memory: int) -> Pairs:
        """Room for so many."""
        empty = point.x.new_zeros(point.x.shape[0], memory, point.x.shape[1])
        return Pairs(empty, empty, point.x, point.gradient)

    def with_room(self: P, memory: int) -> P:
        """The same with room for so many, or for those that it has room for."""
        missing = memory - self.s.shape[1]
        if missing <= 0:
            return self
        s, y = (torch.nn.functional.pad(pairs, (0, 0, 0, missing)) for pairs in (self.s, self.y))
        return self.changed(s=s, y=y)

    def put(self: P, index: Int[Tensor, " k"], new: P) -> P:
        """As of any rows; the one with less room is given more."""
        room = max(self.s.shape[1], new.s.shape[1])
        put: P = RowData.put(self.with_room(room), index, new.with_room(room))
        return put

    def pushed(self, point: Point, wanted: Bool[Tensor, " B"] | None = None) -> Pairs:
        """With the newest pair of the ``wanted`` rows (default: all); one without positive
        curvature is left out.
        """
        s, y = point.x - self.x, point.gradient - self.gradient
        if self.s.shape[1] == 0:
            return Pairs(self.s, self.y, point.x, point.gradient)
        keep = _curved(s, y)
        keep = (keep if wanted is None else keep & wanted)[:, None, None]

        def push(old: Tensor, new: Tensor) -> Tensor:
            return torch.where(keep, torch.cat([new[:, None], old[:, :-1]], dim=1), old)

        return Pairs(push(self.s, s), push(self.y, y), point.x, point.gradient)

    def direction(self, model: Model, point: Point, box: Box | None) -> Float[Tensor, "B n"]:
        """Two-loop recursion on the free components of a box, with the pairs restricted to them."""
        free = point.free(box)
        s, y = (self.s, self.y) if box is None else (self.s * free[:, None], self.y * free[:, None])
        precondition = model.objective.precondition
        return -free * _two_loop(s, y, free * point.gradient, point.misfit, precondition)


@dataclass(frozen=True)
class Memory(Pairs):
    """Pairs, and the step they ask for."""

    step: Float[Tensor, "B n"]


@dataclass(frozen=True)
class LBFGS(Descent[Memory]):
    """A quasi-Newton step from pairs.

    Without a pair the direction is the steepest descent in the objective's metric, of length 1 or
    ``2 phi / |g|``, the farthest that the minimum of a sum of squares along it can be: with
    g = J'r, the line minimum of |r - a J p|^2 for p = M^-1 g is a = g'p / |J p|^2, and
    g'p = r'J p <= |r| |J p|, so a <= |r|^2 / g'p = 2 phi / g'p.
    """

    memory: int = MEMORY

    rules = ("l-bfgs",)

    def __post_init__(self) -> None:
        check_count("memory", self.memory)

    def prepare(self, model: Model, point: Point, state: Memory | None, box: Box | None) -> Memory:
        """Learn from the step just taken, then compute the direction."""
        pairs = Pairs.none(point, self.memory) if state is None else state.pushed(point)
        return Memory(**vars(pairs), step=pairs.direction(model, point, box))

    def propose(self, model: Model, point: Point, state: Memory, scale: Tensor) -> Proposal:
        """Scale the direction."""
        return Proposal(
            torch.addcmul(point.x, scale[:, None], state.step),
            attainable=-0.5 * dot(point.gradient, state.step),
            reach=norm(state.step),
        )


def _curved(s: Tensor, y: Tensor) -> Tensor:
    """Positive curvature beyond round-off, in any unit: s'y > eps |s| |y|."""
    return dot(s, y) > torch.finfo(s.dtype).eps * norm(s) * norm(y)


def _two_loop(
    s: Float[Tensor, "B h n"],
    y: Float[Tensor, "B h n"],
    gradient: Float[Tensor, "B n"],
    misfit: Float[Tensor, " B"],
    precondition: Callable[[Tensor], Tensor],
) -> Float[Tensor, "B n"]:
    """H times gradient. A pair that has no positive curvature (or is empty) drops out of it."""
    valid = _curved(s, y)
    rho = torch.where(valid, 1 / torch.where(valid, dot(s, y), 1.0), 0.0)
    q = gradient
    weights = []
    for k in range(s.shape[1]):
        weight = rho[:, k] * dot(s[:, k], q)
        q = q - weight[:, None] * y[:, k]
        weights.append(weight)
    # Scale M^-1 by s'y / |y|^2 of the newest valid pair, in the same metric.
    newest = valid.to(torch.int8).argmax(1)[:, None]
    newest_y = y.take_along_dim(newest[:, :, None], 1)[:, 0]
    curvature = rho.take_along_dim(newest, 1)[:, 0] * dot(newest_y, precondition(newest_y))
    q = precondition(q)
    length = dot(gradient, q).clamp_min(torch.finfo(q.dtype).tiny)
    first = torch.minimum(length.rsqrt(), 2 * misfit / length)
    q = q * torch.where(valid.any(1), 1 / curvature, first)[:, None]
    for k in reversed(range(s.shape[1])):
        weight = weights[k] - rho[:, k] * dot(y[:, k], q)
        q = q + weight[:, None] * s[:, k]
    return q
