"""Collects what each iteration of each row did, and lays it out once the run is over."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.solution import History
from deceptron.solve.rows import RowData


@dataclass(frozen=True)
class Entry(RowData):
    """Rows that finished an iteration in the same pass of the loop."""

    row: Int[Tensor, " k"]
    iteration: Int[Tensor, " k"]
    residual: Float[Tensor, " k"]
    loss: Float[Tensor, " k"]
    step_size: Float[Tensor, " k"]
    step_norm: Float[Tensor, " k"]
    cosine: Float[Tensor, " k"]
    accepted: Bool[Tensor, " k"]
    trials: Int[Tensor, " k"]
    rule: Int[Tensor, " k"]


_BLANK = {"accepted": False, "trials": 0, "rule": -1}


class Recorder:
    """Keeps the entries of a run; memory grows with rows times iterations."""

    def __init__(self, rows: int, rules: tuple[str, ...]) -> None:
        self.rows, self.rules = rows, rules
        self._entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """Append the entries of one pass."""
        if len(entry.row):
            self._entries.append(entry)

    def history(self, like: Tensor) -> History:
        """Dense (iteration, row) tensors."""
        length = 1 + max((int(e.iteration.max()) for e in self._entries), default=-1)
        laid_out: dict[str, Tensor] = {}
        for field in fields(Entry)[2:]:
            blank = _BLANK.get(field.name, float("nan"))
            dtype = {"accepted": torch.bool, "trials": torch.int64, "rule": torch.int64}.get(
                field.name, like.dtype
            )
            table = torch.full((length, self.rows), blank, dtype=dtype, device=like.device)
            for entry in self._entries:
                table[entry.iteration, entry.row] = getattr(entry, field.name)
            laid_out[field.name] = table
        return History(**laid_out, rules=self.rules)
