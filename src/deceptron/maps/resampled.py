"""A network that works on one grid, asked and answering on another."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import Scaler
from deceptron.core.checks import check_choice
from deceptron.maps.layouts import grid_axes, noise_gain, resample
from deceptron.maps.network import Network, as_network, check_shape, register

FIXED = "fixed"


@register("resampled")
class Resampled(Network):
    """Input resampled to the grid of ``inner``, output back from it.

    ``in_layout`` and ``out_layout`` say where points lie (``maps/layouts.py``), or ``"fixed"`` for
    a side that does not follow the grid. Measurements, the side ``measured`` (``"in"`` or
    ``"out"``), are resampled in physical units: each grid has its own scaler. ``inner`` is a
    network, or its kind and config as a checkpoint holds them.
    """

    shift: Tensor
    scale: Tensor
    inner_shift: Tensor
    inner_scale: Tensor

    def __init__(
        self,
        inner: Network | Mapping[str, Any],
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        *,
        in_layout: str,
        out_layout: str,
        measured: str,
        scale_shape: Sequence[int] = (),
        inner_scale_shape: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.inner = as_network(inner)
        self.in_shape = check_shape("Resampled(in_shape=...)", in_shape)
        self.out_shape = check_shape("Resampled(out_shape=...)", out_shape)
        self.in_layout, self.out_layout = in_layout, out_layout
        self.measured = check_choice("Resampled(measured=...)", measured, ("in", "out"))
        self.scale_shape, self.inner_scale_shape = tuple(scale_shape), tuple(inner_scale_shape)
        for name, shape in (("", self.scale_shape), ("inner_", self.inner_scale_shape)):
            self.register_buffer(f"{name}shift", torch.zeros(shape))
            self.register_buffer(f"{name}scale", torch.ones(shape))

    @classmethod
    def of(
        cls,
        inner: Network,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        *,
        layouts: tuple[str, str],
        measured: str,
        scalers: tuple[Scaler, Scaler],
    ) -> Resampled:
        """With the scalers of the new grid and of ``inner``."""
        new, old = scalers
        made = cls(
            inner,
            in_shape,
            out_shape,
            in_layout=layouts[0],
            out_layout=layouts[1],
            measured=measured,
            scale_shape=new.scale.shape,
            inner_scale_shape=old.scale.shape,
        )
        made.shift, made.scale = new.shift.clone(), new.scale.clone()
        made.inner_shift, made.inner_scale = old.shift.clone(), old.scale.clone()
        return made.train(inner.training)

    def forward(self, rows: Float[Tensor, "B *n"]) -> Float[Tensor, "B *m"]:
        """Map each row."""
        self.check_rows(rows)
        if self.measured == "in":
            physical = _resampled(
                rows * self.scale + self.shift, self.in_layout, self.inner.in_shape
            )
            inside = self.inner((physical - self.inner_shift) / self.inner_scale)
            return _resampled(inside, self.out_layout, self.out_shape)
        inside = self.inner(_resampled(rows, self.in_layout, self.inner.in_shape))
        physical = inside * self.inner_scale + self.inner_shift
        physical = _resampled(physical, self.out_layout, self.out_shape)
        out: Tensor = (physical - self.shift) / self.scale
        return out

    @property
    def noise_range(self) -> tuple[float, float] | None:
        """Of ``inner``, if it is conditioned on the noise of its input."""
        found: tuple[float, float] | None = getattr(self.inner, "noise_range", None)
        return found

    def at_noise(self, level: float) -> Resampled:
        """This map, its weights shared, for inputs of this RMS noise, which resampling averages."""
        bind = getattr(self.inner, "at_noise", None)
        if bind is None or self.in_layout == FIXED:
            return self if bind is None else self._with(bind(level))
        axes = grid_axes(self.in_shape)
        gain = noise_gain(self.in_layout, self.in_shape[-axes:], self.inner.in_shape[-axes:])
        # The same noise at every sensor has this level in the units of either grid.
        here, inside = (float(s.pow(-2).mean().sqrt()) for s in (self.scale, self.inner_scale))
        return self._with(bind(level * gain * inside / here))

    def _with(self, inner: Network) -> Resampled:
        other = copy.copy(self)
        other._modules = {**self._modules, "inner": inner}
        return other


def _resampled(rows: Tensor, layout: str, shape: tuple[int, ...]) -> Tensor:
    if layout == FIXED:
        return rows
    return resample(rows, layout, shape[-grid_axes(shape) :])
