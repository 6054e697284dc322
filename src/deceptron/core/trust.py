"""Whether observations look like the training data, row by row, and what to do if not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core import html

# Share of ordinary observations above the limit.
FALSE_ALARMS = 0.05
SIGNS = {
    "round_trip": "f(g(y)) is far from y",
    "latent_round_trip": "g(f(x)) is far from x = g(y)",
    "far": "y is far from the training data",
    "faint": "y is closer to the mean of the training data than they are",
}


@dataclass(frozen=True, eq=False, repr=False)
class Trust:
    """How strange each observation looks to a pair.

    Attributes:
        score: how strange, in units of the limit that 5% of ordinary rows exceed. At 3 a row is
            three times as many standard deviations from the ordinary as that limit.
        flag: whether the score is above 1.
        parts: the signs behind the score, by name. Two are misses (root mean squares):
            ``round_trip``, how far f(g(y)) is from y, and ``latent_round_trip``, how far g(f(x)) is
            from x = g(y). Two are of the data alone, and absent from older pairs: ``far``, how far
            y is from the mean of the training data in units of their covariance and the noise, and
            ``faint``, how close along what rises far above the noise.
        worst: which of them counted, row by row; empty for scores that were read from a file.
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

    def at(self, rows: Int[Tensor, " k"]) -> Trust:
        """Of these rows."""
        return Trust(
            score=self.score[rows],
            flag=self.flag[rows],
            parts={name: values[rows] for name, values in self.parts.items()},
            worst=[self.worst[row] for row in rows.tolist()],
        )

    @property
    def warning(self) -> str | None:
        """What a user should know and do; None where chance explains the flags.

        It does not when a row scores above 2, or when more rows are flagged than the false alarms
        of ordinary data by two standard deviations.
        """
        rows, total = self.flag.nonzero().flatten().tolist(), len(self.flag)
        chance = FALSE_ALARMS * total + 2 * (FALSE_ALARMS * (1 - FALSE_ALARMS) * total) ** 0.5
        if len(rows) <= chance and not bool((self.score > 2).any()):
            return None
        top = max(rows, key=lambda row: float(self.score[row]))
        shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        sign = f" ({SIGNS[self.worst[top]]})" if self.worst[top] else ""
        return (
            f"{len(rows)} of {total} observations do not look like the training data; 1 in 20 "
            f"would be flagged by chance. Rows {shown}; row {top} has the largest score, "
            f"{float(self.score[top]):.1f} with limit 1{sign}. Check their units and noise, solve "
            "them on the true simulator with dc.solve(..., forward=...), and do not rely on their "
            "error bars."
        )

    def __repr__(self) -> str:
        median = float(self.score.median())
        flagged = f"{int(self.flag.sum())} of {len(self.flag)} flagged"
        return f"Trust({flagged}, median score {median:.2f}; above 1 is flagged)"

    def _repr_html_(self) -> str:
        """For notebooks: how many are flagged, by what, and what to do."""
        rows = self.flag.nonzero().flatten().tolist()
        lines = {
            "flagged": f"{len(rows)} of {len(self.flag)} rows (score above 1; 1 in 20 by chance)"
        }
        if len(self.flag):
            low, high = float(self.score.median()), float(self.score.max())
            lines["score"] = f"median {low:.2f}, largest {high:.3g}"
        for sign, words in SIGNS.items():
            count = sum(self.worst[row] == sign for row in rows)
            if count:
                lines[sign.replace("_", " ")] = f"{words} ({count} of them)"
        text = html.facts("Trust: do the observations look like the training data?", lines)
        return text + (html.sentence(self.warning) if self.warning else "")
