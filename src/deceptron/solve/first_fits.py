"""Every plausible correction at the start of each row, for those who calibrate with them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.corrections import Corrections
from deceptron.core.protocols import Pair, RowMap
from deceptron.solve.descents.correction import DENSE, PAIRS
from deceptron.solve.evidence import Quadratics
from deceptron.solve.forward import as_forward
from deceptron.solve.measured_span import MeasuredSpan
from deceptron.solve.methods import get_method
from deceptron.solve.span_growth import grow
from deceptron.solve.task import Known, prepare


@dataclass(frozen=True, eq=False)
class FirstFits:
    """Rows that their start does not explain, their spans, and the corrections in them."""

    rows: Int[Tensor, " k"]
    start: Float[Tensor, "k n"]
    span: MeasuredSpan | None
    corrections: Corrections

    def fit(self, member: int, size: int) -> Float[Tensor, "k n"]:
        """The correction of each row for one member and one of ``SIZES``."""
        if self.span is None:
            return self.start.double()
        quadratics: Quadratics = self.span.quadratics()
        ones = torch.ones_like(quadratics.square)
        t = self.corrections.strengths(ones)[size : size + 1]
        z, _, _ = quadratics.minimise(quadratics.stiffness[member], t)
        return self.span.combined(z[0])


def first_fits(pair: Pair, y: Tensor, *, forward: RowMap, first: int = 0) -> FirstFits:
    """Linearise the rows that need it at their start; ``first`` is the number of the first row."""
    with torch.no_grad():
        task = prepare(Known.of(pair), y, get_method("guarded"), forward=as_forward(forward))
        assert task.corrections is not None
        model = task.model()
        point = model.values(task.start, task.target)
        rows = (~point.explained & point.misfit.isfinite()).nonzero().flatten()
        start, span = task.start[rows], None
        if len(rows):
            here = point.take(rows)
            span = MeasuredSpan(model.at(rows), here, start, task.box, task.corrections)
            if start.shape[1] <= DENSE:
                span.fill()
            else:
                grow(span, None, PAIRS[0])
    return FirstFits(rows + first, start, span, task.corrections)
