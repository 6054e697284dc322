"""What a thing is, as a text that is the same in the next process and differs when it does.

A run is resumed only if everything that decides its answers is the same. Tensors and arrays count
by their content, dataclasses by their fields, modules by weights and attributes, functions by their
name, code, defaults and what they close over; for anything else its class and attributes stand.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import re
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_PIECE = 2**22
_TORCH = set(vars(nn.Module()))  # what every module has; the flag of training changes


def digest(value: object) -> str:
    """A hash of ``describe(value)``."""
    return hashlib.sha256(describe(value).encode()).hexdigest()


def describe(value: object) -> str:
    """The thing as text."""
    return _describe(value, ())


def plain(value: Any, *, exact: bool = False) -> Any:
    """Settings as JSON, for people and to compare: tensors by a hash, dataclasses by their fields.

    What has no settings, such as a function, is told by its name, which says nothing of what it
    does; with ``exact`` it is a TypeError.
    """
    inner = functools.partial(plain, exact=exact)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.generic):
        return inner(value.item())
    if isinstance(value, np.ndarray):
        value = torch.as_tensor(value)
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous()
        hashed = hashlib.sha256(content.reshape(-1).view(torch.uint8).numpy().tobytes())
        return {"shape": list(value.shape), "sha256": hashed.hexdigest()[:16]}
    if isinstance(value, (tuple, list)):
        return [inner(item) for item in value]
    if isinstance(value, dict):
        return {str(key): inner(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        shown = {entry.name: inner(getattr(value, entry.name)) for entry in fields(value)}
        return {"kind": type(value).__qualname__, **shown}
    if exact:
        raise TypeError(f"a setting must be a dataclass or a JSON value; got {value!r}")
    if isinstance(value, functools.partial):
        function, arguments = inner(value.func), inner([list(value.args), value.keywords])
        return {"function": function, "arguments": arguments}
    if isinstance(value, nn.Module):
        return type(value).__qualname__
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', type(value).__module__)}.{name}"


def fingerprint(path: Path) -> str:
    """Hash of a file's content, or of every file under a folder and their names."""
    hashed = hashlib.sha256()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        name = os.fspath(file.relative_to(path)) if file != path else ""
        hashed.update(f"{name}\0{file.stat().st_size}\0".encode())
        with open(file, "rb") as content:
            while piece := content.read(_PIECE):
                hashed.update(piece)
    return hashed.hexdigest()


def _describe(value: Any, above: tuple[int, ...]) -> str:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return _array(content, f"{value.dtype} {tuple(value.shape)}")
    if isinstance(value, (np.ndarray, np.generic)):
        return _array(np.asarray(value), f"{value.dtype} {np.shape(value)}")
    if id(value) in above:
        return "itself"
    deeper = (*above, id(value))
    if isinstance(value, Mapping):
        # Not sorted by the keys themselves: they may be of two kinds.
        inner = sorted(f"{_describe(k, deeper)}: {_describe(v, deeper)}" for k, v in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(_describe(part, deeper) for part in value)) + "}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_describe(part, deeper) for part in value) + "]"
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, types.MethodType):
        return f"{_describe(value.__func__, deeper)} of {_describe(value.__self__, deeper)}"
    if isinstance(value, functools.partial):
        return f"partial {_describe([value.func, value.args, value.keywords], deeper)}"
    if isinstance(value, types.FunctionType):
        return _function(value, deeper)
    if isinstance(value, types.CodeType):
        return _describe([value.co_code, value.co_names, value.co_consts], deeper)
    if isinstance(value, nn.Module):
        own = {key: part for key, part in vars(value).items() if key not in _TORCH}
        held = [value._parameters, value._buffers, value._modules]
        return f"{name} {_describe([own, *held], deeper)}"
    if is_dataclass(value):
        own = {entry.name: getattr(value, entry.name, None) for entry in fields(value)}
        return f"{name} {_describe(own, deeper)}"
    if hasattr(value, "__dict__") and not isinstance(value, (types.ModuleType, PurePath)):
        return f"{name} {_describe(vars(value), deeper)}"
    return f"{name} {re.sub(' at 0x[0-9a-f]+', '', repr(value))}"


def _function(value: types.FunctionType, above: tuple[int, ...]) -> str:
    closed = []
    for cell in value.__closure__ or ():
        try:
            closed.append(cell.cell_contents)
        except ValueError:  # a name that is not bound yet
            closed.append(None)
    rest = [value.__code__, value.__defaults__, value.__kwdefaults__, closed]
    return f"{value.__module__}.{value.__qualname__} {_describe(rest, above)}"


def _array(content: Any, kind: str) -> str:
    return f"{kind} {hashlib.sha256(np.ascontiguousarray(content).tobytes()).hexdigest()[:24]}"
