"""When a row is done: the rules a user can state, each decided row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from jaxtyping import Bool, Float
from torch import Tensor

from deceptron.core.checks import check_range
from deceptron.core.status import Reason
from deceptron.solve.model import Point

RUNNING = -1


@dataclass(frozen=True)
class Stopping:
    """Thresholds; None switches a rule off. Residuals are RMS in normalised units.

    ``gradient_tolerance`` compares the projected gradient |x - P(x - grad)| with its start.
    ``progress`` gives a row up when a step lowers its misfit by less than this share: what f cannot
    explain in large steps it will not explain in small ones.
    """

    tolerance: float | None = None
    relative_tolerance: float | None = None
    discrepancy: bool = False
    gradient_tolerance: float | None = None
    progress: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not isinstance(value, bool):
                check_range(field.name, value, low=0)

    @property
    def any_residual_rule(self) -> bool:
        """Whether the user asked for a residual."""
        rules = (self.tolerance, self.relative_tolerance)
        return self.discrepancy or any(rule is not None for rule in rules)

    def residual_rules(
        self, point: Point, first: Float[Tensor, " B"]
    ) -> Iterator[tuple[Reason, Bool[Tensor, " B"]]]:
        """Each rule that is on, with the rows that meet it; the first to fire names the reason."""
        if self.tolerance is not None:
            yield Reason.TOLERANCE, point.residual <= self.tolerance
        if self.discrepancy:
            yield Reason.DISCREPANCY, point.explained
        if self.relative_tolerance is not None:
            yield Reason.RELATIVE_TOLERANCE, point.residual <= self.relative_tolerance * first
