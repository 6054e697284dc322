"""The convolutions that published trainings may use are PyTorch's, to round-off."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch.nn.functional import conv2d, leaky_relu, pad

from benchmarks.winograd import Periodic, fewer_products, fits
from deceptron.core.differentiate import Linearisation, jvp
from deceptron.maps import ResidualCNN

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
CHANNELS, SLOPE = 16, 0.1


def reference(images, weight, bias, beside, slope):
    framed = pad(images.movedim(-1, 1), (1, 1, 1, 1), mode="circular")
    z = conv2d(framed, weight, bias).movedim(1, -1)
    return leaky_relu(z if beside is None else z + beside, slope)


@pytest.mark.parametrize("grid", [(8, 16), (16, 8), (32, 32)])
@pytest.mark.parametrize("residual", [False, True])
def test_values_and_gradients_are_those_of_a_periodic_convolution(grid, residual):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).requires_grad_()

    images = normal(3, *grid, CHANNELS)
    inputs = [images, normal(CHANNELS, CHANNELS, 3, 3), normal(CHANNELS)]
    inputs.append(normal(*images.shape) if residual else None)
    ours = Periodic.apply(*inputs, SLOPE)
    exact_inputs = [
        None if value is None else value.detach().double().requires_grad_() for value in inputs
    ]
    exact = reference(*exact_inputs, SLOPE)
    assert_close(ours, exact)
    # Round-off may move what lies on the kink of the activation to its other side.
    cotangent = torch.randn(*images.shape, generator=generator) * (exact.abs() > 1e-3)
    leaves, exact_leaves = ([v for v in each if v is not None] for each in (inputs, exact_inputs))
    gradients = torch.autograd.grad(ours, leaves, cotangent)
    exact_gradients = torch.autograd.grad(exact, exact_leaves, cotangent.double())
    for found, expected in zip(gradients, exact_gradients, strict=True):
        assert_close(found, expected)


def assert_close(found, expected, most=1e-4):
    found, expected = found.detach(), expected.detach()
    assert float((found - expected).norm() / expected.norm()) < most


def periodic_network(channels=CHANNELS, padding="circular"):
    return ResidualCNN(
        (2, 16, 16),
        (16, 16),
        dimensions=2,
        channels=channels,
        blocks=2,
        padding=padding,
        output_activation="tanh",
        generator=torch.Generator().manual_seed(1),
    )


def test_a_network_answers_the_same_with_fewer_products():
    network = periodic_network()
    x = torch.randn(3, 2, 16, 16, generator=torch.Generator().manual_seed(2))
    parameters = list(network.parameters())
    expected = network(x)
    expected_gradients = torch.autograd.grad(expected.square().sum(), parameters)
    with fewer_products():
        assert fits(network, x)
        found = network(x)
        gradients = torch.autograd.grad(found.square().sum(), parameters)
    assert_close(found, expected)
    for one, other in zip(gradients, expected_gradients, strict=True):
        assert_close(one, other, most=0.05)  # some activation may be on its other side
    assert network(x).equal(expected)  # and PyTorch's convolutions are back


def test_products_with_the_jacobian_are_left_to_pytorch():
    network = periodic_network()
    x = torch.randn(2, 2, 16, 16, generator=torch.Generator().manual_seed(3))
    expected = jvp(network, x, torch.ones_like(x))[1]
    with fewer_products():
        assert jvp(network, x, torch.ones_like(x))[1].equal(expected)


@pytest.mark.parametrize("other", [{"channels": 12}, {"padding": "zeros"}])
def test_networks_that_do_not_fit_are_left_alone(other):
    network = periodic_network(**other)
    x = torch.randn(2, 2, 16, 16, generator=torch.Generator().manual_seed(4))
    expected = network(x)
    with fewer_products():
        assert not fits(network, x)
        assert network(x).equal(expected)


def test_a_backward_pass_can_be_differentiated():
    network = periodic_network()
    generator = torch.Generator().manual_seed(2)
    x, v = (torch.randn(3, 2, 16, 16, generator=generator) for _ in range(2))
    expected = Linearisation(network, x).jvp(v)
    with fewer_products():
        assert fits(network, x)
        assert_close(Linearisation(network, x).jvp(v), expected)
