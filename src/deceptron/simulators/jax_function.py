"""Functions in JAX as a simulator: one compiled call for all rows, derivatives from JAX."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from deceptron.core.arrays import real_array
from deceptron.core.checks import check_flags
from deceptron.core.errors import ConfigError
from deceptron.simulators.engines import Array, Function, Whole
from deceptron.simulators.simulator import Simulator

# Computing so many rows costs less than compiling for fewer.
FEW = 16


def from_jax(
    f: Function, *, batched: bool = False, reverse: bool = True, float64: bool = True
) -> Simulator:
    """A simulator from a JAX function of one row, or with ``batched=True`` of rows.

    Each number of rows would be compiled anew, so rows are filled up: to a number that is compiled
    and at most twice as large, else to the next power of two or three quarters of one. JAX reads
    the memory of x where dtype and layout allow, and cannot write to it; what it returns is copied,
    since it may be its input.

    Args:
        f: ``x -> y`` in jax.numpy, for one row; it is mapped over the rows and compiled.
        batched: f maps rows to rows already.
        reverse: whether f can be differentiated backwards. Pass False where it cannot (a
            ``while_loop``): J' then takes one jvp for each component of x.
        float64: compute in double precision whatever the dtype of x; False for single. Arrays that
            f closes over keep their own precision: make them in float64 or from NumPy.
    """
    if not callable(f):
        raise ConfigError(f"from_jax(f=...) must be a JAX function; got {type(f).__name__}")
    check_flags(batched=batched, reverse=reverse, float64=float64)
    try:
        import jax
    except ImportError:
        raise ConfigError("from_jax needs the extra: pip install 'deceptron[jax]'") from None
    mapped = f if batched else jax.vmap(f)
    compiled = _Compiled(mapped, float64=float64)
    return Simulator(
        f"from_jax({getattr(f, '__name__', type(f).__name__)})",
        Whole(),
        value=partial(compiled.run, "value"),
        vjp=partial(compiled.run, "vjp") if reverse else None,
        jvp=partial(compiled.run, "jvp"),
    )


class _Compiled:
    """The three compiled functions; made anew where the object is unpickled."""

    def __init__(self, mapped: Function, *, float64: bool) -> None:
        self._mapped, self._float64 = mapped, float64
        self._functions: dict[str, Any] = {}
        self._rooms: dict[str, set[int]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_functions": {}, "_rooms": {}}

    def _room(self, kind: str, rows: int) -> int:
        """How many rows to compute: a solver's batches shrink, and compiling takes a second."""
        compiled = self._rooms.setdefault(kind, set())
        enough = [room for room in compiled if rows <= room <= max(FEW, 2 * rows)]
        room = min(enough, default=filled_up(rows))
        compiled.add(room)
        return room

    def run(self, kind: str, *arrays: Array) -> Array:
        import jax

        rows = len(arrays[0])
        room = self._room(kind, rows)
        dtype = np.float64 if self._float64 else np.float32
        # The switch to double precision is part of what a compiled function is known by.
        with _precision(self._float64):
            if kind not in self._functions:
                self._functions[kind] = jax.jit(self._function(kind))
            inputs = [jax.numpy.asarray(_fill(np.asarray(a, dtype), room)) for a in arrays]
            found = self._functions[kind](*inputs)
            if np.shape(found)[:1] != (room,) or isinstance(found, (tuple, list)):
                raise TypeError(f"one array with a row for each of x is wanted; got {found!r:.99}")
            return real_array("what it returns", np.asarray(found)[:rows])

    def _function(self, kind: str) -> Function:
        import jax

        f = self._mapped
        return {
            "value": f,
            "jvp": lambda x, v: jax.jvp(f, (x,), (v,))[1],
            # The cotangent comes in the precision of x, which need not be that of y.
            "vjp": lambda x, w: _pull(jax.vjp(f, x), w),
        }[kind]


def filled_up(rows: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ..."""
    power = 1 << (rows - 1).bit_length()
    return 3 * power // 4 if power >= 4 and rows <= 3 * power // 4 else power


def _pull(found: tuple[Any, Any], w: Any) -> Any:
    y, pull = found
    return pull(w.astype(y.dtype))[0]


def _fill(rows: Array, room: int) -> Array:
    extra = room - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], extra, axis=0)]) if extra else rows


def _precision(float64: bool) -> Any:
    import jax
    import jax.experimental

    # It left jax.experimental with JAX 0.8.
    place: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    return place.enable_x64(float64)
