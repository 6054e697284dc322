"""Tensors that are worked out once and kept, whoever asks for them first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


def constant(make: Callable[P, T]) -> Callable[P, T]:
    """Make it once for each set of arguments, in a thread of its own.

    The first to ask may be in inference mode or within a transform of ``torch.func``, whose tensors
    are of no use outside; both belong to the thread.
    """

    @wraps(make)
    def made(*args: P.args, **settings: P.kwargs) -> T:
        with ThreadPoolExecutor(1) as apart:
            return apart.submit(make, *args, **settings).result()

    return cast(Callable[P, T], lru_cache(maxsize=64)(made))
