"""Where rows begin: where the caller says, at what a map makes of the observation, or cold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.arrays import as_rows
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.filling import filled as fill
from deceptron.core.pieces import in_pieces
from deceptron.core.protocols import GaussianPrior, RowMap
from deceptron.solve.methods import Method
from deceptron.solve.noise import check_prior

if TYPE_CHECKING:
    from deceptron.solve.known import Known

# Passes of f and g in which the predictions at missing sensors settle.
FILLINGS = 4


@dataclass(frozen=True)
class Start:
    """Rows to start from, in x's own shape, and the passes through the pair's g and f that they
    took, of all rows or of each.
    """

    x: Float[Tensor, "B *x"]
    g: int | Int[Tensor, " B"] = 0
    f: int | Int[Tensor, " B"] = 0


def start_rows(
    known: Known,
    method: Method,
    target: Float[Tensor, "B m"],
    missing: Bool[Tensor, "B m"] | None,
    noise: Float[Tensor, "#B m"] | None,
    y_shape: tuple[int, ...],
    x0: Tensor | None,
    prior: GaussianPrior | None,
) -> Start:
    """Where rows of this method begin."""
    if x0 is not None:
        return Start(given_rows(x0, method, target, known.x_shape))
    if method.start == "wiener":
        if known.wiener is None:
            raise ConfigError(
                "method 'wiener' needs a pair that carries its ridge estimate: "
                "pair.wiener = dc.maps.Wiener.fit(x, y, noise_std=...)"
            )
        return _filled(known, "wiener", known.wiener, target, missing, noise, y_shape)
    g = known.g
    if method.start == "reverse" and g is not None:
        return _filled(known, "g", g, target, missing, noise, y_shape)
    if method.start == "finite reverse" and g is not None:
        name, reverse = "g", g
        if known.starts_at_linear_estimate(method, x0):
            assert known.wiener is not None
            name, reverse = "wiener", known.wiener
        start = _filled(known, name, reverse, target, missing, noise, y_shape)
        estimate = start.x
        check_prior(prior, tuple(estimate.shape[1:]))
        finite = estimate.reshape(len(estimate), -1).isfinite().all(1)
        cold = torch.zeros_like(estimate) if prior is None else prior.mean.to(estimate)
        finite = finite.reshape(-1, *(1,) * (estimate.ndim - 1))
        return replace(start, x=torch.where(finite, estimate, cold))
    if prior is not None:
        check_prior(prior, known.x_shape or tuple(prior.mean.shape))
        return Start(prior.mean.to(target).expand(len(target), *prior.mean.shape).clone())
    x_shape = known.x_shape
    if x_shape is None:
        if g is None:
            raise ConfigError("x0 is required when f is a bare callable: its shape is unknown")
        x_shape = tuple(_mapped("g", g, target[:1].reshape(1, *y_shape)).shape[1:])
    return Start(target.new_zeros(len(target), *x_shape))


def given_rows(
    x0: Tensor, method: Method, target: Tensor, x_shape: tuple[int, ...] | None
) -> Float[Tensor, "B *x"]:
    """What the caller gave to start from, checked and copied."""
    if method.direct:
        raise ConfigError(f"x0 has no use in method {method.name!r}; leave it out")
    x0 = as_rows("x0", x0, shape=x_shape, like=target)
    if len(x0) != len(target):
        raise ShapeError(f"x0 must have as many rows as y, {len(target)}; got {len(x0)}")
    return x0.detach().clone()


def _filled(
    known: Known,
    name: str,
    reverse: RowMap,
    target: Tensor,
    missing: Tensor | None,
    noise: Tensor | None,
    y_shape: tuple[int, ...],
) -> Start:
    """What a map makes of the observation with its missing sensors filled.

    By what they would most likely have shown, if the pair knows the covariance of its data. Else by
    f's prediction: D-IPG's proposal y_t - r_t with r = 0 at such a sensor, from the mean of the
    data (zero in normalised units) through the linear estimate, if there is one. Passes through f
    would make the first kind worse.
    """

    def mapped(kind: str, map_: RowMap, filled: Tensor) -> Tensor:
        return _mapped(kind, map_, filled.reshape(-1, *y_shape))

    once = int(name == "g")
    if missing is None:
        return Start(mapped(name, reverse, target), once)
    filled = torch.where(missing, 0.0, target)
    rows = (missing.any(1) & ~missing.all(1)).nonzero().flatten()
    if len(rows) == 0:
        return Start(mapped(name, reverse, filled), once)
    family = known.calibration.observations
    if family is not None and noise is not None:
        own = noise if len(noise) == 1 else noise[rows]
        filled[rows] = fill(family, target[rows], missing[rows], own)
        return Start(mapped(name, reverse, filled), once)
    first, kind = (known.wiener, "wiener") if known.wiener is not None else (reverse, name)
    x = mapped(kind, first, filled[rows])
    for _ in range(FILLINGS):
        predicted = known.f(x).detach().flatten(1)
        filled[rows] = torch.where(missing[rows], predicted, target[rows])
        x = mapped(name, reverse, filled[rows])
    of_f = torch.zeros(len(target), dtype=torch.int64, device=target.device)
    of_f[rows] = FILLINGS
    of_g = torch.full_like(of_f, once)
    of_g[rows] = once * FILLINGS + int(kind == "g")
    if len(rows) < len(target):
        everyone = mapped(name, reverse, filled)
        everyone[rows] = x
        x = everyone
    return Start(x, of_g, of_f)


def _mapped(name: str, reverse: RowMap, target: Tensor) -> Tensor:
    def checked(rows: Tensor) -> Tensor:
        x = reverse(rows)
        if not isinstance(x, Tensor) or x.ndim == 0 or len(x) != len(rows):
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            rule = "must return one row of x for each row of y"
            raise ShapeError(f"{name} {rule}; it returned {got}")
        return x.detach().clone()

    return in_pieces(checked, target)
