"""Whether observations look like what a pair was trained on, row by row, and what to do if not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# Share of ordinary observations above the limit.
FALSE_ALARMS = 0.05
SIGNS = {
    "round_trip": "f(g(y)) does not come back to y",
    "latent_round_trip": "g(f(x)) does not come back to x = g(y)",
}


@dataclass(frozen=True, eq=False, repr=False)
class Trust:
    """How strange each observation looks to a pair.

    Attributes:
        score: 5% of validation data exceed 1. A score of 3 is three times as many standard
            deviations from their mean as that limit.
        flag: whether the score is above 1.
        parts: the RMS misses behind the score, by name.
        worst: the name of the greatest of them.
    """

    score: Float[Tensor, " B"]
    flag: Bool[Tensor, " B"]
    parts: dict[str, Float[Tensor, " B"]]
    worst: list[str]

    @staticmethod
    def joined(parts: Sequence[Trust]) -> Trust:
        """The rows of all parts, in order."""
        signs = parts[0].parts
        return Trust(
            score=torch.cat([part.score for part in parts]),
            flag=torch.cat([part.flag for part in parts]),
            parts={name: torch.cat([part.parts[name] for part in parts]) for name in signs},
            worst=[name for part in parts for name in part.worst],
        )

    @property
    def warning(self) -> str | None:
        """What a user should know and do; None where chance explains the flags.

        It does not when a row scores above 2, or when more rows are flagged than the false alarms
        of ordinary data by two standard deviations.
        """
        rows, total = self.flag.nonzero().flatten().tolist(), len(self.flag)
        chance = FALSE_ALARMS * total + 2 * (FALSE_ALARMS * (1 - FALSE_ALARMS) * total) ** 0.5
        if len(rows) <= chance and float(self.score.max()) <= 2:
            return None
        top = max(rows, key=lambda row: float(self.score[row]))
        shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        return (
            f"{len(rows)} of {total} observations do not look like what the pair was trained on, "
            f"where 1 in 20 would by chance (rows {shown}; row {top} most, score "
            f"{float(self.score[top]):.1f} with limit 1: {SIGNS[self.worst[top]]}). Check their "
            "units and noise, solve them on the true simulator with dc.solve(..., forward=...), "
            "and do not rely on their error bars."
        )

    def __repr__(self) -> str:
        median = float(self.score.median())
        return f"Trust({int(self.flag.sum())} of {len(self.flag)} flagged, median {median:.2f})"
