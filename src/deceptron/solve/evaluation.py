"""Maps in evaluation mode, without touching the modules that others may be using."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from torch import nn

M = TypeVar("M")


def in_evaluation(map_: M) -> M:
    """The map itself, or a copy in evaluation mode that shares its weights.

    Dropout or batch statistics would let one row disturb another. Switching the module itself
    would switch it for other threads too.
    """
    if not isinstance(map_, nn.Module) or not any(m.training for m in map_.modules()):
        return map_
    # Weights and buffers are handed over as they are: only the modules around them are new.
    kept: dict[int, Any] = {id(t): t for t in (*map_.parameters(), *map_.buffers())}
    other = copy.deepcopy(map_, kept)
    for module in other.modules():
        module.training = False
    return other
