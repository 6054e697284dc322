"""Corrections of rows that their start does not explain, for who fits the law of the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.protocols import Pair, RowMap
from deceptron.laws.law import Laws
from deceptron.solve.descents.posterior import PAIRS
from deceptron.solve.growth import grow
from deceptron.solve.plan import Plan, prepare
from deceptron.solve.request import Request
from deceptron.solve.subspace import Subspace

# Rows that are evaluated at a time.
ROWS = 48


@dataclass(frozen=True, eq=False)
class FirstFits:
    """Rows that their start does not explain, and their subspaces there."""

    rows: Int[Tensor, " k"]
    start: Float[Tensor, "k n"]
    span: Subspace | None

    def fit(self, laws: Laws, shape: int, size: int) -> Float[Tensor, "k n"]:
        """The answer of each row for one law, by their places."""
        if self.span is None:
            return self.start.double()
        quadratics = self.span.quadratics()
        t = laws.strengths(quadratics.square)[size].expand(1, len(self.rows))
        z, _, _ = quadratics.minimise(quadratics.stiffness[shape], t)
        return self.start.double() + self.span.combined(z[0])


def first_fits(pair: Pair, laws: Laws, y: Tensor, *, forward: RowMap, first: int = 0) -> FirstFits:
    """Linearise the rows that need it at their start; ``first`` is the number of the first row."""
    with torch.no_grad():
        plan = _planned(pair, y, forward)
        model = plan.model()
        point = model.values(plan.start, plan.target)
        rows = (~point.explained & point.misfit.isfinite()).nonzero().flatten()
        start, span = plan.start[rows], None
        if len(rows):
            span = Subspace(model.at(rows), point.take(rows), start, plan.box, laws)
            grow(span, None, PAIRS[0])
    return FirstFits(rows + first, start, span)


def features(
    pair: Pair, y: Tensor, *, forward: Any
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Surprise and misfit of each row at its start: what odds are given by."""
    found = []
    with torch.no_grad():
        for rows in y.split(ROWS):
            plan = _planned(pair, rows, forward)
            model = plan.model()
            point = model.values(plan.start, plan.target)
            begun = plan.posterior().begin(model, point)
            found.append((begun.surprise, begun.misfit))
    surprise, misfit = zip(*found, strict=True)
    return torch.cat(surprise), torch.cat(misfit)


def _planned(pair: Pair, y: Tensor, forward: Any) -> Plan:
    return prepare(Request(pair, y, forward=forward).checked())
