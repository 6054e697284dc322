"""What a family of latents says about an answer that already explains its data.

Where many answers explain the data as well as their noise allows, an iterative solver returns the
one it meets first, with the noise that it has fitted. In the principal directions of the training
latents each coefficient of such an answer is the truth plus an error, and the best linear guess of
the truth is the coefficient times ``<answer, truth> / <answer, answer>``: near one where the data
decide, small where the family varies less than the solver errs. Both averages are taken over
validation rows, so nothing is assumed of either distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import ConfigError, ShapeError
from deceptron.core.checks import check_count, check_rows
from deceptron.maps.network import Network, check_shape, register


@register("shrinkage")
class Shrinkage(Network):
    """``m + V' diag(gain) V d + rest (d - V' V d)`` with ``d = x - m``; V has orthonormal rows.

    Made by ``Shrinkage.fit``; the constructor alone gives the map to zero of this shape.
    """

    mean: Tensor
    basis: Tensor
    gain: Tensor
    rest: Tensor

    def __init__(self, x_shape: Sequence[int], modes: int) -> None:
        super().__init__()
        self.in_shape = self.out_shape = check_shape("Shrinkage(x_shape=...)", x_shape)
        n = math.prod(self.in_shape)
        modes = check_count("Shrinkage(modes=...)", modes)
        self.register_buffer("mean", torch.zeros(n))
        self.register_buffer("basis", torch.zeros(modes, n))
        self.register_buffer("gain", torch.zeros(modes))
        self.register_buffer("rest", torch.zeros(()))

    @classmethod
    def fit(
        cls,
        family: Float[Tensor, "N *x"],
        answers: Float[Tensor, "M *x"],
        truth: Float[Tensor, "M *x"],
        *,
        modes: int,
    ) -> Shrinkage:
        """Directions from samples of the family, gains from answers whose truth is known.

        Computed in float64, kept in the dtype of ``family``. Gains stay between 0 and 1.
        """
        check_rows("family", family)
        for name, rows in (("answers", answers), ("truth", truth)):
            check_rows(name, rows, dtype=family.dtype, device=family.device)
            if rows.shape[1:] != family.shape[1:]:
                raise ShapeError(
                    f"{name} must have rows of shape {tuple(family.shape[1:])}; "
                    f"got a tensor of shape {tuple(rows.shape)}"
                )
        if len(answers) != len(truth):
            raise ShapeError(
                f"answers and truth must have the same number of rows; "
                f"got {len(answers)}, {len(truth)}"
            )
        for name, rows in (("family", family), ("answers", answers), ("truth", truth)):
            if not bool(rows.isfinite().all()):
                raise ConfigError(f"Shrinkage.fit({name}=...) must be finite")
        check_count("Shrinkage.fit(modes=...)", modes)
        samples = family.flatten(1).double()
        mean = samples.mean(0)
        basis = torch.linalg.svd(samples - mean, full_matrices=False).Vh[:modes]
        a, t = (rows.flatten(1).double() - mean for rows in (answers, truth))
        along_a, along_t = a @ basis.T, t @ basis.T
        other_a, other_t = a - along_a @ basis, t - along_t @ basis
        fitted = cls(family.shape[1:], len(basis)).to(dtype=family.dtype, device=family.device)
        fitted.mean.copy_(mean)
        fitted.basis.copy_(basis)
        fitted.gain.copy_(_gain((along_a * along_t).sum(0), along_a.square().sum(0)))
        fitted.rest.copy_(_gain((other_a * other_t).sum(), other_a.square().sum()))
        return fitted

    def forward(self, x: Float[Tensor, "B *x"]) -> Float[Tensor, "B *x"]:
        """Shrink each row."""
        self.check_rows(x)
        d = x.reshape(len(x), -1) - self.mean
        along = d @ self.basis.T
        shrunk = self.mean + self.rest * d + (along * (self.gain - self.rest)) @ self.basis
        return shrunk.reshape(x.shape)

    def config(self) -> dict[str, Any]:
        """Constructor arguments, as JSON values."""
        return {"x_shape": list(self.in_shape), "modes": len(self.basis)}


def _gain(product: Tensor, square: Tensor) -> Tensor:
    """Nothing along a direction: nothing to shrink."""
    tiny = torch.finfo(square.dtype).tiny
    return torch.where(square > 0, product / square.clamp_min(tiny), 1.0).clamp(0.0, 1.0)
