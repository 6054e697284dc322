"""A simulator from elsewhere as a batched, differentiable map from rows to rows.

Whatever runs it, a row that fails is NaN and its neighbours are kept; the first reasons stay
readable in ``failures``, and ``calls`` says what was asked of it.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.arrays import as_rows
from deceptron.core.checks import check_range
from deceptron.core.errors import ConfigError, SimulatorError
from deceptron.simulators.autograd import Values
from deceptron.simulators.engines import Answers, Array, Engine, Function

# Reasons that are kept in words; all failures are counted.
KEPT = 10
# J' of a simulator that only has jvps is built from one a component.
MOST_COMPONENTS = 512


@dataclass
class Calls:
    """Rows that a simulator was asked for, by kind, and how many of them it failed.

    Attributes:
        values: rows simulated.
        vjps: products with the transposed Jacobian.
        jvps: products with the Jacobian.
        failed: rows of any kind without an answer.
    """

    values: int = 0
    vjps: int = 0
    jvps: int = 0
    failed: int = 0

    def __str__(self) -> str:
        asked = f"{self.values} values, {self.vjps} vjps, {self.jvps} jvps"
        return f"{asked}, {self.failed} failed" if self.failed else asked


class Simulator:
    """Rows of x to rows of y, for ``problems.define(simulate=...)`` and ``solve(forward=...)``.

    Made by ``wrap``, ``from_jax``, ``from_umbridge`` and ``from_command``. Output has the dtype and
    device of x. Without vjp, J' comes from one jvp a component; without jvp, J v comes from a
    central difference of values. Rows that repeat the row before them are simulated once, rows that
    are not finite not at all, and products with zero cost nothing.

    Attributes:
        differentiable: whether it has derivatives; if not, the solver uses values only.
        calls: rows asked for so far.
        failures: the first reasons, in words, why rows have no answer.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        *,
        value: Function,
        vjp: Function | None = None,
        jvp: Function | None = None,
        accuracy: float = 1e-14,
        scale: float = 1.0,
        y_shape: tuple[int, ...] | None = None,
        advice: str = "",
    ) -> None:
        self._engine = engine
        self._advice = advice  # for when no row has ever had an answer
        self._value, self._vjp, self._jvp = value, vjp, jvp
        check_range("accuracy", accuracy, low=0.0, high=1.0, open_low=True, open_high=True)
        check_range("scale", scale, low=0.0, high=np.inf, open_low=True, open_high=True)
        self._step, self._scale = (3 * accuracy) ** (1 / 3), scale
        self._y_shape = y_shape
        self.differentiable = vjp is not None or jvp is not None
        self.calls = Calls()
        self.failures: list[str] = []
        # The name under which settings of a run know it.
        self.name = self.__qualname__ = name

    def __call__(self, x: Float[Tensor, "B *x"]) -> Float[Tensor, "B *y"]:
        """Simulate rows; gradients and jvps flow through if it has any."""
        rows = as_rows("x", x, shape=None, like=None)
        y: Tensor = Values.apply(rows, _Point(self))
        return y

    def __repr__(self) -> str:
        kinds = [kind for kind in ("vjp", "jvp") if getattr(self, f"_{kind}") is not None]
        return f"Simulator({self.name}; {' and '.join(kinds) or 'values only'}; {self.calls})"

    def reset(self) -> None:
        """Forget counts and failures."""
        self.calls = Calls()
        self.failures = []

    def close(self) -> None:
        """Give up threads and processes; the next call starts them again."""
        self._engine.close()

    def __enter__(self) -> Simulator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def values(self, x: Array) -> Array:
        """f of rows in NumPy, float64."""
        repeated = np.zeros(len(x), dtype=bool)
        repeated[1:] = _rowwise(np.all, x[1:] == x[:-1])
        if repeated.any():
            return self.values(x[~repeated])[np.cumsum(~repeated) - 1]
        live = _finite(x)
        self.calls.values += int(live.sum())
        found = self._run("value", self._value, x[live])
        if self._y_shape is None:
            raise SimulatorError(f"{self.name}: x must have a finite row; got none of {len(x)}")
        return _filled(live, live, found, self._y_shape)

    def pull(self, x: Array, w: Array) -> Array:
        """J(x)' w of rows, by the simulator's own vjp."""
        known = _finite(x) & _finite(w)
        live = known & _rowwise(np.any, w)
        self.calls.vjps += int(live.sum())
        found = self._run("vjp", self._vjp, x[live], w[live], shape=x.shape[1:])
        return _filled(live, known, found, x.shape[1:])

    def push(self, x: Array, v: Array) -> Array:
        """J(x) v of rows, by the simulator's own jvp or a difference of values."""
        known = _finite(x) & _finite(v)
        live = known & _rowwise(np.any, v)
        if self._jvp is None:
            found = self._difference(x[live], v[live])
        else:
            self.calls.jvps += int(live.sum())
            found = self._run("jvp", self._jvp, x[live], v[live], shape=self._y_shape)
        assert self._y_shape is not None
        return _filled(live, known, found, self._y_shape)

    def jacobian(self, x: Array) -> Array:
        """J of rows, flat, ``(B, m, n)``: one jvp a component."""
        rows, n = len(x), x[0].size
        if n > MOST_COMPONENTS:
            raise ConfigError(
                f"{self.name} has jvp but no vjp, so J' takes a jvp for each component of x, which "
                f"is allowed up to {MOST_COMPONENTS}; got {n}: pass vjp=..."
            )
        tangents = np.tile(np.eye(n), (rows, 1)).reshape(rows * n, *x.shape[1:])
        columns = self.push(np.repeat(x, n, axis=0), tangents)
        return columns.reshape(rows, n, -1).transpose(0, 2, 1)

    def _difference(self, x: Array, v: Array) -> Array:
        """(f(x + h v) - f(x - h v)) / 2h; h balances curvature and the accuracy of f."""
        if not len(x):
            return np.empty((0, *(self._y_shape or ())))
        # Components of a vector may have different units; points of a field have one.
        size = np.abs(x) if x.ndim == 2 else np.abs(x).max(tuple(range(1, x.ndim)), keepdims=True)
        h = self._step / (np.abs(v) / size.clip(self._scale)).reshape(len(v), -1).max(1)
        step = h.reshape(-1, *(1,) * (x.ndim - 1)) * v
        ahead, behind = self.values(x + step), self.values(x - step)
        width = np.full(len(x), 2.0)
        # At the edge of what it can do, a simulator may have one side only.
        one_sided = _finite(ahead) != _finite(behind)
        if one_sided.any():
            here = np.full_like(ahead, np.nan)
            here[one_sided] = self.values(x[one_sided])
            ahead = np.where(np.isfinite(ahead), ahead, here)
            behind = np.where(np.isfinite(behind), behind, here)
            width[one_sided] = 1.0
        return (ahead - behind) / (width * h).reshape(-1, *(1,) * (ahead.ndim - 1))

    def _run(
        self,
        kind: str,
        function: Function | None,
        *arrays: Array,
        shape: tuple[int, ...] | None = None,
    ) -> Array:
        assert function is not None
        wanted = self._y_shape if kind == "value" else shape
        if not len(arrays[0]):
            return np.empty((0, *(wanted or ())))
        rows, failed = _gather(self._engine.run(function, *arrays), wanted)
        if failed:
            self._note(kind, failed, len(arrays[0]))
        if rows is None:
            row, why = next(iter(failed.items()))
            raise SimulatorError(
                f"{kind} of {self.name} has failed on every row so far, {len(failed)} of them, so "
                f"even the shape of its output is not known; row {row}: {why}{self._advice}"
            )
        if kind == "value":
            self._y_shape = rows.shape[1:]
        return rows

    def _note(self, kind: str, failed: dict[int, str], rows: int) -> None:
        first = not self.failures
        self.calls.failed += len(failed)
        room = KEPT - len(self.failures)
        self.failures += [f"{kind}, row {k}: {why}" for k, why in list(failed.items())[:room]]
        if first:
            warnings.warn(
                f"{len(failed)} of {rows} rows failed in {self.name} and are NaN; "
                f"{self.failures[0]}. Later failures are not announced: see .failures and .calls",
                RuntimeWarning,
                stacklevel=2,
            )


class _Point:
    """The simulator at the rows of one call, with the Jacobian if that had to be built."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._jacobian: Array | None = None

    def fresh(self) -> _Point:
        return _Point(self._simulator)

    def value(self, x: Tensor) -> Tensor:
        return _tensor(self._simulator.values(_array(x)), x)

    def pull(self, x: Tensor, w: Tensor) -> Tensor:
        simulator = self._simulator
        if not simulator.differentiable:
            raise _no_derivative(simulator)
        if simulator._vjp is not None:
            return _tensor(simulator.pull(_array(x), _array(w)), x)
        flat = _array(w).reshape(len(w), -1)
        if not flat.any():
            return torch.zeros_like(x)
        if self._jacobian is None:
            self._jacobian = simulator.jacobian(_array(x))
        product = np.einsum("bmn,bm->bn", self._jacobian, flat)
        return _tensor(product.reshape(x.shape), x)

    def push(self, x: Tensor, v: Tensor) -> Tensor:
        simulator = self._simulator
        if not simulator.differentiable:
            raise _no_derivative(simulator)
        if self._jacobian is not None:
            product = np.einsum("bmn,bn->bm", self._jacobian, _array(v).reshape(len(v), -1))
            assert simulator._y_shape is not None
            return _tensor(product.reshape(len(v), *simulator._y_shape), x)
        return _tensor(simulator.push(_array(x), _array(v)), x)


def _no_derivative(simulator: Simulator) -> ConfigError:
    return ConfigError(
        f"{simulator.name} gives values only, no derivatives: pass vjp=... or jvp=... if it has "
        "them, or use it with differentiable=False"
    )


def _gather(answers: Answers, shape: tuple[int, ...] | None) -> tuple[Array | None, dict[int, str]]:
    """One array of rows, NaN where a row failed, and why; None if no shape can be told."""
    failed: dict[int, str] = {}
    if isinstance(answers, np.ndarray) and shape in (None, answers.shape[1:]):
        rows = answers
    else:
        found = [a for a in answers if not isinstance(a, str)]
        if shape is None and not found:
            return None, {k: str(why) for k, why in enumerate(answers)}
        if shape is None:  # that of most rows: the first may be the one that went wrong
            shape = Counter(answer.shape for answer in found).most_common(1)[0][0]
        rows = np.full((len(answers), *shape), np.nan)
        for k, answer in enumerate(answers):
            if isinstance(answer, str):
                failed[k] = answer
            elif answer.shape != shape:
                failed[k] = f"returned shape {answer.shape}; shape {shape} was expected"
            else:
                rows[k] = answer
    for k in np.flatnonzero(~_finite(rows)).tolist():
        if k not in failed:
            bad = int((~np.isfinite(rows[k])).sum())
            failed[k] = f"returned NaN or infinity in {bad} of {rows[k].size} values"
            rows[k] = np.nan
    return rows, failed


def _finite(rows: Array) -> Array:
    return _rowwise(np.all, np.isfinite(rows))


def _rowwise(reduce: Function, rows: Array) -> Array:
    found: Array = reduce(rows, axis=tuple(range(1, rows.ndim)))
    return found


def _filled(live: Array, known: Array, found: Array, shape: tuple[int, ...]) -> Array:
    """``found`` for the live rows, zero for others that are known, else NaN."""
    if live.all():
        return found
    rows = np.zeros((len(live), *shape))
    rows[~known] = np.nan
    rows[live] = found
    return rows


def _array(x: Tensor) -> Array:
    """In float64; it may share memory with x, engines copy before they call."""
    array: Array = x.detach().to("cpu", torch.float64).contiguous().numpy()
    return array


def _tensor(rows: Array, like: Tensor) -> Tensor:
    writable: Any = rows if rows.flags.writeable and rows.flags.owndata else np.array(rows)
    return torch.from_numpy(writable).to(like)
