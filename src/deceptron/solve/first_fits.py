"""Corrections of rows that their start does not explain, for who fits the law of the start."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.protocols import Pair, RowMap
from deceptron.laws.law import Laws
from deceptron.solve.descents.posterior import PAIRS
from deceptron.solve.forward import as_forward
from deceptron.solve.growth import grow
from deceptron.solve.methods import get_method
from deceptron.solve.subspace import Subspace
from deceptron.solve.task import Known, posterior_of, prepare

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
        task = prepare(Known.of(pair), y, get_method("guarded"), forward=as_forward(forward))
        model = task.model()
        point = model.values(task.start, task.target)
        rows = (~point.explained & point.misfit.isfinite()).nonzero().flatten()
        start, span = task.start[rows], None
        if len(rows):
            span = Subspace(model.at(rows), point.take(rows), start, task.box, laws)
            grow(span, None, PAIRS[0])
    return FirstFits(rows + first, start, span)


def features(
    pair: Pair, y: Tensor, *, forward: RowMap | None
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Surprise and misfit of each row at its start: what odds are given by."""
    found = []
    with torch.no_grad():
        for rows in y.split(ROWS):
            task = prepare(Known.of(pair), rows, get_method("guarded"), forward=as_forward(forward))
            model = task.model()
            point = model.values(task.start, task.target)
            begun = posterior_of(task).begin(model, point)
            found.append((begun.surprise, begun.misfit))
    surprise, misfit = zip(*found, strict=True)
    return torch.cat(surprise), torch.cat(misfit)
