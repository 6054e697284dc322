"""Maps in evaluation mode, without touching the modules that others may be using."""

from __future__ import annotations

import copy
from typing import TypeVar, cast

import torch
from torch import nn

M = TypeVar("M")


def in_evaluation(map_: M) -> M:
    """The map itself, or a copy in evaluation mode that shares its weights.

    Dropout or batch statistics would let one row disturb another. Switching the module itself
    would switch it for other threads too. The map may be a module or a method of one.
    """
    owner = getattr(map_, "__self__", None)
    if isinstance(owner, nn.Module) and _trains(owner):
        return cast(M, getattr(_evaluating(owner, {}), map_.__name__))  # type: ignore[attr-defined]
    if not isinstance(map_, nn.Module) or not _trains(map_):
        return map_
    return cast(M, _evaluating(map_, {}))


def _trains(module: nn.Module) -> bool:
    return any(m.training for m in module.modules())


def _evaluating(module: nn.Module, made: dict[int, nn.Module]) -> nn.Module:
    """Only the modules are new: weights, buffers and all else they hold are handed over."""
    if id(module) in made:
        return made[id(module)]
    if isinstance(module, torch.jit.ScriptModule):
        return copy.deepcopy(module).eval()
    other = module.__new__(type(module))
    made[id(module)] = other
    other.__dict__ = module.__dict__.copy()
    for name in ("_parameters", "_buffers"):
        other.__dict__[name] = module.__dict__[name].copy()
    other.__dict__["_modules"] = {
        name: None if child is None else _evaluating(child, made)
        for name, child in module._modules.items()
    }
    other.training = False
    return other
