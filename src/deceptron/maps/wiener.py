"""The best linear estimate from training pairs: the baseline every learned map must beat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import ConfigError, ShapeError
from deceptron.core.checks import check_range, check_rows
from deceptron.maps.network import Network, check_shape, register


@register("wiener")
class Wiener(Network):
    """``x = mean_x + K (y - mean_y)``, ``K = C_xy (C_yy + ridge I)^-1``, normalised measurements.

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
        ridge: float | None = None,
        noise_level: float | None = None,
    ) -> Wiener:
        """Closed form from noise-free pairs, computed in float64 and kept in the dtype of ``x``.

        ``ridge`` is the variance of the measurement noise in normalised units;
        ``noise_level`` its square root (``scaler.noise_level(...)`` gives it). State one of them.
        """
        check_rows("x", x)
        check_rows("y", y, dtype=x.dtype, device=x.device)
        if len(x) != len(y):
            raise ShapeError(f"x and y must have the same number of rows; got {len(x)}, {len(y)}")
        if (ridge is None) == (noise_level is None):
            raise ConfigError("Wiener.fit needs exactly one of ridge and noise_level")
        if noise_level is not None:
            ridge = check_range("noise_level", noise_level, low=0.0, open_high=True) ** 2
        assert ridge is not None
        check_range("ridge", ridge, low=0.0, open_high=True)
        for name, value in (("x", x), ("y", y)):
            if not bool(value.isfinite().all()):
                raise ConfigError(f"Wiener.fit({name}=...) must be finite")
        estimate = cls(x.shape[1:], y.shape[1:]).to(dtype=x.dtype, device=x.device)
        mean_x, mean_y, gain = _ridge(x.flatten(1).double(), y.flatten(1).double(), ridge)
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


def _ridge(
    x: Float[Tensor, "N n"], y: Float[Tensor, "N m"], ridge: float
) -> tuple[Float[Tensor, " n"], Float[Tensor, " m"], Float[Tensor, "n m"]]:
    mean_x, mean_y = x.mean(0), y.mean(0)
    x, y = x - mean_x, y - mean_y
    covariance = y.T @ y / len(y)
    covariance.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if int(failed):
        raise ConfigError(
            f"Wiener.fit(ridge=...) is too small for these measurements, whose covariance is "
            f"singular; got {ridge:g}"
        )
    gain = torch.cholesky_solve(y.T @ x / len(y), factor).T
    return mean_x, mean_y, gain
