"""The feasible set of every problem: a box, one interval for all components or one for each."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from deceptron.core.arrays import real_tensor
from deceptron.core.errors import ConfigError, ShapeError

Bounds: TypeAlias = tuple[float | Tensor, float | Tensor]


@dataclass(frozen=True)
class Box:
    """``low <= x <= high``, two numbers or two tensors; clamping by numbers is cheaper."""

    low: float | Tensor
    high: float | Tensor

    @classmethod
    def parse(cls, bounds: Bounds, x_shape: tuple[int, ...], like: Tensor) -> Box:
        """Check ``bounds`` and bring tensors to flat components of ``like``'s dtype and device."""
        low, high = (_flat(side, x_shape, like) for side in sides(bounds))
        if not isinstance(low, Tensor) and not isinstance(high, Tensor) and low <= high:
            return cls(low, high)
        low_tensor, high_tensor = (
            torch.as_tensor(side, dtype=like.dtype, device=like.device) for side in (low, high)
        )
        if bool(low_tensor.isnan().any()) or bool(high_tensor.isnan().any()):
            raise ConfigError("bounds must not contain NaN")
        crossed = low_tensor > high_tensor
        if bool(crossed.any()):
            raise ConfigError(
                f"bounds must satisfy low <= high; {int(crossed.sum())} component(s) are crossed "
                f"(low up to {float(low_tensor.max()):g}, "
                f"high down to {float(high_tensor.min()):g})"
            )
        return cls(low_tensor, high_tensor)

    def project(self, x: Tensor) -> Tensor:
        """The nearest point of the box."""
        return x.clamp(self.low, self.high)  # type: ignore[arg-type]  # numbers, or tensors

    def touched(self, x: Tensor) -> Tensor:
        """Mask of the components at a bound."""
        return (x <= self.low) | (x >= self.high)

    def free(self, x: Tensor, gradient: Tensor, slack: float | Tensor = 0.0) -> Tensor:
        """Mask of the components that a descent step may move: not held at a bound, or nearer to it
        than ``slack``, by -gradient.
        """
        low, high = self.low + slack, self.high - slack
        held = ((x <= low) & (gradient > 0)) | ((x >= high) & (gradient < 0))
        return ~held


def sides(bounds: Any) -> Bounds:
    """``(low, high)``: what has axes as a tensor, all else as a number."""
    is_pair = isinstance(bounds, (tuple, list, np.ndarray, Tensor)) and len(bounds) == 2
    if not is_pair or any(side is None for side in bounds):
        raise ConfigError(
            f"bounds must be a pair (low, high); got {reprlib.repr(bounds)}: "
            "write -inf or inf where there is no bound"
        )
    low, high = (real_tensor("bounds", side) for side in bounds)
    return low if low.ndim else float(low), high if high.ndim else float(high)


def _flat(side: float | Tensor, x_shape: tuple[int, ...], like: Tensor) -> float | Tensor:
    if not isinstance(side, Tensor):
        return side
    try:
        full = side.to(like).broadcast_to(x_shape)
    except RuntimeError:
        raise ShapeError(
            f"bounds must broadcast to one row of x, shape {x_shape}; got {tuple(side.shape)}"
        ) from None
    return full.reshape(-1)
