"""A pair of one grid at work on another, see ``Deceptron.at_grid``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from deceptron.core import Bounds, ConfigError, Scaler
from deceptron.core.bases import GridBasis
from deceptron.core.checks import check_choice
from deceptron.laws.calibration import Calibration
from deceptron.maps.layouts import KNOWN, LAYOUTS, OF_WAVES, grid_axes, regridded, stretch
from deceptron.maps.network import Network, is_registered
from deceptron.maps.resampled import FIXED, Resampled

if TYPE_CHECKING:
    from deceptron.maps.pair import Deceptron


def regrid(
    pair: Deceptron, grid: int | Sequence[int], latents: str | None, observations: str | None
) -> dict[str, Any]:
    """What is another on the other grid, as arguments of the pair's constructor."""
    if pair.x_shape is None or pair.y_shape is None:
        raise ConfigError("at_grid needs a pair that knows x_shape and y_shape; this one does not")
    parts = {name: getattr(pair, name) for name in ("f", "g", "wiener")}
    for name, part in parts.items():
        if part is not None and not is_registered(part):
            raise ConfigError(
                f"at_grid needs maps that the library can build; {name} is a {type(part).__name__}"
            )
    if pair.units is not None and len(pair.x_shape) == 1:
        raise ConfigError(
            "at_grid needs a field; the components of this x have units of their own, so they are "
            "no points of a grid"
        )
    x_layout = _latent_layout(pair, latents)
    y_layout = _observation_layout(pair, x_layout, observations)
    x_shape = regridded(pair.x_shape, grid)
    y_shape = pair.y_shape
    if y_layout != FIXED:
        y_shape = (*y_shape[: -grid_axes(y_shape)], *x_shape[-grid_axes(x_shape) :])
    scaler = Scaler(stretch(pair.scaler.shift, y_shape), stretch(pair.scaler.scale, y_shape))
    scalers = scaler, pair.scaler

    def forwards(part: Network) -> Network:
        layouts = x_layout, y_layout
        return Resampled.of(
            part, x_shape, y_shape, layouts=layouts, measured="out", scalers=scalers
        )

    def backwards(part: Network | None) -> Network | None:
        if part is None:
            return None
        layouts = y_layout, x_layout
        made = Resampled.of(part, y_shape, x_shape, layouts=layouts, measured="in", scalers=scalers)
        if noise_std is None:
            return made
        return made.at_noise(scaler.noise_level(noise_std, y_shape))

    noise_std = pair.calibration.noise_std
    if isinstance(noise_std, Tensor):
        noise_std = stretch(noise_std, y_shape)
    known = Calibration(
        noise_std=noise_std,
        surrogate_error=pair.calibration.surrogate_error,
        start=pair.calibration.start,
        # Root mean squares hardly change with the grid; on one where its maps fail, they do.
        trust=pair.calibration.trust,
    )
    return {
        "forward": forwards(parts["f"]),
        "reverse": backwards(parts["g"]),
        "wiener": backwards(parts["wiener"]),
        "scaler": scaler,
        "bounds": None if pair.bounds is None else _bounds(pair.bounds, x_shape),
        "x_shape": x_shape,
        "y_shape": y_shape,
        "calibration": known,
        "provenance": {**pair.provenance, "trained_at": list(pair.x_shape)},
    }


def _latent_layout(pair: Deceptron, stated: str | None) -> str:
    assert pair.x_shape is not None
    if stated is not None:
        return check_choice("at_grid(latents=...)", stated, tuple(LAYOUTS))
    if pair.name in KNOWN:
        return KNOWN[pair.name][0]
    found = None
    if len(pair.x_shape) > 1:
        family = pair.calibration.family
        found = _suggested(None if family is None else family.basis, pair.x_shape)
    if found is None:
        raise ConfigError(
            "at_grid cannot tell where the points of x lie, or whether x is a field at all: state "
            f"latents=..., one of {', '.join(LAYOUTS)}"
        )
    return found


def _observation_layout(pair: Deceptron, x_layout: str, stated: str | None) -> str:
    assert pair.x_shape is not None
    assert pair.y_shape is not None
    axes = grid_axes(pair.x_shape)
    shared = len(pair.y_shape) == len(pair.x_shape)
    shared = shared and pair.y_shape[-axes:] == pair.x_shape[-axes:]
    if stated is not None:
        check_choice("at_grid(observations=...)", stated, (*LAYOUTS, FIXED))
        if stated != FIXED and not shared:
            raise ConfigError(
                f"at_grid(observations={stated!r}) needs y on the grid of x, shape {pair.x_shape}; "
                f"y has shape {pair.y_shape}: it stays as it is with observations={FIXED!r}"
            )
        return stated
    if pair.name in KNOWN:
        return KNOWN[pair.name][1]
    if not shared:
        return FIXED
    known = pair.calibration.observations
    return _suggested(None if known is None else known.basis, pair.y_shape) or x_layout


def _suggested(basis: object, shape: tuple[int, ...]) -> str | None:
    """One layout for all axes, by the waves in which the training data were most concentrated."""
    if not isinstance(basis, GridBasis):
        return None
    kinds = set(basis.kinds[-grid_axes(shape) :])
    return OF_WAVES.get(kinds.pop()) if len(kinds) == 1 else None


def _bounds(bounds: Bounds, x_shape: tuple[int, ...]) -> Bounds:
    low, high = (stretch(s, x_shape) if isinstance(s, Tensor) else s for s in bounds)
    return low, high
