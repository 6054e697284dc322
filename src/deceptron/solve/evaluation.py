"""Evaluation mode for the time of a solve, and of what its solution is asked later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(*maps: object) -> Iterator[None]:
    """Dropout or batch statistics would let one row disturb another."""
    tops = (m for m in maps if isinstance(m, nn.Module))
    training = [module for top in tops for module in top.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
