"""Where rows begin: where the caller says, at what a map makes of the observation, or cold."""

from __future__ import annotations

import torch
from torch import Tensor

from deceptron.core.checks import check_rows
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.protocols import GaussianPrior, RowMap
from deceptron.solve.methods import Method
from deceptron.solve.noise import check_prior


def start_rows(
    pair: object,
    method: Method,
    target: Tensor,
    x0: Tensor | None,
    g: RowMap | None,
    prior: GaussianPrior | None,
) -> Tensor:
    """Rows to start from, in x's own shape."""
    if x0 is not None:
        if method.direct:
            raise ConfigError(f"x0 has no use in method {method.name!r}; leave it out")
        check_rows("x0", x0, dtype=target.dtype, device=target.device)
        if len(x0) != len(target):
            raise ShapeError(f"x0 must have as many rows as y, {len(target)}; got {len(x0)}")
        return x0.detach().clone()
    if method.start == "wiener":
        estimate = getattr(pair, "wiener", None)
        if estimate is None:
            raise ConfigError(
                "method 'wiener' needs a pair that carries its ridge estimate: "
                "pair.wiener = dc.maps.Wiener.fit(x, y, noise_std=...)"
            )
        return _reverse_rows("wiener", estimate, target)
    if method.start == "reverse" and g is not None:
        return _reverse_rows("g", g, target)
    if method.start == "finite reverse" and g is not None:
        estimate = _reverse_rows("g", g, target)
        check_prior(prior, tuple(estimate.shape[1:]))
        finite = estimate.flatten(1).isfinite().all(1)
        cold = torch.zeros_like(estimate) if prior is None else prior.mean.to(estimate)
        return torch.where(finite.reshape(-1, *(1,) * (estimate.ndim - 1)), estimate, cold)
    if prior is not None:
        check_prior(prior, getattr(pair, "x_shape", None) or tuple(prior.mean.shape))
        return prior.mean.to(target).expand(len(target), *prior.mean.shape).clone()
    x_shape = getattr(pair, "x_shape", None)
    if x_shape is None:
        if g is None:
            raise ConfigError("x0 is required when f is a bare callable: its shape is unknown")
        x_shape = tuple(_reverse_rows("g", g, target[:1]).shape[1:])
    return target.new_zeros(len(target), *x_shape)


def _reverse_rows(name: str, reverse: RowMap, target: Tensor) -> Tensor:
    x = reverse(target)
    if not isinstance(x, Tensor) or x.ndim == 0 or len(x) != len(target):
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ShapeError(f"{name} must return one row of x for each row of y; it returned {got}")
    return x.detach()
