"""What a family of latents says about an answer that already explains its data.

Where many answers explain the data as well as their noise allows, an iterative solver returns the
one it meets first, with the noise that it has fitted. In the principal directions of the training
latents each coefficient of such an answer is the truth plus an error, and the best linear guess of
the truth is the coefficient times ``<answer, truth> / <answer, answer>``: near one where the data
decide, small where the family varies less than the solver errs. Both averages are taken over
validation rows, so nothing is assumed of either distribution.
"""

from __future__ import annotations

import copy
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

    ``Shrinkage.along(family).fit(answers, truth)`` makes one; the constructor alone gives the map
    that leaves every row as it is.
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
        self.register_buffer("gain", torch.ones(modes))
        self.register_buffer("rest", torch.ones(()))

    @classmethod
    def along(cls, family: Float[Tensor, "N *x"], *, modes: int) -> Shrinkage:
        """The principal directions of samples, at most ``modes``, nothing shrunk yet.

        Computed in float64, kept in the dtype of ``family``.
        """
        _check("family", family, family)
        check_count("Shrinkage.along(modes=...)", modes)
        samples = family.flatten(1).double()
        mean = samples.mean(0)
        basis = torch.linalg.svd(samples - mean, full_matrices=False).Vh[:modes]
        made = cls(family.shape[1:], len(basis)).to(dtype=family.dtype, device=family.device)
        made.mean.copy_(mean)
        made.basis.copy_(basis)
        return made

    def fit(self, answers: Float[Tensor, "M *x"], truth: Float[Tensor, "M *x"]) -> Shrinkage:
        """The same directions with gains, between 0 and 1, from answers whose truth is known."""
        like = self.mean.reshape(1, *self.in_shape)
        for name, rows in (("answers", answers), ("truth", truth)):
            _check(name, rows, like)
        if len(answers) != len(truth):
            raise ShapeError(
                "answers and truth must have the same number of rows; "
                f"got {len(answers)}, {len(truth)}"
            )
        basis = self.basis.double()
        a, t = (rows.flatten(1).double() - self.mean for rows in (answers, truth))
        along_a, along_t = a @ basis.T, t @ basis.T
        other_a, other_t = a - along_a @ basis, t - along_t @ basis
        fitted = copy.deepcopy(self)
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


def _check(name: str, rows: Tensor, like: Tensor) -> None:
    check_rows(name, rows, dtype=like.dtype, device=like.device)
    if rows.shape[1:] != like.shape[1:]:
        raise ShapeError(
            f"{name} must have rows of shape {tuple(like.shape[1:])}; "
            f"got a tensor of shape {tuple(rows.shape)}"
        )
    if not bool(rows.isfinite().all()):
        raise ConfigError(f"{name} must be finite")
