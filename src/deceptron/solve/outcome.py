"""How rows ended: gathered as they leave, put into the order of the observations at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.status import Reason
from deceptron.solve.model import Model
from deceptron.solve.rows import RowData, joined


@dataclass(frozen=True)
class Outcome(RowData):
    """Rows that ended; ``row`` is their place in the observations."""

    row: Int[Tensor, " B"]
    x: Float[Tensor, "B n"]
    misfit: Float[Tensor, " B"]
    residual: Float[Tensor, " B"]
    first_residual: Float[Tensor, " B"]
    over_noise: Float[Tensor, " B"]
    over_error: Float[Tensor, " B"]  # the same, with what a surrogate errs by
    iterations: Int[Tensor, " B"]
    rule: Int[Tensor, " B"]  # of the last accepted step, -1 if there was none
    reason: Int[Tensor, " B"]
    cost: Int[Tensor, "B kinds"]
    # What the descent wants remembered: zero where it never met a row.
    notes: dict[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def in_order(parts: Sequence[Outcome]) -> Outcome:
        """All rows."""
        if len(parts) == 1:
            return parts[0]
        order = torch.cat([part.row for part in parts]).argsort()
        notes: dict[str, Tensor] = {}
        for name, like in ((n, v) for part in parts for n, v in part.notes.items()):
            if name not in notes:
                columns = (
                    p.notes.get(name, like.new_zeros(len(p.row), *like.shape[1:])) for p in parts
                )
                notes[name] = torch.cat(list(columns)).index_select(0, order)
        return joined(parts).take(order).changed(notes=notes)


def finite_rows(
    model: Model, x: Float[Tensor, "B n"], target: Float[Tensor, "B m"]
) -> tuple[Int[Tensor, " k"], Float[Tensor, "k n"], Float[Tensor, "k m"], list[Outcome]]:
    """The rows that can be evaluated, their start and target, and how the others ended: a simulator
    may refuse NaN for all of them. ``model`` keeps the former.
    """
    if math.isfinite(float(x.sum() + target.sum())):
        return torch.arange(len(x), device=x.device), x, target, []
    observed = (target.abs() < torch.inf).all(1)
    usable = observed & (x.abs() < torch.inf).all(1)
    bad, rows = (~usable).nonzero().flatten(), usable.nonzero().flatten()
    nowhere = torch.full_like(x[bad, 0], torch.nan)
    reason = torch.where(observed, int(Reason.NONFINITE_START), int(Reason.NONFINITE_OBSERVATION))
    ended = Outcome(
        row=bad,
        x=x[bad],
        misfit=nowhere,
        residual=nowhere,
        first_residual=nowhere,
        over_noise=nowhere,
        over_error=nowhere,
        iterations=torch.zeros_like(bad),
        rule=torch.full_like(bad, -1),
        reason=reason[bad],
        cost=model.tally.table().index_select(0, bad),
    )
    model.keep(rows)
    return rows, x[rows], target[rows], [ended] if len(bad) else []
