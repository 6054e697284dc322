"""Dense local geometry of a pair at a point: what the paper's theorems compare and bound.

It forms Jacobians, n forward passes a row, and is meant for theory, tests and diagnosis of small
problems. Everything is over flattened components, a row of the batch at a time; a row whose
Jacobians are not finite gives NaN and leaves the others alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import Pair, ShapeError
from deceptron.core.checks import check_pair, check_range, check_rows
from deceptron.core.differentiate import dense_jacobian, jvp


@dataclass(frozen=True)
class LocalGeometry:
    """``J = J_f(x)``, ``G = J_g(f(x))`` and ``r = f(x) - y*`` of each row.

    The bounds hold where J has full column rank, and are infinite where it has not. A ``step``
    is the paper's damping alpha.
    """

    jacobian: Float[Tensor, "B m n"]
    reverse_jacobian: Float[Tensor, "B n m"]
    residual: Float[Tensor, "B m"]

    @classmethod
    def at(
        cls, pair: Pair, x: Float[Tensor, "B *x"], target: Float[Tensor, "B *y"]
    ) -> LocalGeometry:
        """Evaluate both Jacobians and the residual, without a graph."""
        with torch.no_grad():
            y, residual = _residual(pair, x, target)
            return cls(dense_jacobian(pair.f, x), dense_jacobian(pair.g, y), residual.flatten(1))

    @cached_property
    def composition_defect(self) -> Float[Tensor, "B n n"]:
        """``A = G J - I``."""
        n = self.jacobian.shape[2]
        identity = torch.eye(n, dtype=self.jacobian.dtype, device=self.jacobian.device)
        return self.reverse_jacobian @ self.jacobian - identity

    @property
    def defect_frobenius(self) -> Float[Tensor, " B"]:
        """``|A|_F``, whose square the penalty estimates."""
        return torch.linalg.matrix_norm(self.composition_defect)

    @property
    def defect_spectral(self) -> Float[Tensor, " B"]:
        """``|A|_2``, which the deviation bound needs; at most ``|A|_F``."""
        return _spectral_norm(self.composition_defect)

    @property
    def smallest_singular_value(self) -> Float[Tensor, " B"]:
        """``sigma_min(J)``; zero where J has not full column rank."""
        _, sigma, _, solid = self._factors
        if self.jacobian.shape[1] < self.jacobian.shape[2]:
            return torch.zeros_like(sigma[:, 0])
        last = sigma[:, -1]
        return torch.where(solid[:, -1] | last.isnan(), last, torch.zeros_like(last))

    def gauss_newton_direction(self, *, step: float = 1.0) -> Float[Tensor, "B n"]:
        """``-alpha J^+ r``, the damped Gauss-Newton direction."""
        u, sigma, vh, solid = self._factors
        coefficients = _apply(u.mT, self.residual) / torch.where(solid, sigma, torch.inf)
        return -_step(step) * _apply(vh.mT, coefficients)

    def dipg_direction(self, *, step: float = 1.0) -> Float[Tensor, "B n"]:
        """``-alpha G r``, the first-order direction of D-IPG."""
        return -_step(step) * _apply(self.reverse_jacobian, self.residual)

    def deviation(self, *, step: float = 1.0) -> Float[Tensor, " B"]:
        """``|alpha (J^+ - G) r|``, the distance between the two directions."""
        difference = self.dipg_direction(step=step) - self.gauss_newton_direction(step=step)
        return torch.linalg.vector_norm(difference, dim=1)

    def deviation_bound(self, *, step: float = 1.0) -> Float[Tensor, " B"]:
        """``alpha |G J - I|_2 / sigma_min(J) |r|``: holds for residuals in the range of J."""
        return _step(step) * self._amplification * torch.linalg.vector_norm(self.residual, dim=1)

    def residual_split(self) -> tuple[Float[Tensor, "B m"], Float[Tensor, "B m"]]:
        """``r`` as a part in the range of J and a part orthogonal to it."""
        u, _, _, solid = self._factors
        basis = u * solid.unsqueeze(1)
        parallel = _apply(basis, _apply(basis.mT, self.residual))
        return parallel, self.residual - parallel

    def full_residual_bound(self, *, step: float = 1.0) -> Float[Tensor, " B"]:
        """``alpha (|G J - I|_2 / sigma_min(J) |r_par| + |G|_2 |r_orth|)``: for any residual."""
        parallel, orthogonal = (
            torch.linalg.vector_norm(part, dim=1) for part in self.residual_split()
        )
        reverse_norm = _spectral_norm(self.reverse_jacobian)
        return _step(step) * (self._amplification * parallel + reverse_norm * orthogonal)

    @property
    def _amplification(self) -> Float[Tensor, " B"]:
        sigma = self.smallest_singular_value
        infinite = torch.full_like(sigma, torch.inf)
        return torch.where(sigma == 0, infinite, self.defect_spectral / sigma)

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``U, sigma, V', solid``; solid marks singular values above round-off."""
        finite = self.jacobian.isfinite().all(dim=2).all(dim=1)
        u, sigma, vh = torch.linalg.svd(_finite(self.jacobian), full_matrices=False)
        round_off = max(self.jacobian.shape[1:]) * torch.finfo(sigma.dtype).eps
        solid = sigma > round_off * sigma[:, :1]
        # NaN in U reaches everything that is computed from a row without finite Jacobian.
        nan = torch.where(finite, 0.0, torch.nan).to(sigma)
        return u + nan[:, None, None], sigma + nan[:, None], vh, solid


def first_order_remainder(
    pair: Pair, x: Float[Tensor, "B *x"], target: Float[Tensor, "B *y"], *, step: float = 1.0
) -> Float[Tensor, "B *x"]:
    """``g(y - alpha r) - (g(y) - alpha G r)`` with ``y = f(x)``: falls with alpha squared."""
    with torch.no_grad():
        y, residual = _residual(pair, x, target)
        value, slope = jvp(pair.g, y, residual)
        return pair.g(y - _step(step) * residual) - (value - step * slope)


def _residual(pair: Pair, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    check_pair(pair)
    check_rows("x", x)
    y = pair.f(x)
    check_rows("target", target, tuple(y.shape[1:]), dtype=x.dtype, device=x.device)
    if len(target) != len(x):
        raise ShapeError(f"target must have as many rows as x, {len(x)}; got {len(target)}")
    return y, y - target


def _step(step: float) -> float:
    return check_range("step", step, low=0.0, open_high=True)


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(2)).squeeze(2)


def _finite(matrix: Tensor) -> Tensor:
    finite = matrix.isfinite().all(dim=2, keepdim=True).all(dim=1, keepdim=True)
    return torch.where(finite, matrix, torch.zeros_like(matrix))


def _spectral_norm(matrix: Tensor) -> Float[Tensor, " B"]:
    finite = matrix.isfinite().all(dim=2).all(dim=1)
    norm = torch.linalg.matrix_norm(_finite(matrix), ord=2)
    return torch.where(finite, norm, torch.full_like(norm, torch.nan))
