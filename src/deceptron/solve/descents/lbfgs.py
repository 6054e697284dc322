"""Limited-memory BFGS, batched: every row has its own memory of curvature pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.checks import check_count
from deceptron.solve.linear import free_components
from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import Proposal
from deceptron.solve.rows import RowData, dot


@dataclass(frozen=True)
class Memory(RowData):
    """Pairs (s, y) newest first, 1 / s'y (0 marks an empty slot), and the direction they give."""

    s: Float[Tensor, "B h n"]
    y: Float[Tensor, "B h n"]
    rho: Float[Tensor, "B h"]
    x: Float[Tensor, "B n"]
    gradient: Float[Tensor, "B n"]
    direction: Float[Tensor, "B n"]


@dataclass(frozen=True)
class LBFGS:
    """Two-loop recursion on the free components of a box."""

    memory: int = 20

    rules = ("l-bfgs",)
    notes = ()
    needs_gradient = True

    def __post_init__(self) -> None:
        check_count("memory", self.memory)

    def prepare(self, model: Model, point: Point, state: Memory | None, box: Box | None) -> Memory:
        """Learn from the step just taken, then compute the direction."""
        if state is None:
            empty = point.x.new_zeros(point.x.shape[0], self.memory, point.x.shape[1])
            s, y, rho = empty, empty.clone(), empty[:, :, 0].clone()
        else:
            s, y, rho = _remember(state, point)
        free = free_components(point, box)
        precondition = model.objective.precondition
        direction = -free * _two_loop(s, y, rho, free * point.gradient, precondition)
        return Memory(s, y, rho, point.x, point.gradient, direction)

    def propose(self, model: Model, point: Point, state: Memory, scale: Tensor) -> Proposal:
        """Scale the direction."""
        return Proposal(torch.addcmul(point.x, scale[:, None], state.direction))


def _remember(state: Memory, point: Point) -> tuple[Tensor, Tensor, Tensor]:
    """Push the newest pair; a pair without positive curvature is left out."""
    s, y = point.x - state.x, point.gradient - state.gradient
    product = dot(s, y)
    keep = product > torch.finfo(s.dtype).eps * dot(y, y)
    rho = torch.where(keep, 1 / torch.where(keep, product, 1.0), 0.0)

    def push(old: Tensor, new: Tensor) -> Tensor:
        pushed = torch.cat([new[:, None], old[:, :-1]], dim=1)
        return torch.where(keep.reshape(-1, *(1,) * (old.ndim - 1)), pushed, old)

    return push(state.s, s), push(state.y, y), push(state.rho, rho)


def _two_loop(
    s: Tensor,
    y: Tensor,
    rho: Tensor,
    gradient: Tensor,
    precondition: Callable[[Tensor], Tensor],
) -> Tensor:
    """H times gradient. Empty slots have rho = 0 and drop out of both loops."""
    q = gradient
    weights = []
    for k in range(s.shape[1]):
        weight = rho[:, k] * dot(s[:, k], q)
        q = q - weight[:, None] * y[:, k]
        weights.append(weight)
    # Scale M^-1 by s'y / |y|^2 of the newest pair, in the same metric; 1 while memory is empty.
    newest = rho[:, 0] > 0
    curvature = torch.where(newest, rho[:, 0] * dot(y[:, 0], precondition(y[:, 0])), 1.0)
    q = precondition(q) / curvature[:, None]
    for k in reversed(range(s.shape[1])):
        weight = weights[k] - rho[:, k] * dot(y[:, k], q)
        q = q + weight[:, None] * s[:, k]
    return q
