"""NumPy functions as a differentiable map: every transform, every failure, every bill."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import deceptron as dc
from deceptron.core.differentiate import Linearisation, dense_jacobian, jvp
from deceptron.simulators import wrap
from tests.simulators import physics
from tests.simulators.physics import in_torch, rows

KINDS = {
    "both": {"vjp": physics.vjp, "jvp": physics.jvp},
    "vjp": {"vjp": physics.vjp},
    "jvp": {"jvp": physics.jvp},
}
# A central difference errs by the square of its step; products by hand only by round-off.
TOLERANCE = {"both": 1e-12, "vjp": 1e-7, "jvp": 1e-12}


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_to_differentiate_agrees_with_torch(kind: str) -> None:
    simulator = wrap(physics.value, **KINDS[kind])
    x, v = rows(), rows(seed=1) - 0.5
    w = in_torch(rows(seed=2))
    close: dict[str, Any] = {"atol": TOLERANCE[kind], "rtol": 0}
    truth = Linearisation(in_torch, x)
    found = Linearisation(simulator, x)
    torch.testing.assert_close(simulator(x), in_torch(x))
    torch.testing.assert_close(jvp(simulator, x, v)[1], truth.jvp(v), **close)
    for _ in range(2):  # again from the same graph
        torch.testing.assert_close(found.jvp(v), truth.jvp(v), **close)
        torch.testing.assert_close(found.vjp(w), truth.vjp(w), **close)
    matrix = dense_jacobian(in_torch, x)
    torch.testing.assert_close(dense_jacobian(simulator, x), matrix, **close)
    torch.testing.assert_close(torch.func.vjp(simulator, x)[1](w)[0], truth.vjp(w), **close)
    torch.testing.assert_close(torch.func.jvp(simulator, (x,), (v,))[1], truth.jvp(v), **close)

    def one(row: torch.Tensor) -> torch.Tensor:
        return simulator(row[None])[0]

    for transform in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(torch.func.vmap(transform(one))(x), matrix, **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batched", [True, False])
def test_output_follows_the_dtype_and_functions_see_float64(
    dtype: torch.dtype, batched: bool
) -> None:
    seen = []

    def value(x: Any) -> Any:
        seen.append((x.dtype, x.ndim))
        return physics.value(x)

    x = rows(dtype=dtype)
    y = wrap(value, batched=batched)(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y, in_torch(x))
    assert set(seen) == {(np.dtype(np.float64), 2 if batched else 1)}


def test_values_alone_have_no_derivative_and_say_so() -> None:
    simulator = wrap(physics.value)
    assert not simulator.differentiable
    x = rows().requires_grad_()
    y = simulator(x)
    with pytest.raises(dc.ConfigError, match=r"wrap\(value\) gives values only"):
        y.sum().backward()
    with pytest.raises(dc.ConfigError, match="differentiable=False"):
        jvp(simulator, x.detach(), x.detach())


@pytest.mark.parametrize("batched", [True, False])
def test_a_function_that_writes_to_its_input_corrupts_nothing(batched: bool) -> None:
    def value(x: Any) -> Any:
        y = physics.value(x)
        x[...] = 7.0
        return y

    def vjp(x: Any, w: Any) -> Any:
        found = physics.vjp(x, w)
        x[...], w[...] = 7.0, 7.0
        return found

    simulator = wrap(value, vjp, batched=batched)
    x, w = rows().requires_grad_(), torch.ones(4, 5, dtype=torch.float64)
    before = x.detach().clone()
    for _ in range(2):
        (pulled,) = torch.autograd.grad(simulator(x), x, w)
        torch.testing.assert_close(pulled, Linearisation(in_torch, before).vjp(w))
    assert torch.equal(x, before)
    assert bool((w == 1).all())


def test_a_function_that_returns_the_same_buffer_again_corrupts_nothing() -> None:
    buffer = np.zeros(5)

    def value(x: Any) -> Any:
        buffer[:] = physics.value(x)
        return buffer

    simulator = wrap(value, batched=False)
    first = simulator(rows())
    simulator(rows(seed=1))
    torch.testing.assert_close(first, in_torch(rows()))


@pytest.mark.parametrize(
    ("function", "batched"), [(physics.fails_above, False), (physics.batch_fails_above, True)]
)
def test_a_row_that_raises_is_alone_in_it(function: Any, batched: bool) -> None:
    simulator = wrap(function, batched=batched)
    x = rows()
    x[:, 0] = torch.tensor([0.1, 0.95, 0.2, 0.3])
    with pytest.warns(RuntimeWarning, match="1 of 4 rows failed"):
        y = simulator(x)
    assert y.isnan().all(1).tolist() == [False, True, False, False]
    torch.testing.assert_close(y[[0, 2, 3]], in_torch(x[[0, 2, 3]]))
    assert simulator.failures == ["value, row 1: ArithmeticError: no steady state"]
    assert (simulator.calls.values, simulator.calls.failed) == (4, 1)
    simulator(x)  # said once, counted always
    assert simulator.calls.failed == 2
    simulator.reset()
    assert (simulator.calls.values, simulator.failures) == (0, [])


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda y: np.where(y > 2, y, np.nan), "returned NaN or infinity in 5 of 5 values"),
        (lambda y: y[:3], r"returned shape \(3,\); shape \(5,\) was expected"),
        (lambda y: y.astype(complex), "or an array of numbers; got"),
        (lambda y: "text", "or an array of numbers; got"),
    ],
)
def test_a_bad_row_says_in_words_what_it_was(bad: Any, words: str) -> None:
    simulator = wrap(
        lambda x: bad(physics.value(x)) if x[0] == 0 else physics.value(x), batched=False
    )
    x = rows()
    x[2, 0] = 0
    with pytest.warns(RuntimeWarning, match=words):
        y = simulator(x)
    assert y.isnan().all(1).tolist() == [False, False, True, False]


def test_a_first_row_that_goes_wrong_does_not_say_what_shape_the_others_have() -> None:
    simulator = wrap(lambda x: np.zeros(7) if x[0] == 0 else physics.value(x), batched=False)
    x = rows()
    x[0, 0] = 0
    with pytest.warns(RuntimeWarning, match="1 of 4 rows failed"):
        y = simulator(x)
    torch.testing.assert_close(y[1:], in_torch(x[1:]))


def test_a_function_of_one_row_is_told_of_batched() -> None:
    def one_row(x: Any) -> Any:
        a, b = x
        return np.array([a, b, a * b])

    x = torch.rand(4, 2)
    with pytest.warns(RuntimeWarning), pytest.raises(dc.SimulatorError, match="batched=False"):
        wrap(one_row)(x)
    assert wrap(one_row, batched=False)(x).shape == (4, 3)


def test_a_simulator_that_never_worked_is_an_error_in_words() -> None:
    def broken(x: Any) -> Any:
        raise NameError("name 'nx' is not defined")

    simulator = wrap(broken)
    with (
        pytest.warns(RuntimeWarning, match="4 of 4 rows failed"),
        pytest.raises(
            dc.SimulatorError, match=r"every row so far, 4 of them.*NameError: name 'nx'"
        ),
    ):
        simulator(rows())


def test_rows_that_are_not_finite_never_reach_the_simulator() -> None:
    simulator = wrap(physics.value, physics.vjp)
    x = rows()
    x[1, 0] = torch.nan
    y = simulator(x.requires_grad_())
    assert y.isnan().any(1).tolist() == [False, True, False, False]
    (pulled,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert pulled.isnan().any(1).tolist() == [False, True, False, False]
    assert (simulator.calls.values, simulator.calls.vjps, simulator.calls.failed) == (3, 3, 0)


def test_the_edge_of_what_a_simulator_can_do_gets_a_one_sided_difference() -> None:
    edged = wrap(lambda x: np.where(x <= 0.5, x**2, np.nan), lambda x, w: 2 * x * w, accuracy=1e-12)
    x = torch.tensor([[0.5], [0.25]], dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="NaN"):
        _, slope = jvp(edged, x, torch.ones_like(x))
    torch.testing.assert_close(slope, 2 * x, atol=1e-3, rtol=0)


def test_a_difference_moves_each_component_of_a_vector_by_its_own_size() -> None:
    def value(x: Any) -> Any:
        return np.sin(x / [1e-3, 1e3])

    def adjoint(x: Any, w: Any) -> Any:
        return w * np.cos(x / [1e-3, 1e3]) / [1e-3, 1e3]

    mixed = wrap(value, vjp=adjoint, scale=1e-4)
    x = torch.tensor([[2e-3, 3e3]], dtype=torch.float64)
    for direction in torch.eye(2, dtype=torch.float64):
        _, slope = jvp(mixed, x, direction[None])
        expected = torch.from_numpy(adjoint(x.numpy(), direction[None].numpy()))
        torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-12)


def test_repeated_rows_and_zero_products_cost_nothing() -> None:
    simulator = wrap(physics.value, **KINDS["both"])
    dense_jacobian(simulator, rows())
    assert (simulator.calls.values, simulator.calls.jvps) == (4, 12)
    simulator.reset()
    linear = Linearisation(simulator, rows())
    assert (simulator.calls.values, simulator.calls.vjps) == (4, 0)
    w = torch.zeros(4, 5, dtype=torch.float64)
    w[1] = 1
    linear.vjp(w)
    assert simulator.calls.vjps == 1
    assert str(simulator.calls) == "4 values, 1 vjps, 0 jvps"


def test_a_jvp_alone_serves_few_components_only() -> None:
    simulator = wrap(lambda x: x[:, :2], jvp=lambda x, v: v[:, :2])
    x = torch.zeros(2, 600, dtype=torch.float64, requires_grad=True)
    with pytest.raises(dc.ConfigError, match="allowed up to 512; got 600: pass vjp"):
        simulator(x).sum().backward()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"value": 3}, r"wrap\(value=\.\.\.\) must be a function of arrays; got int"),
        ({"value": physics.value, "vjp": "J"}, r"wrap\(vjp=\.\.\.\) must be a function"),
        ({"value": physics.value, "workers": 0}, "workers must be an integer >= 1"),
        ({"value": physics.value, "batched": "no"}, "batched must be True or False; got 'no'"),
        ({"value": lambda x: x, "workers": 2}, "must be picklable for workers > 1"),
        ({"value": physics.value, "accuracy": 0.0}, "accuracy must lie in"),
        ({"value": physics.value, "scale": -1.0}, "scale must lie in"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(dc.ConfigError, match=words):
        wrap(**arguments)


def test_other_inputs_than_rows_of_numbers_are_named() -> None:
    simulator = wrap(physics.value)
    with pytest.raises(dc.ConfigError, match="x must be a number or an array of numbers; got 'x'"):
        simulator("x")  # type: ignore[arg-type]
    with pytest.raises(dc.ShapeError, match="at least one row"):
        simulator(torch.empty(0, 3))
    for given in (rows().numpy(), rows().numpy().astype(">f8"), rows().tolist()):
        np.testing.assert_allclose(simulator(given), in_torch(rows()), rtol=1e-5)


def test_a_row_that_ends_the_program_is_a_row_that_fails() -> None:
    def leaves(x: Any) -> Any:
        if x[0] > 0.5:
            sys.exit(3)
        return x

    simulator = wrap(leaves, batched=False)
    with pytest.warns(RuntimeWarning, match="row 1: SystemExit: 3"):
        found = simulator(torch.tensor([[0.1], [0.9]]))
    assert found.isfinite().tolist() == [[True], [False]]


def test_what_a_masked_array_hides_is_not_an_answer() -> None:
    hiding = wrap(lambda x: np.ma.masked_array(x, mask=x > 0.5))
    with pytest.warns(RuntimeWarning, match="row 1: returned NaN"):
        found = hiding(torch.tensor([[0.1], [0.9]]))
    assert found.isfinite().tolist() == [[True], [False]]


def test_processes_share_the_rows_and_lose_only_those_that_kill() -> None:
    x = rows(12)
    x[:, 0] = torch.linspace(0.05, 0.8, 12)
    with wrap(physics.where_it_runs, batched=False, workers=2) as simulator:
        numbers, threads, variable = simulator(x).T.unbind()
        assert os.getpid() not in numbers.tolist()
        assert 1 <= len(numbers.unique()) <= 2
        assert threads.unique().tolist() == variable.unique().tolist() == [1.0]
        restored = pickle.loads(pickle.dumps(simulator))
        assert restored.calls.values == 12
    with wrap(physics.dies_above, physics.vjp, batched=False, workers=2) as simulator:
        leaf = x.clone().requires_grad_()
        y = simulator(leaf)
        torch.testing.assert_close(y, in_torch(leaf))
        (pulled,) = torch.autograd.grad(y, leaf, torch.ones_like(y))
        torch.testing.assert_close(pulled, Linearisation(in_torch, x).vjp(torch.ones_like(y)))
        x[5, 0] = 0.95
        with pytest.warns(RuntimeWarning, match="row 5: its process died"):
            y = simulator(x)
    assert y.isnan().all(1).nonzero().flatten().tolist() == [5]


def test_a_problem_learns_from_the_simulator_whether_it_has_derivatives() -> None:
    arguments: dict[str, Any] = {
        "sample": lambda count, g: torch.rand(count, 3, generator=g),
        "bounds": (0.0, 1.0),
        "noise_std": 0.01,
    }
    with_adjoint = dc.problems.define(
        "with-adjoint", simulate=wrap(physics.value, physics.vjp), **arguments
    )
    assert with_adjoint.differentiable
    report = dc.problems.verify(with_adjoint, quiet=True)
    assert report.ok, str(report)
    assert not dc.problems.define(
        "values", simulate=wrap(physics.value), **arguments
    ).differentiable


TYPED = """
import deceptron as dc, torch

def value(x):
    return 2 * x

with dc.simulators.wrap(value, workers=2) as simulator:
    try:
        simulator(torch.rand(6, 3))
    except dc.ConfigError as error:
        print(error)
"""


def test_a_function_typed_at_a_prompt_is_not_found_by_other_processes() -> None:
    found = subprocess.run(
        [sys.executable, "-c", TYPED], capture_output=True, text=True, timeout=200, check=True
    )
    assert "workers=2: other processes cannot find the function" in found.stdout
    assert "belongs into a module" in found.stdout


def test_second_derivatives_are_nan_in_every_mode():
    """Forward over reverse has no tangent of the cotangent, which must not be asked for."""
    simulate = dc.simulators.wrap(lambda x: x**2, vjp=lambda x, w: 2 * x * w)
    x = torch.rand(2, 3, dtype=torch.float64)
    ones = torch.ones_like(x)

    def slope(z):
        return torch.func.grad(lambda rows: simulate(rows).sum())(z)

    def along(z):
        return torch.func.jvp(simulate, (z,), (ones,))[1]

    for derivative in (slope, along):
        value, tangent = torch.func.jvp(derivative, (x,), (ones,))
        torch.testing.assert_close(value, 2 * x, rtol=1e-6, atol=0)
        assert tangent.isnan().all()
        assert torch.func.grad(lambda z, d=derivative: d(z).sum())(x).isnan().all()
