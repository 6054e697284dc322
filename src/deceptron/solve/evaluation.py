"""Maps in evaluation mode, without touching the modules that others may be using."""

from __future__ import annotations

import copy
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

M = TypeVar("M")


def in_evaluation(map_: M) -> M:
    """The map itself, or a copy in evaluation mode that shares its weights.

    Dropout or batch statistics would let one row disturb another. Switching the module itself
    would switch it for other threads too. The map may be a module or a method of one. Weights that
    were made in inference mode cannot be differentiated through: those are copied too.
    """
    owner = getattr(map_, "__self__", None)
    if isinstance(owner, nn.Module) and not _ready(owner):
        return cast(M, getattr(_evaluating(owner, {}), map_.__name__))  # type: ignore[attr-defined]
    if not isinstance(map_, nn.Module) or _ready(map_):
        return map_
    return cast(M, _evaluating(map_, {}))


def _ready(module: nn.Module) -> bool:
    # Asked before every solve: module.modules() and parameters() take ten times as long.
    if module.training:
        return False
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None and tensor.is_inference():
            return False
    return all(child is None or _ready(child) for child in module._modules.values())


def _evaluating(module: nn.Module, made: dict[int, nn.Module]) -> nn.Module:
    """The modules are new: weights, buffers and all else they hold are handed over."""
    if id(module) in made:
        return made[id(module)]
    if isinstance(module, torch.jit.ScriptModule):
        return copy.deepcopy(module).eval()
    other = module.__new__(type(module))
    made[id(module)] = other
    other.__dict__ = module.__dict__.copy()
    for name in ("_parameters", "_buffers"):
        held = module.__dict__[name]
        other.__dict__[name] = {key: _differentiable(tensor) for key, tensor in held.items()}
    other.__dict__["_modules"] = {
        name: None if child is None else _evaluating(child, made)
        for name, child in module._modules.items()
    }
    other.training = False
    return other


def _differentiable(tensor: Tensor | None) -> Tensor | None:
    if tensor is None or not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        copied = tensor.detach().clone()
        return nn.Parameter(copied, False) if isinstance(tensor, nn.Parameter) else copied
