"""JAX functions: one compiled call, both derivatives, either precision, no shared memory."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import deceptron as dc
from deceptron.core.differentiate import Linearisation, dense_jacobian, jvp
from deceptron.simulators import from_jax
from deceptron.simulators.jax_function import filled_up
from tests.simulators.physics import MATRIX, in_torch, rows

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    jax: Any = pytest.importorskip("jax")
    import jax.numpy as jnp


def one(x: Any) -> Any:
    return jnp.tanh(MATRIX @ x)


def all_rows(x: Any) -> Any:
    return jnp.tanh(x @ MATRIX.T)


@pytest.mark.parametrize(
    "arguments", [{"f": one}, {"f": all_rows, "batched": True}, {"f": one, "reverse": False}]
)
def test_every_way_to_differentiate_agrees_with_torch(arguments: dict[str, Any]) -> None:
    simulator = from_jax(**arguments)
    x, v, w = rows(5), rows(5, seed=1) - 0.5, in_torch(rows(5, seed=2))
    torch.testing.assert_close(simulator(x), in_torch(x))
    truth, found = Linearisation(in_torch, x), Linearisation(simulator, x)
    torch.testing.assert_close(jvp(simulator, x, v)[1], truth.jvp(v))
    torch.testing.assert_close(found.jvp(v), truth.jvp(v))
    torch.testing.assert_close(found.vjp(w), truth.vjp(w))
    torch.testing.assert_close(dense_jacobian(simulator, x), dense_jacobian(in_torch, x))


def test_double_precision_is_inside_whatever_the_dtype_outside() -> None:
    seen = []

    def noted(x: Any) -> Any:
        seen.append(x.dtype)
        return one(x)

    x = rows(3, dtype=torch.float32)
    assert from_jax(noted)(x).dtype == torch.float32
    single = from_jax(noted, float64=False)
    assert single(x.double()).dtype == torch.float64
    assert seen == [jnp.float64, jnp.float32]
    leaf = x.double().requires_grad_()
    (pulled,) = torch.autograd.grad(single(leaf).sum(), leaf)
    truth = Linearisation(in_torch, x.double()).vjp(torch.ones(3, 5, dtype=torch.float64))
    torch.testing.assert_close(pulled, truth, rtol=1e-4, atol=1e-5)
    assert jnp.asarray(np.ones(1)).dtype == jnp.float32  # the user's own setting is untouched


def test_what_comes_back_is_not_the_memory_of_x() -> None:
    simulator = from_jax(lambda x: x)
    x = rows(4)
    before = x.clone()
    simulator(x).zero_()
    assert torch.equal(x, before)
    y = simulator(x)
    x.zero_()
    assert torch.equal(y, before)


def test_few_sizes_are_compiled_for_many_numbers_of_rows() -> None:
    traced = []

    def f(x: Any) -> Any:
        traced.append(x.shape)
        return x**2

    simulator = from_jax(f)
    for count in range(24, 0, -1):  # as a solver's batch shrinks
        x = rows(count)
        torch.testing.assert_close(simulator(x), x**2)
    assert len(traced) == 2
    for count in range(25, 97):
        simulator(rows(count))
    assert len(traced) == 2 + len({filled_up(k) for k in range(25, 97)}) == 6


def test_a_row_that_overflows_is_alone_in_it() -> None:
    simulator = from_jax(lambda x: 1 / x)
    x = rows(4)
    x[2, 1] = 0
    with pytest.warns(RuntimeWarning, match="row 2: returned NaN or infinity in 1 of 3 values"):
        y = simulator(x)
    assert y.isnan().all(1).tolist() == [False, False, True, False]


def test_what_jax_cannot_do_is_said_in_words() -> None:
    with pytest.raises(dc.ConfigError, match=r"from_jax\(f=\.\.\.\) must be a JAX function"):
        from_jax(3)  # type: ignore[arg-type]
    with pytest.raises(dc.SimulatorError, match="fails on any rows: TypeError"):
        from_jax(lambda x: x @ jnp.ones((7, 2)))(rows())
    loop = from_jax(lambda x: jax.lax.while_loop(lambda s: s.sum() < 100, lambda s: 2 * s, x))
    leaf = rows().requires_grad_()
    with pytest.raises(dc.SimulatorError, match="Reverse-mode"):
        loop(leaf).sum().backward()


@pytest.mark.parametrize(
    ("f", "batched", "words"),
    [
        (lambda x: (x, x), False, "one array with a row for each of x is wanted"),
        (lambda x: (x, x), True, "one array with a row for each of x is wanted"),
        (lambda x: x.sum(0), True, "one array with a row for each of x is wanted"),
        (lambda x: jnp.concatenate([x, x]), True, "one array with a row for each of x is wanted"),
        (lambda x: 1j * x, False, "an array of numbers; got ndarray of complex128"),
    ],
)
def test_what_is_not_rows_of_numbers_is_named(f: Any, batched: bool, words: str) -> None:
    with pytest.raises(dc.SimulatorError, match=words):
        from_jax(f, batched=batched)(rows(4))
