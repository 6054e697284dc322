"""A forward map of the user's, as the loop wants it: normalised units, or plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deceptron.core.arrays import real_tensor
from deceptron.core.differentiate import is_differentiable
from deceptron.core.errors import ConfigError, ShapeError, SimulatorError, calling
from deceptron.core.protocols import RowMap
from deceptron.core.scaler import Scaler
from deceptron.solve.evaluation import in_evaluation
from deceptron.solve.methods import Method

# What a simulator raises where a row has no value: a singular matrix, an overflow.
NUMERICAL = (torch.linalg.LinAlgError, np.linalg.LinAlgError, ArithmeticError)


def as_forward(forward: Any) -> RowMap | None:
    """What was passed as ``forward``: a function, or a problem, whose simulator is meant."""
    if forward is None:
        return None
    if callable(simulate := getattr(forward, "simulate", None)):
        return simulate
    if not callable(forward):
        raise ConfigError(
            "forward must be a function from latents to observations, or a problem; "
            f"got {type(forward).__name__}"
        )
    return in_evaluation(forward)


class Witness:
    """What a simulator that raises has done for the rows that are judged together."""

    def __init__(self) -> None:
        self.has_answered = False
        self.error: SimulatorError | None = None

    def raise_if_silent(self) -> None:
        """Raise the first error if no row has ever had a value and no more rows are to come."""
        if self.error is not None and not self.has_answered and _WITNESS.get() is not self:
            raise self.error


_WITNESS: ContextVar[Witness | None] = ContextVar("witness", default=None)


@contextmanager
def judged_together() -> Iterator[Witness]:
    """Solves within are parts of one: that every row of a part fails raises nothing there."""
    witness = _WITNESS.get() or Witness()
    token = _WITNESS.set(witness)
    try:
        yield witness
    finally:
        _WITNESS.reset(token)


class Normalised:
    """From physical units to those of the objective; shapes are checked before they broadcast.

    A batch for which ``forward`` raises a ``NUMERICAL`` error is halved until the row that is to
    blame is alone; that one is NaN. Whether it was the row or the simulator shows at the end.
    """

    def __init__(
        self, forward: RowMap, scaler: Scaler, dtype: torch.dtype, y_shape: tuple[int, ...]
    ) -> None:
        self._forward, self._scaler, self._dtype, self._y_shape = forward, scaler, dtype, y_shape
        self.witness = _WITNESS.get() or Witness()

    def __call__(self, x: Tensor) -> Tensor:
        """Predictions for rows of latents."""
        y, error = _by_halves(self._forward, x, self._y_shape)
        if error is None or not bool(y.isnan().all()):
            self.witness.has_answered = True
        self.witness.error = self.witness.error or error
        return self._scaler.normalise(real_tensor("what forward returns", y)).to(self._dtype)


def _by_halves(
    forward: RowMap, x: Tensor, y_shape: tuple[int, ...]
) -> tuple[Tensor, SimulatorError | None]:
    """What ``forward`` makes of the rows, and the last error that made one of them NaN."""
    try:
        # A copy: code that writes to its input must not write to the solver's.
        with calling("forward"):
            y = forward(x.clone())
    except SimulatorError as error:
        if not any(isinstance(e, NUMERICAL) for e in _causes(error)):
            raise
        if len(x) == 1:
            # By way of x: derivatives are asked of batches in which no row has a value, too.
            return (torch.nan * x.sum()).expand(1, *y_shape), error
        halves = [_by_halves(forward, half, y_shape) for half in x.tensor_split(2)]
        return torch.cat([y for y, _ in halves]), error
    if not isinstance(y, Tensor):
        raise ConfigError(
            f"forward must return a tensor of observations; it returned {type(y).__name__}. "
            "If it works in NumPy, pass forward=dc.simulators.wrap(...)"
        )
    if tuple(y.shape) != (len(x), *y_shape):
        raise ShapeError(
            f"forward must map {tuple(x.shape)} to {(len(x), *y_shape)}; "
            f"it returned {tuple(y.shape)}"
        )
    return y, None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def is_opaque(
    forward: RowMap | None, differentiable: bool | None, has_surrogate: bool, method: Method
) -> bool:
    """Whether only values of ``forward`` can be had; a simulator or its problem says so itself."""
    if differentiable is None:
        differentiable = is_differentiable(forward)
    if differentiable:
        return False
    if forward is None:
        raise ConfigError("differentiable=False is about forward=..., which is not given")
    if not has_surrogate and not method.direct:
        raise ConfigError(
            "differentiable=False needs a pair, whose f supplies derivatives; got a bare callable"
        )
    return True


def values_of(forward: Callable[[Tensor], Any]) -> RowMap:
    """Plain values in, rows of any array type out, in the precision they come in: what they share
    is taken off before they are rounded.
    """

    def simulate(x: Tensor) -> Tensor:
        return real_tensor("what forward returns", forward(x.detach())).to(x.device)

    return simulate
