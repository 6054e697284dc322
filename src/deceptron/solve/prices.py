"""What a pass through g costs beside the simulator, by the clock of this machine."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from deceptron.core.arrays import no_autocast
from deceptron.core.errors import ConfigError
from deceptron.core.protocols import Pair
from deceptron.solve.forward import Normalised
from deceptron.solve.plan import prepare
from deceptron.solve.request import Request

# A batch large enough that calls cost nothing beside the work, and how often it is timed.
ROWS, REPEATS = 64, 5


def reverse_price(pair: Pair, y: Any, *, forward: Any) -> float:
    """A pass through g in products with the transposed Jacobian of ``forward``, as measured now::

        price = dc.reverse_price(pair, y, forward=problem)
        method = dc.methods.guarded(reverse_price=price)
        solution = dc.solve(pair, y, forward=problem, method=method)

    By default the solver takes g to be free, as it nearly is beside most simulators. Where one is
    as cheap as a network, telling it the price saves time, and errors may rise: compare on some
    rows. A solve itself never looks at a clock: the same price gives the same answers.

    Args:
        pair: as for ``dc.solve``.
        y: observations, of which the first 64 are used.
        forward: the simulator.

    Returns:
        The price; 0 for a simulator without derivatives, where it has no effect.
    """
    if forward is None:
        raise ConfigError("reverse_price(forward=...) must be a simulator; got None")
    asked = Request(pair, y, method="one-shot", forward=forward).checked().first(ROWS)
    with torch.inference_mode(False), torch.no_grad(), no_autocast():
        plan = prepare(asked)
        if plan.surrogate is not None:
            return 0.0
        rows = plan.start.isfinite().all(1).nonzero().flatten()
        model, x, target = plan.model().at(rows), plan.start[rows], plan.target[rows]
        if not bool(model.evaluate(x, target).point.y.isfinite().all(1).any()):
            if isinstance(plan.f, Normalised):
                plan.f.witness.raise_if_silent()
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
