"""How far towards a goal: all of the way, or half of it, or half of that."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import SearchState, Step

GUESS, WHOLE = 2.0, 1.0


@dataclass(frozen=True)
class Shares:
    """A trial is taken if it explains the data or lowers the misfit by the share ``decrease``.

    With ``guesses`` the first trial of a point is the descent's guess, at scale 2, which has to
    explain the data. After ``most`` halvings a row gives up.
    """

    guesses: bool = False
    decrease: float = 1e-3
    most: int = 5

    needs_trial_gradient = False

    def start(self, model: Model, point: Point) -> SearchState:
        """The guess first."""
        scale = torch.full_like(point.misfit, GUESS if self.guesses else WHOLE)
        return SearchState(scale, None)

    def judge(
        self, point: Point, trial: Point, step: Step, state: SearchState
    ) -> tuple[Bool[Tensor, " B"], SearchState, Bool[Tensor, " B"]]:
        """A row is decided by its own misfit."""
        guessing = state.scale > WHOLE
        lower = trial.fit <= (1 - self.decrease) * point.fit
        accept = trial.explained | (lower & ~guessing)
        give_up = ~accept & (state.scale <= 0.5**self.most)
        first = GUESS if self.guesses else WHOLE
        scale = torch.where(accept, first, state.scale / 2)
        trials = torch.where(accept, 0, state.rejections + 1)
        return accept, SearchState(scale, trials), give_up
