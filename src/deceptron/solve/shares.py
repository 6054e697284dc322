"""How far towards a goal: all of the way, or half of it, or half of that."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import SearchState, Step

GUESS, WHOLE = 2.0, 1.0
# The share of its misfit that a trial must gain, and how often the way is halved.
DECREASE, MOST_HALVINGS = 1e-3, 5


@dataclass(frozen=True)
class Sharing(SearchState):
    """``moved``: whether the row has left its start."""

    moved: Bool[Tensor, " B"]


@dataclass(frozen=True)
class Shares:
    """A trial is taken if it explains the data or lowers the misfit enough. A row that has moved
    and is explained takes what lowers its misfit.

    With ``guesses`` the first trial of a point is the descent's guess, at scale 2, where it has
    one; that has to explain the data. After some halvings a row gives up, and at once if it was
    where the linearisation leads before it tried.
    """

    guesses: bool = False

    needs_trial_gradient = False

    def start(self, model: Model, point: Point) -> Sharing:
        """The guess first."""
        scale = torch.full_like(point.misfit, GUESS if self.guesses else WHOLE)
        return Sharing(scale, None, torch.zeros_like(point.explained))

    def judge(
        self, point: Point, trial: Point, step: Step, state: Sharing
    ) -> tuple[Bool[Tensor, " B"], Sharing, Bool[Tensor, " B"]]:
        """A row is decided by its own misfit."""
        guessing, promise = step.proposal.provisional, step.proposal.promise
        assert guessing is not None
        lower = trial.fit <= (1 - DECREASE) * point.fit
        accept = trial.explained | (lower & ~guessing)
        share = torch.where(guessing, GUESS, state.scale.clamp(max=WHOLE))
        last = share <= 0.5**MOST_HALVINGS
        refining = state.moved & point.explained
        accept = torch.where(refining, trial.explained & (trial.fit < point.fit), accept)
        if promise is not None:
            last = last | (~guessing & promise.kept_here)
        first = GUESS if self.guesses else WHOLE
        scale = torch.where(accept, first, share / 2)
        trials = torch.where(accept, 0, state.rejections + 1)
        return accept, Sharing(scale, trials, state.moved | accept), ~accept & last
