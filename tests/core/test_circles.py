"""What a linearisation holds goes with it: nothing waits for the garbage collector.

Tensors do not count towards its limits, so that states of gigabytes would wait with them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import deceptron as dc
from deceptron.core.differentiate import Linearisation
from tests.problems.small import generator, small


def left_over(work: Callable[[], object]) -> list[Tensor]:
    """Tensors in circles that the work leaves behind."""
    work()  # constants are made once, and stay
    gc.collect()
    gc.disable()
    try:
        work()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return [thing for thing in gc.garbage if isinstance(thing, Tensor)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def products(function: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], object]:
    def work() -> None:
        at = Linearisation(function, x)
        at.vjp(function(x).detach())
        at.jvp(x)

    return work


@pytest.mark.parametrize("name", dc.problems.names())
def test_problems_leave_nothing_behind(name: str) -> None:
    problem = small(name)
    x = problem.sample(2, generator=generator())
    assert left_over(products(problem.simulate, x)) == []


def test_networks_leave_nothing_behind() -> None:
    pair = dc.load("navier-stokes-2d")
    x = torch.randn(2, *(pair.x_shape or ()), generator=generator())
    assert left_over(products(pair.f, x)) == []


def test_wrapped_functions_leave_nothing_behind() -> None:
    def simulate(x: np.ndarray) -> np.ndarray:
        return np.tanh(x)

    def pulled(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return w / np.cosh(x) ** 2

    wrapped = dc.simulators.wrap(simulate, vjp=pulled, jvp=pulled)
    assert left_over(products(wrapped, torch.randn(3, 4, generator=generator()))) == []
