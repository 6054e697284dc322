"""A method is a descent (which way) plus a search (how far, and whether to take the step)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.status import Reason
from deceptron.solve.model import Model, Point
from deceptron.solve.rows import RowData

D = TypeVar("D", bound=RowData)
# Rows that a reason to stop holds for.
Rule: TypeAlias = tuple[Reason, Bool[Tensor, " B"]]
S = TypeVar("S", bound="SearchState")


@dataclass(frozen=True)
class Proposal:
    """A trial point before projection; ``predicted`` is the decrease the local model promises.

    ``attainable`` and ``reach`` are the decrease and the length of the step that the local model
    would make if neither damping nor a line search shortened it: what is left to gain here. A
    descent that cannot tell leaves them out.
    """

    x: Float[Tensor, "B n"]
    predicted: Float[Tensor, " B"] | None = None
    rule: Int[Tensor, " B"] | None = None  # index into the descent's rules; None: it has one
    # Where the descent has something better to try if this step does not help; None: nowhere.
    provisional: Bool[Tensor, " B"] | None = None
    attainable: Float[Tensor, " B"] | None = None
    reach: Float[Tensor, " B"] | None = None
    score: Any = None  # what a search of this descent's own weighs a trial by


class Descent(Protocol[D]):
    """Which way."""

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of what may propose a step; the history refers to them."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Fields of its state that are worth keeping when a row is done."""
        return ()

    @property
    def needs_gradient(self) -> bool:
        """Whether it reads the gradient of the objective."""
        return True

    def begin(self, model: Model, point: Point) -> D | None:
        """What is known of rows before any work is done; None: nothing."""
        return None

    def endings(self, model: Model, before: Point | None, point: Point, state: D) -> list[Rule]:
        """Rows that have nothing to gain by the descent's own account, at their start (``before``
        is None) and after a step from there.
        """
        return []

    def prepare(self, model: Model, point: Point, state: D | None, box: Box | None) -> D:
        """Work done once per accepted point; ``state`` is what this row had before, if anything."""
        ...

    def propose(self, model: Model, point: Point, state: D, scale: Tensor) -> Proposal:
        """Work done once per trial; ``scale`` (B,) is what the search controls."""
        ...


@dataclass(frozen=True)
class SearchState(RowData):
    """What every search carries: its current scale and how many trials this iteration has had.

    ``trials`` may be None: no row has had any.
    """

    scale: Float[Tensor, " B"]
    trials: Int[Tensor, " B"] | None

    @property
    def rejections(self) -> Int[Tensor, " B"]:
        """``trials`` as numbers."""
        if self.trials is None:
            return torch.zeros_like(self.scale, dtype=torch.int64)
        return self.trials


@dataclass(frozen=True)
class Step:
    """A projected trial, the step p that leads there, and what more than one party needs."""

    x: Float[Tensor, "B n"]
    p: Float[Tensor, "B n"]
    slope: Float[Tensor, " B"]  # <gradient, p>
    proposal: Proposal

    @property
    def bent(self) -> Bool[Tensor, " B"]:
        """Where the box changed the proposed point."""
        return (self.x != self.proposal.x).any(1)


class Search(Protocol[S]):
    """How far, and whether to take it."""

    @property
    def needs_trial_gradient(self) -> bool:
        """Whether ``judge`` reads the gradient at the trial point."""
        ...

    def start(self, model: Model, point: Point) -> S:
        """State before the first trial."""
        ...

    def judge(
        self, point: Point, trial: Point, step: Step, state: S
    ) -> tuple[Bool[Tensor, " B"], S, Bool[Tensor, " B"]]:
        """Which trials to accept, the state for each row's next trial, and which rows give up."""
        ...


class LinearSolver(Protocol):
    """Batched damped Gauss-Newton steps over the free components: with the objective's w, k, m, M,

        min_d  |w (J d + r)|^2 + k |x + d - m|_M^2 + damping |d|_M^2

    by products with J alone (``ConjugateGradients``), or by forming it (``Dense``).
    """

    def factor(self, model: Model, point: Point, box: Box | None) -> RowData:
        """What the solves at this point share."""
        ...

    def solve(
        self, model: Model, point: Point, factors: RowData, damping: Float[Tensor, " B"]
    ) -> Float[Tensor, "B n"]:
        """The step d, for any damping."""
        ...
