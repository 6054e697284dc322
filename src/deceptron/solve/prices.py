"""What a pass through g costs beside the simulator, by the clock of this machine."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor

from deceptron.core.arrays import as_rows, no_autocast
from deceptron.core.errors import ConfigError
from deceptron.core.protocols import Pair
from deceptron.core.units import UnitlessForward
from deceptron.solve.forward import Normalised, as_forward
from deceptron.solve.methods import get_method
from deceptron.solve.task import Known, prepare

# A batch large enough that calls cost nothing beside the work, and how often it is timed.
ROWS, REPEATS = 64, 5


def reverse_price(pair: Pair, y: Any, *, forward: Any) -> float:
    """A pass through g in products with the transposed Jacobian of ``forward``, as measured now::

        price = dc.reverse_price(pair, y, forward=problem)
        method = dc.methods.guarded(reverse_price=price)
        solution = dc.solve(pair, y, forward=problem, method=method)

    By default the solver takes g to be free, as it nearly is beside most simulators. Where one is
    as cheap as a network, telling it the price halves its time. Errors rise by up to a fifth on the
    problems that ship, and may rise by more elsewhere: compare on some rows. A solve itself never
    looks at a clock: the same price gives the same answers.

    Args:
        pair: as for ``dc.solve``.
        y: observations, of which the first 64 are used.
        forward: the simulator.

    Returns:
        The price; 0 for a simulator without derivatives, where it has no effect.
    """
    forward, inside = as_forward(forward), cast(Any, pair)
    if forward is None:
        raise ConfigError("reverse_price(forward=...) must be a simulator; got None")
    if getattr(pair, "units", None) is not None:
        forward = UnitlessForward(forward, inside.units, inside.bounds)
        inside = inside.unitless
    known = Known.of(inside)
    y = as_rows("y", y, shape=known.y_shape, like=known.like).detach()[:ROWS]
    with torch.inference_mode(False), torch.no_grad(), no_autocast():
        task = prepare(known, y, get_method("one-shot"), forward=forward)
        if task.surrogate is not None:
            return 0.0
        rows = task.start.isfinite().all(1).nonzero().flatten()
        model, x, target = task.model().at(rows), task.start[rows], task.target[rows]
        if not bool(model.evaluate(x, target).point.y.isfinite().all(1).any()):
            if isinstance(task.f, Normalised):
                task.f.witness.raise_if_silent()
            raise ConfigError(
                "reverse_price(forward=...) must have a finite value for one of the first "
                f"{ROWS} rows at least; it has none"
            )
        jacobian = model.linearise(x)
        product = _seconds(lambda: jacobian.vjp(target))
        return _seconds(lambda: model.g(target)) / product


def _seconds(call: Callable[[], Tensor]) -> float:
    """The least of some, after one to warm up."""
    taken = []
    for _ in range(1 + REPEATS):
        start = perf_counter()
        if call().device.type == "cuda":
            torch.cuda.synchronize()
        taken.append(perf_counter() - start)
    return min(taken[1:])
