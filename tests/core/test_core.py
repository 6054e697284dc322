"""Boxes, scalers and derivatives: the small things everything else stands on."""

import pytest
import torch
from torch.autograd.function import once_differentiable

import deceptron as dc
from deceptron.core import Box
from deceptron.core.differentiate import Linearisation, dense_jacobian, jvp


def test_projection_by_numbers_and_by_tensors_agrees():
    x = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(2, 6)
    like = x
    numbers = Box.parse((-1.0, 0.5), (6,), like)
    tensors = Box.parse((torch.full((6,), -1.0), torch.tensor([0.5])), (6,), like)
    torch.testing.assert_close(numbers.project(x), tensors.project(x))
    assert numbers.project(x).min() == -1
    assert numbers.project(x).max() == 0.5


def test_a_one_sided_box_is_allowed():
    box = Box.parse((0.0, float("inf")), (3,), torch.zeros(1))
    assert box.project(torch.tensor([[-1.0, 2.0, 1e9]])).tolist() == [[0.0, 2.0, 1e9]]


def test_free_components_are_those_a_descent_step_may_move():
    box = Box(0.0, 1.0)
    x = torch.tensor([[0.0, 0.0, 0.5, 1.0, 1.0]])
    gradient = torch.tensor([[1.0, -1.0, 1.0, 1.0, -1.0]])
    assert box.free(x, gradient).tolist() == [[False, True, True, True, False]]


@pytest.mark.parametrize(("per", "shape"), [("component", (2, 3, 4)), ("channel", (2, 1, 1))])
def test_scaler_normalises_with_training_statistics(per, shape):
    y = torch.randn(200, 2, 3, 4, dtype=torch.float64) * 3 + 5
    scaler = dc.Scaler.fit(y, per=per)
    assert tuple(scaler.scale.shape) == shape
    z = scaler.normalise(y)
    axes = (0,) if per == "component" else (0, 2, 3)
    torch.testing.assert_close(z.mean(axes), torch.zeros_like(z.mean(axes)), atol=1e-12, rtol=0)
    torch.testing.assert_close(z.square().mean(axes), torch.ones_like(z.mean(axes)))
    torch.testing.assert_close(scaler.denormalise(z), y)


def test_a_constant_component_does_not_explode():
    y = torch.randn(50, 3)
    y[:, 1] = 7.0
    z = dc.Scaler.fit(y).normalise(y)
    assert bool(z.isfinite().all())
    assert float(z[:, 1].abs().max()) < 1


def test_components_of_any_units_are_scaled_each_by_its_own():
    y = torch.randn(200, 4, dtype=torch.float64) * torch.tensor([1e-9, 1.0, 1e7, 0.0])
    scaler = dc.Scaler.fit(y, least=torch.tensor([1e-10, 0.1, 1e6, 0.2]))
    spread = scaler.normalise(y).std(0)
    torch.testing.assert_close(spread[:3], torch.ones_like(spread[:3]), atol=0.01, rtol=0)
    assert float(scaler.scale[3]) == pytest.approx(0.2)  # silent: its noise is all it has


def test_scaler_keeps_fractions_and_precision():
    assert dc.Scaler(0.5, 2).normalise(torch.tensor(1.5)) == 0.5
    fine = torch.tensor(1 / 3, dtype=torch.float64)
    assert dc.Scaler(fine, 1.0).shift == fine


def test_scaler_refuses_a_scale_that_cannot_divide():
    with pytest.raises(dc.ConfigError, match="must be positive and finite"):
        dc.Scaler(0.0, torch.tensor([1.0, 0.0]))


def test_jvp_and_dense_jacobian_against_functorch():
    weight = torch.randn(5, 4, dtype=torch.float64)

    def f(x):
        return torch.tanh(x.flatten(1) @ weight.T)

    x = torch.randn(3, 2, 2, dtype=torch.float64)
    v = torch.randn_like(x)
    jacobian = dense_jacobian(f, x)
    for row in range(3):
        exact = torch.func.jacrev(lambda z: f(z[None])[0])(x[row]).reshape(5, 4)
        torch.testing.assert_close(jacobian[row], exact)
    torch.testing.assert_close(dense_jacobian(f, x, outputs=5), jacobian)  # by one backward pass
    value, tangent = jvp(f, x, v)
    torch.testing.assert_close(value, f(x))
    torch.testing.assert_close(tangent, torch.einsum("bmn,bn->bm", jacobian, v.flatten(1)))
    w = torch.randn(3, 5, dtype=torch.float64)
    linear = Linearisation(f, x)
    for _ in range(2):  # products can be repeated
        torch.testing.assert_close(linear.jvp(v), tangent)
        pulled = torch.einsum("bmn,bm->bn", jacobian, w)
        torch.testing.assert_close(linear.vjp(w).flatten(1), pulled)


def test_jvp_holds_in_inference_mode():
    with torch.inference_mode():
        x = torch.zeros(2, 3)
        _, tangent = jvp(torch.sin, x, torch.ones_like(x))
    assert tangent.tolist() == [[1.0] * 3] * 2


def test_a_map_that_ignores_its_input_has_a_zero_derivative():
    x = torch.randn(3, 4)
    _, tangent = jvp(lambda x: torch.ones(3, 2), x, torch.ones_like(x))
    assert tangent.tolist() == [[0.0, 0.0]] * 3
    linear = Linearisation(lambda x: torch.ones(3, 2), x)
    assert linear.jvp(torch.ones_like(x)).tolist() == [[0.0, 0.0]] * 3
    assert linear.vjp(torch.ones(3, 2)).tolist() == [[0.0] * 4] * 3


def test_a_map_of_steps_has_a_derivative_of_zero():
    """Its J'u is zero for every u, which is no sign of a backward pass without a derivative."""
    x = torch.randn(3, 4)
    for steps in (torch.round, torch.sign):
        linear = Linearisation(steps, x)
        assert not bool(linear.jvp(torch.ones_like(x)).any())
        assert not bool(linear.vjp(torch.ones_like(x)).any())


@pytest.mark.parametrize("once", [False, True])
def test_a_backward_pass_that_has_no_derivative_is_refused_and_not_zero(once):
    class Adjoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square()

        @staticmethod
        def backward(ctx, w):
            return (2 * ctx.saved_tensors[0] * w).detach()

    if once:
        Adjoint.backward = staticmethod(once_differentiable(Adjoint.backward))
    x = torch.ones(3, 4)
    with pytest.raises(dc.ConfigError, match=r"simulators\.wrap"):
        Linearisation(Adjoint.apply, x).jvp(x)
    with pytest.raises(dc.ConfigError, match=r"simulators\.wrap"):
        jvp(Adjoint.apply, x, x)
