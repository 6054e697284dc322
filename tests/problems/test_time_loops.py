"""Tangent and adjoint loops written by hand, against autograd through the plain steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from deceptron.core.differentiate import Linearisation, jvp
from deceptron.problems import time_loops, vorticity
from deceptron.problems.allen_cahn import _PhaseSteps
from deceptron.problems.time_loops import TimeLoop, run
from deceptron.problems.vorticity import Vorticity
from tests.problems.small import generator

LOOPS: dict[str, TimeLoop] = {
    "even grid": Vorticity(16, 2e-3, 4.0, ((4, 0.03), (3, 0.05))),
    "odd grid": Vorticity(15, 2e-3, 4.0, ((5, 0.04),)),
    "phases": _PhaseSteps(16, 0.04, 0.02, 8),
    "phases, odd": _PhaseSteps(9, 0.04, 0.02, 8),
}


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> TimeLoop:
    return LOOPS[request.param]


def points(loop: TimeLoop, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """x, a direction at it, and a direction at its image."""
    n = loop.grid  # type: ignore[attr-defined]
    x, v = 0.4 * torch.randn(2, 5, 1, n, n, dtype=dtype, generator=generator())
    w = torch.randn(loop.plain(x).shape, dtype=dtype, generator=generator(1))
    return x, v, w


def pulled_by_autograd(loop: TimeLoop, x: Tensor, w: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loop.plain(leaf), leaf, w)
    return gradient


def relative(found: Tensor, expected: Tensor) -> float:
    return float(((found - expected).norm() / expected.norm()).detach())


@pytest.mark.parametrize("keeps", ["velocities", "modes"])
@pytest.mark.parametrize("chunk_rows", [2, 100])
def test_products_are_those_of_autograd(
    loop: TimeLoop, keeps: str, chunk_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, v, w = points(loop)
    monkeypatch.setattr(vorticity, "VELOCITY_BYTES", 2**30 if keeps == "velocities" else 0)
    one_row = x[0].numel() * x.element_size()
    monkeypatch.setattr(time_loops, "CHUNK_BYTES", chunk_rows * one_row)
    pushed = jvp(loop.plain, x, v)[1]
    pulled = pulled_by_autograd(loop, x, w)

    value, derivative = jvp(lambda point: run(loop, point), x, v)
    torch.testing.assert_close(value, loop.plain(x), rtol=1e-12, atol=1e-12)
    assert relative(derivative, pushed) < 1e-10
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(run(loop, leaf), leaf, w)
    assert relative(gradient, pulled) < 1e-10

    kept = Linearisation(lambda point: run(loop, point), x)
    assert relative(kept.jvp(v), pushed) < 1e-10
    assert relative(kept.vjp(w), pulled) < 1e-10
    forward, backward = (kept.jvp(v) * w).sum((1, 2, 3)), (kept.vjp(w) * v).sum((1, 2, 3))
    torch.testing.assert_close(forward, backward, rtol=1e-10, atol=1e-10)


def test_single_precision_products(loop: TimeLoop) -> None:
    x, v, w = points(loop, torch.float32)
    kept = Linearisation(lambda point: run(loop, point), x)
    assert kept.jvp(v).dtype == kept.vjp(w).dtype == torch.float32
    exact = jvp(loop.plain, x.double(), v.double())[1]
    assert relative(kept.jvp(v).double(), exact) < 1e-5
    assert relative(kept.vjp(w).double(), pulled_by_autograd(loop, x.double(), w.double())) < 1e-5


def test_a_row_that_is_not_finite_stays_alone(loop: TimeLoop) -> None:
    x, _, w = points(loop)
    clean = Linearisation(lambda point: run(loop, point), x).vjp(w)
    x[2] = torch.nan
    dirty = Linearisation(lambda point: run(loop, point), x).vjp(w)
    assert bool(dirty[2].isnan().all())
    rows = torch.arange(5) != 2
    torch.testing.assert_close(dirty[rows], clean[rows], rtol=1e-12, atol=1e-12)


def test_derivatives_of_derivatives(loop: TimeLoop) -> None:
    """Backward through backward, three times, against the same through the plain steps."""
    x, v, w = points(loop)

    def by_order(function: Callable[[Tensor], Tensor]) -> list[Tensor]:
        leaf = x.clone().requires_grad_()
        cotangent = w.clone().requires_grad_()
        y = function(leaf)
        (first,) = torch.autograd.grad(y, leaf, cotangent, create_graph=True)
        second = torch.autograd.grad(first, (leaf, cotangent), v, create_graph=True)
        mixed = (second[0] * v).sum() + (second[1] * w).sum()
        return [first, *second, *torch.autograd.grad(mixed, (leaf, cotangent))]

    found = by_order(lambda point: run(loop, point))
    for mine, expected in zip(found, by_order(loop.plain), strict=True):
        assert relative(mine, expected) < 1e-10


def test_transforms_of_torch_func(loop: TimeLoop) -> None:
    x, v, w = points(loop)
    pulled = pulled_by_autograd(loop, x, w)
    _, pull = torch.func.vjp(lambda point: run(loop, point), x)
    assert relative(pull(w)[0], pulled) < 1e-10

    def single(row: Tensor, cotangent: Tensor) -> Tensor:
        _, back = torch.func.vjp(lambda point: run(loop, point[None])[0], row)
        return back(cotangent)[0]

    assert relative(torch.func.vmap(single)(x, w), pulled) < 1e-10
    pushed = torch.func.jvp(lambda point: run(loop, point), (x,), (v,))[1]
    assert relative(pushed, jvp(loop.plain, x, v)[1]) < 1e-10
