"""Checks of what a user hands in; each failure names the argument, the rule and the value."""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor

from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.protocols import Pair


def check_rows(
    name: str,
    value: object,
    shape: tuple[int, ...] | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """Return ``value`` if it is a floating tensor of one or more rows of ``shape``."""
    if not isinstance(value, Tensor):
        raise ShapeError(f"{name} must be a torch.Tensor of rows; got {type(value).__name__}")
    if not value.is_floating_point():
        raise ShapeError(f"{name} must have a floating dtype; got {value.dtype}")
    if value.ndim == 0 or (shape is not None and tuple(value.shape[1:]) != tuple(shape)):
        wanted = "(rows, ...)" if shape is None else f"(rows, {', '.join(map(str, shape))})"
        raise ShapeError(f"{name} must have shape {wanted}; got {tuple(value.shape)}")
    if value.shape[0] == 0:
        raise ShapeError(f"{name} must have at least one row; got shape {tuple(value.shape)}")
    if dtype is not None and value.dtype != dtype:
        raise ShapeError(f"{name} must have dtype {dtype}; got {value.dtype}: use {name}.to(...)")
    if device is not None and value.device != device:
        raise ShapeError(
            f"{name} must be on device {device}; got {value.device}: use {name}.to(...)"
        )
    return value


def check_pair(value: object) -> None:
    """Refuse what is no pair, and one whose x has units that have not been taken off."""
    if not isinstance(value, Pair):
        raise ConfigError(f"pair must have methods f and g; got {type(value).__name__}")
    if getattr(value, "units", None) is not None:
        raise ConfigError(
            "pair must take x as it is; this one takes it without units: pass pair.unitless, and "
            "pair.units.reduced(x) as latents"
        )


def check_range(
    name: str,
    value: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return ``value`` if it is a number in the interval; NaN never is."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    above = number and (value > low if open_low else value >= low)
    below = number and (value < high if open_high else value <= high)
    if not (above and below):
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        raise ConfigError(f"{name} must lie in {left}{low:g}, {high:g}{right}; got {value!r}")
    return value


def check_count(name: str, value: int, *, low: int = 1) -> int:
    """Return ``value`` if it is an integer of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise ConfigError(f"{name} must be an integer >= {low}; got {value!r}")
    return int(value)


def check_seed(value: int) -> int:
    """Return ``value`` if it is an integer in [0, 2^62): a generator takes twice that, no more."""
    if check_count("seed", value, low=0) >= 2**62:
        raise ConfigError(f"seed must be below 2**62; got {value}")
    return int(value)


def check_flags(**flags: bool | None) -> None:
    """Refuse what is neither True nor False: the text "no" would count as true. None may stand."""
    for name, value in flags.items():
        if value is not None and not isinstance(value, (bool, np.bool_)):
            raise ConfigError(f"{name} must be True or False; got {value!r}")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")
    return value


def check_dtype(dtype: torch.dtype) -> torch.dtype:
    """A precision of PyTorch's."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ConfigError(f"dtype must be a floating dtype of torch; got {dtype!r}")
    return dtype


def check_device(device: str | torch.device) -> torch.device:
    """Return the device if tensors can be made on it here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise ConfigError(f"device {str(device)!r} cannot be used: {why}") from None
    return torch.device(device)
