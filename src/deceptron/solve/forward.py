"""A forward map of the user's, as the loop wants it: normalised units, or plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from deceptron.core.errors import ConfigError
from deceptron.core.protocols import Pair, RowMap
from deceptron.core.scaler import Scaler
from deceptron.solve.methods import Method


def normalised(forward: RowMap, scaler: Scaler, dtype: torch.dtype) -> RowMap:
    """From physical units to those of the objective."""
    return lambda x: scaler.normalise(forward(x)).to(dtype)


def is_opaque(
    forward: RowMap | None, differentiable: bool | None, pair: object, method: Method
) -> bool:
    """Whether only values of ``forward`` can be had; a problem's simulator says so itself."""
    if differentiable is None:
        differentiable = getattr(getattr(forward, "__self__", None), "differentiable", True)
    if differentiable:
        return False
    if forward is None:
        raise ConfigError("differentiable=False is about forward=..., which is not given")
    if not isinstance(pair, Pair) and not method.direct:
        raise ConfigError(
            "differentiable=False needs a pair whose f lends its derivatives; got a bare callable"
        )
    return True


def values_of(forward: Callable[[Tensor], Any]) -> RowMap:
    """Plain values in, rows of any array type out."""
    return lambda x: torch.as_tensor(forward(x.detach())).to(x)
