"""Normalisation of measurements with training statistics, carried by datasets and pairs."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from deceptron.core.checks import check_choice, check_rows
from deceptron.core.errors import ConfigError


class Scaler(nn.Module):
    """``normalise(y) = (y - shift) / scale``; the statistics broadcast against one row of y.

    Attributes:
        shift: what is taken from y.
        scale: what the rest is divided by.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Tensor | float = 0.0, scale: Tensor | float = 1.0) -> None:
        super().__init__()
        shift, scale = torch.as_tensor(shift), torch.as_tensor(scale)
        dtype = torch.promote_types(shift.dtype, scale.dtype)
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        if not bool((scale > 0).all() & scale.isfinite().all()):
            raise ConfigError(f"Scaler(scale=...) must be positive and finite; got {scale}")
        self.register_buffer("shift", shift.to(dtype))
        self.register_buffer("scale", scale.to(dtype))

    @classmethod
    def fit(
        cls,
        y: Tensor,
        per: Literal["component", "channel"] = "component",
        *,
        least: Tensor | float = 0.0,
    ) -> Scaler:
        """Mean and standard deviation of ``y`` (rows first), per component or per first axis.

        No scale is below ``least``, nor below 1e-6 of its own mean: round-off in a constant sensor
        is not blown up to unit variance. Of others it knows nothing, since their units may differ.
        """
        check_rows("y", y)
        check_choice("per", per, ("component", "channel"))
        axes = (0,) if per == "component" else (0, *range(2, y.ndim))
        scale, shift = torch.std_mean(y, dim=axes, correction=0, keepdim=True)
        scale, shift = scale[0], shift[0]
        scale = scale.maximum(1e-6 * shift.abs()).maximum(torch.as_tensor(least).to(scale))
        largest = scale.max()
        silent = largest if bool(largest > 0) else torch.ones_like(largest)
        return cls(shift, torch.where(scale > 0, scale, silent))

    def normalise(self, y: Tensor) -> Tensor:
        """Physical units to normalised units."""
        return (y - self.shift) / self.scale

    def denormalise(self, y: Tensor) -> Tensor:
        """Normalised units back to physical units."""
        return y * self.scale + self.shift

    def noise(self, noise_std: float | Tensor, y_shape: tuple[int, ...]) -> Tensor:
        """Noise of this physical standard deviation in normalised units, one row of y."""
        relative = torch.as_tensor(noise_std, device=self.scale.device) / self.scale
        return relative.broadcast_to(y_shape)

    def noise_level(self, noise_std: float | Tensor, y_shape: tuple[int, ...]) -> float:
        """RMS over a row, in normalised units, of noise with this physical standard deviation."""
        return float(self.noise(noise_std, y_shape).square().mean().sqrt())
