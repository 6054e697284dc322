"""What a solve spent and what each of its iterations did, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Cost:
    """Evaluations each row asked for; work done for its neighbours is not charged to it.

    Attributes:
        f: of the forward map, with ``forward=`` the simulator.
        g: passes through the reverse map, its jvps included.
        jvp: products of the forward map's Jacobian with a vector.
        vjp: products of its transpose with a vector.
        surrogate: f, jvp and vjp of the pair's f where ``forward=`` is another: surrogate steps,
            gaps that it fills, and derivatives that it lends.
        linear_steps: of inner linear solvers; what they evaluate is in ``jvp`` and ``vjp`` already.
    """

    f: Int[Tensor, " B"]
    g: Int[Tensor, " B"]
    jvp: Int[Tensor, " B"]
    vjp: Int[Tensor, " B"]
    surrogate: Int[Tensor, " B"]
    linear_steps: Int[Tensor, " B"]

    def at(self, rows: Int[Tensor, " k"]) -> Cost:
        """Of these rows."""
        return Cost(*(getattr(self, field.name)[rows] for field in fields(self)))

    @property
    def evaluations(self) -> Int[Tensor, " B"]:
        """f, g, jvp and vjp counted alike, the surrogate's too."""
        return self.f + self.g + self.jvp + self.vjp + self.surrogate

    @property
    def forward(self) -> Int[Tensor, " B"]:
        """Runs of the forward map (with ``forward=`` the simulator), f, jvp and vjp alike."""
        return self.f + self.jvp + self.vjp


@dataclass(frozen=True)
class History:
    """One entry per iteration and row; NaN, -1 or False where a row had already stopped.

    Attributes:
        residual: RMS residual after the iteration.
        loss: the objective after it.
        step_size: of the trial that ended it.
        step_norm: length of the step.
        cosine: of the angle between the step and the negative gradient; NaN where the method asks
            for no gradient.
        accepted: whether the step was taken; False in the last entry of a row that stalls, which
            records its last rejected trial.
        trials: how many steps were tried.
        rule: which rule proposed the step, a number of ``rules``.
        rules: the names of the rules of this method.
    """

    residual: Float[Tensor, "T B"]
    loss: Float[Tensor, "T B"]
    step_size: Float[Tensor, "T B"]
    step_norm: Float[Tensor, "T B"]
    cosine: Float[Tensor, "T B"]
    accepted: Bool[Tensor, "T B"]
    trials: Int[Tensor, "T B"]
    rule: Int[Tensor, "T B"]
    rules: tuple[str, ...]

    def rule_names(self, row: int) -> list[str]:
        """Which rule proposed each step of one row, in order."""
        return [self.rules[int(k)] for k in self.rule[:, row] if int(k) >= 0]

    def at(self, rows: Int[Tensor, " k"]) -> History:
        """Of these rows."""
        numbers = [field.name for field in fields(self) if field.name != "rules"]
        return replace(self, **{name: getattr(self, name)[:, rows] for name in numbers})

    def frame(self) -> pd.DataFrame:
        """Long format: a line per iteration of each row."""
        import pandas as pd

        iteration, row = (self.trials > 0).nonzero(as_tuple=True)
        columns: dict[str, object] = {
            "row": row.cpu().numpy(),
            "iteration": iteration.cpu().numpy(),
        }
        for field in fields(self):
            if field.name not in ("rule", "rules"):
                columns[field.name] = getattr(self, field.name)[iteration, row].cpu().numpy()
        columns["rule"] = [self.rules[k] for k in self.rule[iteration, row].tolist()]
        frame: pd.DataFrame = pd.DataFrame(columns)
        return frame.sort_values(["row", "iteration"], ignore_index=True)

    @staticmethod
    def joined(parts: Sequence[History | None]) -> History:
        """The rows of all parts; the shorter ones end earlier."""
        known = [part for part in parts if part is not None]
        length = max(len(part.residual) for part in known)
        blank = {"accepted": False, "trials": 0, "rule": -1}
        columns = {}
        for field in fields(History):
            if field.name == "rules":
                continue
            padded = []
            for part in known:
                value = getattr(part, field.name)
                room = (length - len(value), value.shape[1])
                rest = value.new_full(room, blank.get(field.name, float("nan")))
                padded.append(torch.cat([value, rest]))
            columns[field.name] = torch.cat(padded, 1)
        return History(**columns, rules=known[0].rules)
