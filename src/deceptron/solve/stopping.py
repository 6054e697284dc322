"""When a row is done: the rules a user can state, each decided row by row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.checks import check_range
from deceptron.core.status import Reason

RUNNING = -1


@dataclass(frozen=True)
class Stopping:
    """Thresholds; None switches a rule off. Residuals are RMS in normalised units.

    ``gradient_tolerance`` compares the projected gradient |x - P(x - grad)| with its start.
    """

    tolerance: float | None = None
    relative_tolerance: float | None = None
    discrepancy: float | None = None
    gradient_tolerance: float | None = None

    def __post_init__(self) -> None:
        for name in ("tolerance", "relative_tolerance", "discrepancy", "gradient_tolerance"):
            if getattr(self, name) is not None:
                check_range(name, getattr(self, name), low=0)

    @property
    def any_residual_rule(self) -> bool:
        """Whether the user asked for a residual."""
        rules = (self.tolerance, self.relative_tolerance, self.discrepancy)
        return any(rule is not None for rule in rules)

    def by_residual(
        self, residual: Float[Tensor, " B"], first: Float[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        """The reason of each row whose residual is small enough, RUNNING for the rest."""
        reason = torch.full_like(residual, RUNNING, dtype=torch.int64)
        # Later lines win: the most specific promise, an absolute tolerance, comes last.
        if self.relative_tolerance is not None:
            reason[residual <= self.relative_tolerance * first] = Reason.RELATIVE_TOLERANCE
        if self.discrepancy is not None:
            reason[residual <= self.discrepancy] = Reason.DISCREPANCY
        if self.tolerance is not None:
            reason[residual <= self.tolerance] = Reason.TOLERANCE
        return reason
