"""Several processes that train one model: the same batches, each its part, one gradient.

``torchrun --nproc-per-node 2 -m deceptron.cli train ...`` starts them. Every process draws what one
process would draw and takes its part of it, so that the sum over processes is the loss of one. The
first process alone reads and writes the run folder and validates; the others are told.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from deceptron.core.errors import ConfigError

Value = TypeVar("Value")


@dataclass(frozen=True)
class Team:
    """This process, ``rank``, among ``size``."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether it is the one that has the folder."""
        return self.rank == 0

    def part(self, count: int) -> tuple[slice, float]:
        """Which of ``count`` rows are its own, and what share of a mean over all that is.

        A process without a row takes one that counts nothing: maps need not like empty batches.
        """
        first, last = (count * k // self.size for k in (self.rank, self.rank + 1))
        if first == last:
            return slice(0, 1), 0.0
        return slice(first, last), (last - first) / count

    def sum(self, values: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes: in one message, to the same bits."""
        if self.size == 1 or not values:
            return
        flat = torch.cat([value.reshape(-1) for value in values])
        distributed.all_reduce(flat)
        for value, total in zip(values, flat.split([v.numel() for v in values]), strict=True):
            value.copy_(total.view_as(value))

    def share(self, make: Callable[[], Value]) -> Value:
        """What the first process makes of this, for all."""
        if self.size == 1:
            return make()
        held: list[Any] = [make() if self.leads else None]
        distributed.broadcast_object_list(held, src=0)
        value: Value = held[0]
        return value

    def check(self, *modules: nn.Module) -> None:
        """Refuse layers whose answer for a row depends on its batch."""
        for module in modules if self.size > 1 else ():
            for layer in module.modules():
                if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                    raise ConfigError(
                        f"training on {self.size} processes needs networks without batch "
                        f"statistics; got {type(layer).__name__}"
                    )


@contextmanager
def joined() -> Iterator[Team]:
    """The team that torchrun has started, or that the program has made; else this process alone."""
    ours = distributed.is_available() and distributed.is_torchelastic_launched()
    ours = ours and not distributed.is_initialized()
    if ours:
        # Its functions take the group of the moment they are read as a default. Read later, by any
        # part of torch, they would keep ours alive beyond its end, and a thread of gloo that
        # releases a tensor while Python shuts down aborts the process.
        importlib.import_module("torch.distributed.nn.functional")
        distributed.init_process_group("gloo")
    try:
        if distributed.is_available() and distributed.is_initialized():
            yield Team(distributed.get_rank(), distributed.get_world_size())
        else:
            yield Team()
    finally:
        if ours:
            distributed.destroy_process_group()
