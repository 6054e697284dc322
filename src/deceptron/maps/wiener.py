"""The best linear estimate from training pairs: the baseline every learned map must beat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import ConfigError, ShapeError
from deceptron.maps.network import Network, check_pairs, check_shape, register


@register("wiener")
class Wiener(Network):
    """``x = mean_x + K (y - mean_y)``, ``K = C_xy (C_yy + S)^-1``, normalised measurements.

    Made by ``Wiener.fit``; the constructor alone gives the zero map of these shapes.
    """

    mean_x: Tensor
    mean_y: Tensor
    gain: Tensor

    def __init__(self, x_shape: Sequence[int], y_shape: Sequence[int]) -> None:
        super().__init__()
        self.out_shape = check_shape("Wiener(x_shape=...)", x_shape)
        self.in_shape = check_shape("Wiener(y_shape=...)", y_shape)
        n, m = math.prod(self.out_shape), math.prod(self.in_shape)
        self.register_buffer("mean_x", torch.zeros(n))
        self.register_buffer("mean_y", torch.zeros(m))
        self.register_buffer("gain", torch.zeros(n, m))

    @classmethod
    def fit(
        cls,
        x: Float[Tensor, "N *x"],
        y: Float[Tensor, "N *y"],
        *,
        noise_std: float | Tensor,
    ) -> Wiener:
        """Closed form from noise-free pairs, computed in float64 and kept in the dtype of ``x``.

        ``noise_std`` is the standard deviation of the measurement noise in the units of ``y``, a
        number or one for each component, and S = diag(noise_std^2). For normalised measurements
        that is ``problem.noise_std / scaler.scale``: normalising makes quiet components noisy.
        """
        check_pairs("Wiener", x, y)
        noise = torch.as_tensor(noise_std, dtype=torch.float64, device=x.device)
        if not bool(((noise >= 0) & noise.isfinite()).all()):
            raise ConfigError(f"noise_std must be finite and >= 0; got {noise_std}")
        try:
            variance = noise.square().broadcast_to(y.shape[1:]).flatten()
        except RuntimeError:
            raise ShapeError(
                f"noise_std must broadcast to one row of y, shape {tuple(y.shape[1:])}; "
                f"got {tuple(noise.shape)}"
            ) from None
        estimate = cls(x.shape[1:], y.shape[1:]).to(dtype=x.dtype, device=x.device)
        mean_x, mean_y, gain = _gain(x.flatten(1).double(), y.flatten(1).double(), variance)
        estimate.mean_x.copy_(mean_x)
        estimate.mean_y.copy_(mean_y)
        estimate.gain.copy_(gain)
        return estimate

    def forward(self, y: Float[Tensor, "B *y"]) -> Float[Tensor, "B *x"]:
        """Estimate each row."""
        self.check_rows(y)
        x = torch.addmm(self.mean_x, y.reshape(len(y), -1) - self.mean_y, self.gain.T)
        return x.reshape(len(y), *self.out_shape)

    def config(self) -> dict[str, Any]:
        """Constructor arguments, as JSON values."""
        return {"x_shape": list(self.out_shape), "y_shape": list(self.in_shape)}


def _gain(
    x: Float[Tensor, "N n"], y: Float[Tensor, "N m"], variance: Float[Tensor, " m"]
) -> tuple[Float[Tensor, " n"], Float[Tensor, " m"], Float[Tensor, "n m"]]:
    mean_x, mean_y = x.mean(0), y.mean(0)
    x, y = x - mean_x, y - mean_y
    covariance = y.T @ y / len(y)
    covariance.diagonal().add_(variance)
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if int(failed):
        raise ConfigError(
            "Wiener.fit(noise_std=...) is too small for these measurements, whose covariance is "
            f"singular; got {float(variance.max().sqrt()):g} at most"
        )
    gain = torch.cholesky_solve(y.T @ x / len(y), factor).T
    return mean_x, mean_y, gain
