"""Collects what each iteration of each row did, and lays it out once the run is over."""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.history import History
from deceptron.solve.rows import RowData


@dataclass(frozen=True)
class Entry(RowData):
    """Rows that finished an iteration in the same pass: raw numbers, worked up at the end."""

    row: Int[Tensor, " k"]
    iteration: Int[Tensor, " k"]
    loss: Float[Tensor, " k"]
    residual: Float[Tensor, " k"]
    scale: Float[Tensor, " k"]
    slope: Float[Tensor, " k"]
    step_norm: Float[Tensor, " k"]
    gradient_norm: Float[Tensor, " k"]
    accepted: Bool[Tensor, " k"]
    rejections: Int[Tensor, " k"]
    rule: Int[Tensor, " k"]


class Recorder:
    """Keeps the entries of a run; memory grows with rows times iterations."""

    def __init__(self, x: Float[Tensor, "B n"], *, rules: tuple[str, ...]) -> None:
        self.rows, self.rules = len(x), rules
        self._dtype, self._device = x.dtype, x.device
        self._entries: list[Entry] = []
        self._places: Int[Tensor, " k"] | None = None

    def at(self, rows: Int[Tensor, " k"]) -> Recorder:
        """For a run of these rows alone: what it adds stands here, under their own numbers."""
        part = copy.copy(self)
        part._places = rows if self._places is None else self._places[rows]
        return part

    def add(self, entry: Entry) -> None:
        """Append the entries of one pass."""
        if self._places is not None:
            entry = entry.changed(row=self._places[entry.row])
        self._entries.append(entry)

    def history(self) -> History:
        """Dense (iteration, row) tensors."""
        # An empty entry gives dtypes and device to a run in which nothing happens.
        numbers = torch.zeros(0, dtype=self._dtype, device=self._device)
        whole = numbers.to(torch.int64)
        nothing = [whole, whole, *[numbers] * 6, whole.bool(), whole, whole]
        entries = [Entry(*nothing), *self._entries]
        columns = ([getattr(e, field.name) for e in entries] for field in fields(Entry))
        entry = Entry(*map(torch.cat, columns))
        length = 1 + int(entry.iteration.max()) if len(entry.row) else 0
        place = entry.iteration * self.rows + entry.row

        def lay_out(values: Tensor, blank: float) -> Tensor:
            table = values.new_full((length * self.rows,), blank)
            table[place] = values
            return table.reshape(length, self.rows)

        nan = float("nan")
        tiny = torch.finfo(entry.slope.dtype).tiny
        cosine = -entry.slope / (entry.step_norm * entry.gradient_norm).clamp_min(tiny)
        return History(
            residual=lay_out(entry.residual, nan),
            loss=lay_out(entry.loss, nan),
            step_size=lay_out(entry.scale, nan),
            step_norm=lay_out(entry.step_norm, nan),
            cosine=lay_out(cosine, nan),
            accepted=lay_out(entry.accepted, False),
            trials=lay_out(entry.rejections + 1, 0),
            rule=lay_out(entry.rule, -1),
            rules=self.rules,
        )
