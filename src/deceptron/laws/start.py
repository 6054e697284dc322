"""What a start and one linearisation there say of rows like the training data, wave by wave.

g(y) has let some of the noise through, so its error and the residual that is left share noise, and
an answer that takes the one for signal and the other for independent noise is too far from both.
The law of the start is the joint one, as validation rows showed it: given the start x0 and the fit
``z = x0 + e`` of one law of corrections, the truth is
``N(mean + own (z - mean) + first (x0 - mean), std^2)``, coordinate by coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.bases import GridBasis
from deceptron.laws.law import Laws, Shape

# Rows whose worth the pull towards the fit itself has, where rows are few.
RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class StartLaw:
    """See the module's text; ``shape`` and ``size`` are places in the laws of corrections."""

    shape: int
    size: int
    mean: Float[Tensor, " n"]
    own: Float[Tensor, " n"]
    first: Float[Tensor, " n"]
    std: Float[Tensor, " n"]
    factor: float = 1.0

    def answer(
        self, laws: Laws, start: Float[Tensor, "B n"], fit: Float[Tensor, "B n"]
    ) -> Float[Tensor, "B n"]:
        """The mean of the truth, given starts and their fits."""
        basis = laws.shapes[self.shape].basis
        mean, own, first = (part.to(fit) for part in (self.mean, self.own, self.first))
        return mean + basis.back(
            own * basis.forward(fit - mean) + first * basis.forward(start.double() - mean)
        )


def fit_start_law(
    laws: Laws,
    shape: int,
    size: int,
    start: Float[Tensor, "N n"],
    fit: Float[Tensor, "N n"],
    truth: Float[Tensor, "N n"],
) -> StartLaw:
    """Least squares for the two coefficients of each group of coordinates."""
    basis, mean = laws.shapes[shape].basis, truth.mean(0)
    a, b, t = (basis.forward(rows - mean) for rows in (fit, start, truth))
    groups = _groups(laws.shapes[shape])
    aa, bb, ab, at, bt = (
        _sums((u * v).sum(0), groups) for u, v in ((a, a), (b, b), (a, b), (a, t), (b, t))
    )
    # Ridge about own = 1, first = 0.
    pull = RIDGE * (aa + bb) + 1e-100
    aa, bb, at = aa + pull, bb + pull, at + pull
    determinant = aa * bb - ab.square()
    own, first = (at * bb - bt * ab) / determinant, (bt * aa - at * ab) / determinant
    found = StartLaw(shape, size, mean, own, first, torch.ones_like(mean))
    error = found.answer(laws, start, fit) - truth
    return replace(found, std=error.square().mean(0).sqrt())


def _groups(shape: Shape) -> Int[Tensor, " n"]:
    """Coordinates that share their coefficients: waves of one length, else four in a row."""
    if isinstance(shape.basis, GridBasis):
        return torch.unique(shape.basis.wavenumbers.square().round(), return_inverse=True)[1]
    return torch.arange(len(shape.spectrum)) // 4


def _sums(values: Float[Tensor, " n"], groups: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    groups = groups.to(values.device)
    return values.new_zeros(int(groups.max()) + 1).index_add(0, groups, values)[groups]
