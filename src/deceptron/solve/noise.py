"""What was observed and how well: missing components, the noise, and the objective they make."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from deceptron.core.arrays import real_tensor
from deceptron.core.checks import check_range
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.protocols import GaussianPrior
from deceptron.core.scaler import Scaler
from deceptron.laws.noise import noise_limit
from deceptron.solve.objective import LeastSquares, Regularised


def noise_rows(noise_std: object, y: Float[Tensor, "B *y"], scaler: Scaler) -> Tensor | None:
    """Standard deviation of the noise, normalised units: one row for all of y, or one for each.

    A tensor with as many axes as y has a row for each of its rows. None: it is not known.
    """
    if noise_std is None:
        return None
    level = real_tensor("noise_std", noise_std).detach().double()
    least, most = (float(end) for end in level.aminmax()) if level.numel() else (0.0, 0.0)
    if not least >= 0:  # NaN compares false
        raise ConfigError(f"noise_std must be >= 0 (infinite: a missing sensor); got {least:g}")
    y_shape = tuple(y.shape[1:])
    own = level.ndim == y.ndim
    wanted = (len(level) if own else 1, *y_shape)
    try:
        rows = level.broadcast_to(wanted)
        if own and len(rows) not in (1, len(y)):
            raise RuntimeError
    except RuntimeError:
        raise ShapeError(
            f"noise_std must be a number, broadcast to one row of y, shape {y_shape}, or have a "
            f"row for each of its {len(y)} rows; got shape {tuple(level.shape)}"
        ) from None
    if most == 0:
        return None
    if least == 0:
        raise ConfigError("noise_std must be > 0 in every component, or 0 in all")
    return (rows.to(y.device) / scaler.scale.double()).flatten(1)


def missing_in(
    target: Float[Tensor, "B m"], noise: Float[Tensor, "#B m"] | None
) -> Bool[Tensor, "B m"] | None:
    """What was not observed: NaN in the target, or infinite noise. None: nothing is missing."""
    missing = target.isnan()
    if noise is not None:
        missing = missing | noise.isinf()
    return missing if bool(missing.any()) else None


def objective_of(
    target: Float[Tensor, "B m"],
    missing: Bool[Tensor, "B m"] | None,
    noise: Float[Tensor, "#B m"] | None,
    surrogate_error: float,
    *,
    tau: float | None,
    prior: GaussianPrior | None,
    x_shape: tuple[int, ...],
) -> LeastSquares:
    """What the rows minimise.

    What f errs by counts as noise. ``tau`` is by default what 99% of pure noise stays below: the
    mean of m squares of standard normals has the standard deviation sqrt(2 / m), its root half of
    that.
    """
    if tau is not None:
        check_range("tau", tau, low=0, open_low=True)
    if missing is None:
        observed, count = None, target.new_full((1,), max(1, target.shape[1]))
    else:
        observed = (~missing).to(target)
        count = observed.sum(1).clamp_min(1.0)
    if noise is None:
        if tau is not None:
            raise ConfigError(
                "tau needs noise_std > 0: a row stops at tau times the noise; "
                f"got {tau} and no noise"
            )
        if prior is not None:
            raise ConfigError(
                "prior needs noise_std > 0: the noise weighs the prior against the data"
            )
        return LeastSquares(count, observed, observed)
    here = (1.0 if observed is None else observed.double()) * torch.ones_like(noise)
    finite = torch.where(noise.isinf(), 1.0, noise)
    total = torch.hypot(finite, torch.as_tensor(surrogate_error).to(finite))
    level = ((total.square() * here).sum(1) / here.sum(1).clamp_min(1.0)).sqrt()
    level = torch.where(level > 0, level, 1.0)
    weight = (level[:, None] / total * here).to(target)
    # Equal noise everywhere: multiplying by one would cost a pass over y each time.
    equal = bool((weight - 1).abs().max() < 1e-6)
    settings: dict[str, Any] = {
        "count": count,
        "observed": observed,
        "weight": None if equal else weight,
        "level": level.to(target),
        "tau": _limit(count, tau, prior),
    }
    if prior is None:
        return LeastSquares(**settings)
    check_prior(prior, x_shape)
    return Regularised(**settings, prior=prior, x_shape=x_shape)


def _limit(
    count: Float[Tensor, "#B"], tau: float | None, prior: GaussianPrior | None
) -> Float[Tensor, "#B"] | None:
    if tau is not None:
        return torch.full_like(count, tau)
    # With a prior there is an answer to converge to.
    return None if prior is not None else noise_limit(count)


def check_prior(prior: GaussianPrior | None, x_shape: tuple[int, ...]) -> None:
    """It must be one of rows of x."""
    if prior is not None and tuple(prior.mean.shape) != x_shape:
        raise ShapeError(
            f"prior.mean must have the shape of one row of x, {x_shape}; "
            f"got {tuple(prior.mean.shape)}"
        )
