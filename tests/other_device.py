"""A second device for machines that have none: the CPU under another name.

Tensors on it hold CPU tensors and say that they are elsewhere. Mixing them with tensors of the CPU
is the error that it would be on a GPU: only numbers (tensors without axes) and indices may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

from deceptron.core.differentiate import pull_back

# Torch guards this one by doing nothing, and knows that tensors on it need no memory of theirs.
ELSEWHERE = torch.device("meta")
# Torch lets indices of these stay on the CPU, and copies between devices.
_MAY_MIX = ("index", "index_put", "index_put_", "_index_put_impl_", "copy_", "_to_copy", "set_")


class _Held(Tensor):
    is_meta = False  # it has numbers

    @staticmethod
    def __new__(cls, inner: Tensor) -> _Held:
        return Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=ELSEWHERE,
            requires_grad=inner.requires_grad,
        )

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Tensor], _: Any, size: Any, stride: Any) -> _Held:
        return _Held(parts["inner"])

    def __repr__(self) -> str:
        return f"elsewhere({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


@contextmanager
def other_device() -> Iterator[torch.device]:
    """A device that, within, tensors can be made on and moved to."""
    constants = patch("deceptron.core.constants.ThreadPoolExecutor", _Here)
    products = patch("deceptron.core.differentiate.forward_ad", _TwoBackwards())
    with constants, products, _Copied(), _Elsewhere():
        yield ELSEWHERE


class _Elsewhere(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Copied(TorchFunctionMode):
    """Numbers go there by way of the CPU: torch would take none along."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        settings = dict(kwargs or {})
        if func in (Tensor.tolist, Tensor.__format__):  # refused for tensors of another class
            args = (args[0].inner if isinstance(args[0], _Held) else args[0], *args[1:])
        if func is Tensor.new_tensor and isinstance(args[0], _Held):
            return torch.tensor(args[1], dtype=args[0].dtype).to(ELSEWHERE)
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], _Held):
            # Lists: torch would make indices of them there without their numbers.
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            index = tuple(torch.tensor(i) if isinstance(i, list) else i for i in index)
            args = (args[0], index, *args[2:])
        made = func in (torch.tensor, torch.as_tensor) and not isinstance(args[0], _Held)
        if made and settings.get("device") == ELSEWHERE:
            del settings["device"]
            return func(*args, **settings).to(ELSEWHERE)
        return func(*args, **settings)


class _Here(nullcontext[None]):
    """An executor of this thread, the only one that knows the device."""

    def __enter__(self) -> Any:
        return self

    def submit(self, function: Any, *args: Any, **settings: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(*args, **settings))
        return done


class _TwoBackwards:
    """Products with a Jacobian as dual numbers give them, which crash on tensors like these."""

    dual_level = staticmethod(torch.enable_grad)

    def make_dual(self, x: Tensor, tangent: Tensor) -> Tensor:
        self._x, self._tangent = x.detach().requires_grad_(), tangent
        return self._x

    def unpack_dual(self, y: Tensor) -> tuple[Tensor, Tensor]:
        u = torch.zeros_like(y, requires_grad=True)
        pulled = pull_back(y, self._x, u, create_graph=True)
        return y.detach(), pull_back(pulled, u, self._tangent)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = func.__name__.split(".")[0]
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    held = [leaf for leaf in given if isinstance(leaf, _Held)]
    device = kwargs.get("device")
    there = bool(held) if device is None else torch.device(device).type == ELSEWHERE.type
    if held and name not in _MAY_MIX:
        strangers = [t for t in given if not isinstance(t, _Held) and t.ndim]
        if strangers or (name in ("cat", "stack") and len(held) < len(given)):
            raise RuntimeError(f"{func} mixes devices: {[tuple(t.shape) for t in given]}")
    if not held and not there:
        return func(*args, **kwargs)
    generator = kwargs.get("generator")
    if there and generator is not None and generator.device.type != ELSEWHERE.type:
        raise RuntimeError(f"{func} elsewhere with a generator of the CPU")

    def inside(leaf: Any) -> Any:
        return leaf.inner if isinstance(leaf, _Held) else leaf

    plain_args, plain_kwargs = tree_map(inside, args), tree_map(inside, kwargs)
    if device is not None:
        plain_kwargs = {**plain_kwargs, "device": torch.device("cpu")}
    found = func(*plain_args, **plain_kwargs)
    if name == "copy_":
        return args[0]
    if not there:
        if device is not None and any(found is leaf.inner for leaf in held):
            found = found.clone()
        return found
    wrapped = tree_map(lambda leaf: _Held(leaf) if isinstance(leaf, Tensor) else leaf, found)
    if not held:
        return wrapped
    return return_and_correct_aliasing(func, args, kwargs, wrapped)
