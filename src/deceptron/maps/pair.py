"""The learned pair that every solve is given: two maps, their units, their box and their names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from deceptron.core import Bounds, Box, ConfigError, Scaler, ShapeError
from deceptron.maps.network import check_shape


class Deceptron(nn.Module):
    """A forward surrogate ``pair.f(x)`` and a reverse map ``pair.g(y)``, any two modules.

    Both work in normalised measurement space; ``pair.scaler`` leads there from physical units
    (by default they are the same). ``bounds`` is the box of the latents, ``wiener`` a linear
    estimate that the ``"wiener"`` method uses, ``shrinkage`` a map of latents that the guarded
    method tries on its answers, ``provenance`` any JSON worth keeping with the weights. Shapes
    are of one row; maps that know theirs (``in_shape``, ``out_shape``) state them.
    """

    f: nn.Module
    g: nn.Module
    scaler: Scaler
    wiener: nn.Module | None
    shrinkage: nn.Module | None

    def __init__(
        self,
        forward: nn.Module,
        reverse: nn.Module,
        *,
        scaler: Scaler | None = None,
        bounds: Bounds | None = None,
        x_shape: Sequence[int] | None = None,
        y_shape: Sequence[int] | None = None,
        name: str | None = None,
        wiener: nn.Module | None = None,
        shrinkage: nn.Module | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.f = _module("forward", forward)
        self.g = _module("reverse", reverse)
        if scaler is not None and not isinstance(scaler, Scaler):
            raise ConfigError(
                f"Deceptron(scaler=...) must be a Scaler; got {type(scaler).__name__}"
            )
        self.scaler = Scaler() if scaler is None else scaler
        self.wiener = None if wiener is None else _module("wiener", wiener)
        self.shrinkage = None if shrinkage is None else _module("shrinkage", shrinkage)
        of_x = (
            (forward, "in_shape"),
            (reverse, "out_shape"),
            (wiener, "out_shape"),
            (shrinkage, "in_shape"),
        )
        of_y = (forward, "out_shape"), (reverse, "in_shape"), (wiener, "in_shape")
        self.x_shape = _agreed("x_shape", x_shape, of_x)
        self.y_shape = _agreed("y_shape", y_shape, of_y)
        self.name = name
        self.provenance = dict(provenance or {})
        self._set_bounds(bounds)

    @property
    def bounds(self) -> Bounds | None:
        """``(low, high)`` of the latents; tensors follow ``pair.to(...)``."""
        if self._low is None or self._high is None:
            return None
        return self._low, self._high

    @property
    def surrogate_error(self) -> float:
        """RMS error of f on validation rows, normalised units, as its training noted it; else 0.

        A solve on the surrogate cannot and should not fit data more closely than that.
        """
        measured = self.provenance.get("validation", {}).get("forward", {})
        return float(measured.get("val_task", 0.0)) ** 0.5

    @property
    def noise_std(self) -> float | None:
        """Noise of the observations it was trained for, physical units; None if it does not know.

        The guarded solver stops there unless it is told another noise.
        """
        known = self.provenance.get("fields", {}).get("noise_std")
        # A noise of its own for each component is kept as a digest only.
        return float(known) if isinstance(known, (int, float)) and known > 0 else None

    @property
    def calibration(self) -> dict[str, Any]:
        """What validation data taught about error bars and trust; empty if never calibrated."""
        return dict(self.provenance.get("calibration", {}))

    @property
    def interval_factor(self) -> float | None:
        """What error bars are multiplied by, so that 90% intervals hold 90% of validation data."""
        factor = self.calibration.get("interval_factor")
        return None if factor is None else float(factor)

    @property
    def prior_share(self) -> float | None:
        """Part of the prior's covariance that error bars count, as fitted on validation data."""
        share = self.calibration.get("prior_share")
        return None if share is None else float(share)

    def at_noise(self, noise_std: float | Tensor) -> Deceptron:
        """This pair, its weights shared, with g for noise of this size (physical units).

        That is the pair itself unless g was trained for a range of noise levels; outside of the
        range g is the nearest it knows.
        """
        bind = getattr(self.g, "at_noise", None)
        if bind is None or self.y_shape is None or self.g.noise_range is None:
            return self
        try:
            level = self.scaler.noise_level(noise_std, self.y_shape)
        except RuntimeError:
            raise ShapeError(
                f"noise_std must broadcast to one row of y, shape {self.y_shape}; "
                f"got {tuple(torch.as_tensor(noise_std).shape)}"
            ) from None
        if not 0 <= level < math.inf:
            raise ConfigError(f"noise_std must be finite and >= 0; got {noise_std}")
        return Deceptron(
            self.f,
            bind(level),
            scaler=self.scaler,
            bounds=self.bounds,
            x_shape=self.x_shape,
            y_shape=self.y_shape,
            name=self.name,
            wiener=self.wiener,
            shrinkage=self.shrinkage,
            provenance=self.provenance,
        )

    def forward(self, x: Float[Tensor, "B *x"]) -> Float[Tensor, "B *y"]:
        """The forward surrogate, ``pair.f(x)``."""
        y: Tensor = self.f(x)
        return y

    def extra_repr(self) -> str:
        """Name and shapes, ahead of the modules."""
        return f"name={self.name!r}, x_shape={self.x_shape}, y_shape={self.y_shape}"

    def _set_bounds(self, bounds: Bounds | None) -> None:
        self._low: float | Tensor | None = None
        self._high: float | Tensor | None = None
        if bounds is None:
            return
        like = torch.empty(0, dtype=torch.float64)
        box = Box.parse(bounds, self.x_shape or _common_shape(bounds), like)
        for name, side, given in zip(("_low", "_high"), (box.low, box.high), bounds, strict=True):
            if isinstance(side, Tensor):
                assert isinstance(given, Tensor)
                delattr(self, name)
                self.register_buffer(name, given.detach().clone())
            else:
                setattr(self, name, side)


def _module(argument: str, value: object) -> nn.Module:
    if not isinstance(value, nn.Module):
        raise ConfigError(
            f"Deceptron({argument}=...) must be an nn.Module; got {type(value).__name__}. "
            "For plain functions, any object with methods f and g is a pair that dc.solve takes"
        )
    return value


def _agreed(
    argument: str, given: Sequence[int] | None, maps: Sequence[tuple[nn.Module | None, str]]
) -> tuple[int, ...] | None:
    shape = None if given is None else check_shape(f"Deceptron({argument}=...)", given)
    for module, attribute in maps:
        stated = getattr(module, attribute, None)
        if not isinstance(stated, (tuple, list)):
            continue
        if shape is None:
            shape = tuple(stated)
        elif tuple(stated) != shape:
            raise ShapeError(
                f"Deceptron({argument}=...) must agree with its maps: "
                f"{type(module).__name__}.{attribute} is {tuple(stated)}; got {shape}"
            )
    return shape


def _common_shape(bounds: Bounds) -> tuple[int, ...]:
    if not isinstance(bounds, (tuple, list)):
        return ()
    shapes = [side.shape for side in bounds if isinstance(side, Tensor)]
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        raise ShapeError(
            f"bounds must have shapes that fit each other; got {[tuple(s) for s in shapes]}"
        ) from None
