"""What a network must be so that a checkpoint can rebuild it: a named kind and a plain config.

A new architecture is a file in this folder whose class derives from ``Network``, carries
``@register("its-name")`` and keeps the arguments of its constructor as attributes of their names;
saving and loading then need no further change.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from deceptron.core import ConfigError, ShapeError, unknown_name
from deceptron.core.checks import check_rows

NetworkType = TypeVar("NetworkType", bound="type[Network]")

_KINDS: dict[str, type[Network]] = {}

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "leaky_relu": lambda: nn.LeakyReLU(0.1),
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
    "identity": nn.Identity,
}


class Network(nn.Module, ABC):
    """A map of rows whose ``config()`` is JSON: ``type(net)(**net.config())`` is its twin."""

    kind: ClassVar[str] = ""
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]

    def config(self) -> dict[str, Any]:
        """Constructor arguments, as JSON values."""
        names = [name for name in signature(type(self)).parameters if name != "generator"]
        return {name: _as_json(getattr(self, name)) for name in names}

    def check_rows(self, rows: Tensor) -> None:
        """Rows of another shape are an error, not a broadcast."""
        if tuple(rows.shape[1:]) != self.in_shape:
            raise ShapeError(
                f"{type(self).__name__} takes rows of shape {self.in_shape}; "
                f"got a tensor of shape {tuple(rows.shape)}"
            )


def described(network: Network) -> dict[str, Any]:
    """Kind and config, which ``as_network`` makes a twin of."""
    return {"kind": network.kind, "config": network.config()}


def _as_json(value: Any) -> Any:
    if isinstance(value, Network):
        return described(value)
    return list(value) if isinstance(value, tuple) else value


def register(kind: str) -> Callable[[NetworkType], NetworkType]:
    """Class decorator: let checkpoints rebuild this class under the name ``kind``."""

    def add(network: NetworkType) -> NetworkType:
        known = _KINDS.get(kind)
        # Reloading a module defines its classes anew; only another class is a clash.
        if known is not None and _full_name(known) != _full_name(network):
            raise ConfigError(f"register(kind={kind!r}) is taken by {_full_name(known)}")
        network.kind = kind
        _KINDS[kind] = network
        return network

    return add


def _full_name(network: type[Network]) -> str:
    return f"{network.__module__}.{network.__qualname__}"


def kinds() -> tuple[str, ...]:
    """The registered names."""
    return tuple(sorted(_KINDS))


def is_registered(module: nn.Module) -> bool:
    """Whether exactly this class is registered; a subclass may compute something else."""
    return isinstance(module, Network) and _KINDS.get(module.kind) is type(module)


def build(kind: str, config: Mapping[str, Any]) -> Network:
    """A fresh network of a registered kind; the global random state is left as it was."""
    if kind not in _KINDS:
        raise unknown_name("network kind", kind, kinds())
    with torch.random.fork_rng(devices=[]):
        return _KINDS[kind](**config)


def as_network(part: Network | Mapping[str, Any]) -> Network:
    """A network, or one made of its kind and config, as a checkpoint holds them."""
    return part if isinstance(part, Network) else build(part["kind"], part["config"])


def activation(name: str) -> nn.Module:
    """Make an activation by name; ``silu``, ``gelu``, ``softplus`` and ``tanh`` are smooth."""
    if name not in _ACTIVATIONS:
        raise unknown_name("activation", name, _ACTIVATIONS)
    return _ACTIVATIONS[name]()


def kaiming_uniform(weight: Tensor, *, slope: float, generator: torch.Generator | None) -> None:
    """Fill with U(-b, b), ``b^2 = 6 / ((1 + slope^2) fan_in)``."""
    fan_in = weight[0].numel()
    bound = math.sqrt(6 / ((1 + slope**2) * fan_in))
    with torch.no_grad():
        weight.uniform_(-bound, bound, generator=generator)


def check_shape(name: str, shape: object) -> tuple[int, ...]:
    """Return ``shape`` as a tuple if it holds positive integers."""
    if isinstance(shape, int) and not isinstance(shape, bool):
        shape = (shape,)
    sizes = tuple(shape) if isinstance(shape, (tuple, list, torch.Size)) else ()
    if not sizes or any(isinstance(s, bool) or not isinstance(s, int) or s < 1 for s in sizes):
        raise ConfigError(f"{name} must hold one or more positive integers; got {shape!r}")
    return sizes


def check_pairs(network: str, x: Tensor, y: Tensor) -> None:
    """Rows that a closed form can be fitted to."""
    check_rows("x", x)
    check_rows("y", y, dtype=x.dtype, device=x.device)
    if len(x) != len(y):
        raise ShapeError(f"x and y must have the same number of rows; got {len(x)}, {len(y)}")
    for name, value in (("x", x), ("y", y)):
        if not bool(value.isfinite().all()):
            raise ConfigError(f"{network}.fit({name}=...) must be finite")
