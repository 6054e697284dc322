"""What the noise decides: when a residual may be left, and how much a prior weighs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.protocols import GaussianPrior
from deceptron.core.scaler import Scaler
from deceptron.solve.objective import LeastSquares, Posterior

# Of the standard normal distribution.
QUANTILE_99 = 2.326


def noise_row(
    scaler: Scaler | None, noise_std: float | Tensor | None, y_shape: tuple[int, ...]
) -> Tensor | None:
    """Standard deviation of the noise, normalised units, one row of y."""
    if noise_std is None:
        return None
    level = torch.as_tensor(noise_std)
    if not bool(((level >= 0) & level.isfinite()).all()):
        raise ConfigError(f"noise_std must be finite and >= 0; got {noise_std}")
    try:
        return (scaler or Scaler()).noise(noise_std, y_shape)
    except RuntimeError:
        raise ShapeError(
            f"noise_std must broadcast to one row of y, shape {y_shape}; "
            f"got shape {tuple(level.shape)}"
        ) from None


def discrepancy(noise: Tensor, surrogate_error: float, tau: float | None) -> float:
    """The residual at which what is left may be noise, or the surrogate's fault.

    The mean of independent squares s_i^2 chi^2_1 has a relative standard deviation of
    sqrt(2 sum s^4) / sum s^2, and its root half of that.
    """
    if tau is None:
        variance = noise.double().square()
        total = variance.sum().clamp_min(torch.finfo(torch.float64).tiny)
        tau = 1 + 0.5 * QUANTILE_99 * float((2 * variance.square().sum()).sqrt() / total)
    return math.hypot(tau * _rms(noise), tau * surrogate_error)


def objective_of(
    noise: Tensor | None,
    surrogate_error: float,
    prior: GaussianPrior | None,
    x_shape: tuple[int, ...],
    like: Tensor,
) -> LeastSquares:
    """With a prior, what f cannot explain weighs it against the data."""
    if noise is not None:
        noise = torch.hypot(noise, torch.as_tensor(surrogate_error).to(noise))
    level = None if noise is None else _rms(noise)
    if prior is None:
        return LeastSquares(level)
    check_prior(prior, x_shape)
    if noise is None or level is None or not bool((noise > 0).all()):
        raise ConfigError("prior needs noise_std > 0: the noise weighs the prior against the data")
    return Posterior(level, (level / noise).to(like).reshape(-1), prior, x_shape)


def check_prior(prior: GaussianPrior | None, x_shape: tuple[int, ...]) -> None:
    """It must be one of rows of x."""
    if prior is not None and tuple(prior.mean.shape) != x_shape:
        raise ShapeError(
            f"prior.mean must have the shape of one row of x, {x_shape}; "
            f"got {tuple(prior.mean.shape)}"
        )


def _rms(row: Tensor) -> float:
    return float(row.square().mean().sqrt())
