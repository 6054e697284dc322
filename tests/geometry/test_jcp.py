import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.geometry import (
    LocalGeometry,
    draw_probes,
    first_order_remainder,
    probe_defects,
)
from deceptron.maps import MLP, cnn_pair

PAIRS = ["mlp", "mlp-smooth", "cnn-1d", "cnn-2d", "cnn-2d-circular", "cnn-3d"]


def make(name, rows=3):
    g = torch.Generator().manual_seed(1)
    if name.startswith("mlp"):
        activation = "silu" if "smooth" in name else "leaky_relu"
        pair = dc.Deceptron(
            MLP((5, 7, 6), activation=activation, generator=g),
            MLP((6, 7, 5), activation=activation, generator=g),
        )
    else:
        dimensions = int(name[4])
        x_shape, y_shape = {
            1: ((5,), (2, 5)),
            2: ((3, 4), (2, 3, 4)),
            3: ((2, 3, 2), (2, 3, 2)),
        }[dimensions]
        pair = cnn_pair(
            x_shape,
            y_shape,
            dimensions=dimensions,
            channels=3,
            padding="circular" if "circular" in name else "zeros",
            activation="leaky_relu" if dimensions == 3 else "softplus",
            reverse_output_activation="tanh" if dimensions == 2 else None,
            generator=g,
        )
    pair = pair.double()
    for p in pair.parameters():  # zero biases would hide an error in theirs
        p.data += 0.1 * torch.randn(p.shape, dtype=p.dtype, generator=g)
    return pair, torch.randn(rows, *pair.x_shape, dtype=torch.float64, generator=g)


def dense_defects(pair, x):
    """``G J - I`` row by row in reverse mode, differentiable in the parameters."""
    n = x[0].numel()
    defects = []
    for row in x:
        jacobian = torch.autograd.functional.jacobian(
            lambda z: pair.f(z[None])[0], row, create_graph=True
        ).reshape(-1, n)
        reverse = torch.autograd.functional.jacobian(
            lambda y: pair.g(y[None])[0], pair.f(row[None])[0], create_graph=True
        ).reshape(n, -1)
        defects.append(reverse @ jacobian - torch.eye(n, dtype=x.dtype))
    return torch.stack(defects)


def gradients(value, pair):
    found = torch.autograd.grad(value, list(pair.parameters()), allow_unused=True)
    return [torch.zeros(1) if g is None else g for g in found]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("name", PAIRS)
def test_value_and_parameter_gradient_equal_the_dense_ones(name, reduction):
    pair, x = make(name)
    value = dc.jcp(
        pair, x, probes=3, reduction=reduction, generator=torch.Generator().manual_seed(2)
    )
    xi = draw_probes(x, probes=3, generator=torch.Generator().manual_seed(2)).flatten(2)
    squares = torch.einsum("bij,bkj->bki", dense_defects(pair, x), xi).square()
    expected = squares.sum(2).mean() if reduction == "sum" else squares.mean()
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)
    for ours, theirs in zip(gradients(value, pair), gradients(expected, pair), strict=True):
        theirs = theirs if theirs.numel() > 1 else theirs.expand_as(ours)
        torch.testing.assert_close(ours, theirs.to(ours), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["mlp-smooth", "cnn-2d-circular"])
def test_gradient_equals_finite_differences(name):
    pair, x = make(name)

    def value():
        return dc.jcp(pair, x, generator=torch.Generator().manual_seed(2))

    for module in (pair.f, pair.g):
        weight = next(module.parameters())
        direction = torch.randn(
            weight.shape, dtype=weight.dtype, generator=torch.Generator().manual_seed(3)
        )
        slope = (torch.autograd.grad(value(), weight)[0] * direction).sum()
        weight.data += 1e-5 * direction
        above = value().item()
        weight.data -= 2e-5 * direction
        below = value().item()
        weight.data += 1e-5 * direction
        assert slope.item() == pytest.approx((above - below) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("kind", ["rademacher", "normal"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_rjcp_equals_the_dense_one_for_each_row(kind, reduction):
    pair, x = make("cnn-2d")
    options = {"probes": 5, "kind": kind}
    value = dc.rjcp(
        pair, x, reduction=reduction, generator=torch.Generator().manual_seed(4), **options
    )
    xi = draw_probes(x, generator=torch.Generator().manual_seed(4), **options).flatten(2)
    squares = torch.einsum("bij,bkj->bki", dense_defects(pair, x), xi).square()
    expected = squares.sum(2).mean(1) if reduction == "sum" else squares.mean((1, 2))
    torch.testing.assert_close(value, expected.detach(), rtol=1e-10, atol=1e-12)
    assert not value.requires_grad
    scalar = dc.jcp(
        pair, x, reduction=reduction, generator=torch.Generator().manual_seed(4), **options
    )
    torch.testing.assert_close(value.mean(), scalar.detach())


def test_sum_is_n_times_mean():
    pair, x = make("cnn-3d")
    a, b = (
        dc.jcp(pair, x, reduction=r, generator=torch.Generator().manual_seed(0))
        for r in ("sum", "mean")
    )
    torch.testing.assert_close(a, x[0].numel() * b)


@pytest.mark.parametrize("kind", ["rademacher", "normal"])
@pytest.mark.parametrize("shape", [(3,), (64,), (5, 7)])
def test_appended_rows_leave_the_probes_of_earlier_rows_alone(kind, shape):
    x = torch.zeros(9, *shape)

    def draw(rows):
        return draw_probes(
            x[:rows], probes=3, kind=kind, generator=torch.Generator().manual_seed(5)
        )

    for rows in range(1, 9):
        assert torch.equal(draw(rows), draw(9)[:rows])


def test_probes_have_identity_covariance_and_their_kind():
    x = torch.zeros(2000, 6, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for kind in ("rademacher", "normal"):
        xi = draw_probes(x, probes=10, kind=kind, generator=generator).flatten(0, 1)
        assert (xi.T @ xi / len(xi) - torch.eye(6)).abs().max() < 5 * (2 / len(xi)) ** 0.5
        assert (set(xi.unique().tolist()) == {-1.0, 1.0}) == (kind == "rademacher")


def test_the_same_seed_gives_the_same_bits():
    pair, x = make("mlp")
    a, b, c = (
        dc.rjcp(pair, x, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_inference_mode_changes_nothing():
    # Inside it PyTorch's dual numbers lose their tangents; the defect would read as 1.
    pair, x = make("cnn-2d")
    target = pair.f(x).detach() + 1

    def values():
        inference = dc.rjcp(pair, x, generator=torch.Generator().manual_seed(0))
        remainder = first_order_remainder(pair, x, target)
        return inference, LocalGeometry.at(pair, x, target).jacobian, remainder

    outside = values()
    with torch.inference_mode():
        x, target = x.clone(), target.clone()
        inside = values()
    for a, b in zip(outside, inside, strict=True):
        assert torch.equal(a, b)


def test_a_reverse_map_that_is_zero_scores_one():
    class Zero(nn.Module):
        def forward(self, y):
            return torch.zeros(len(y), 5, dtype=y.dtype)

    pair, x = make("mlp")
    pair.g = Zero()
    assert dc.jcp(pair, x).item() == 1.0


def test_any_object_with_f_and_g_is_a_pair():
    class Inverse:
        def f(self, x):
            return x.exp()

        def g(self, y):
            return y.log()

    x = torch.rand(4, 3, 2, dtype=torch.float64)
    assert dc.rjcp(Inverse(), x).max() < 1e-28


def test_modules_that_vmap_refuses_are_fine():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_forward(x)
            return x**3

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * tangent

    class Pair:
        f = staticmethod(Cube.apply)

        def g(self, y):
            return y ** (1 / 3)

    assert dc.rjcp(Pair(), 1 + torch.rand(4, 3, dtype=torch.float64)).max() < 1e-28


def test_a_row_that_is_nan_leaves_the_others_alone():
    pair, x = make("mlp")
    clean = dc.rjcp(pair, x, generator=torch.Generator().manual_seed(0))
    x[1] = torch.nan
    value = dc.rjcp(pair, x, generator=torch.Generator().manual_seed(0))
    assert torch.equal(value[[0, 2]], clean[[0, 2]])


def test_latents_may_be_any_array():
    pair, x = make("mlp")
    single = pair.float()
    rows = [x, x.numpy(), x.tolist(), x.float()]
    values = [dc.rjcp(single, r, generator=torch.Generator().manual_seed(0)) for r in rows]
    assert all(torch.equal(value, values[0]) for value in values)


def test_bad_input_is_named():
    pair, x = make("mlp")
    with pytest.raises(dc.ConfigError, match="probes must be an integer >= 1; got 0"):
        dc.jcp(pair, x, probes=0)
    with pytest.raises(dc.ConfigError, match="kind must be one of 'rademacher', 'normal'; got 'x'"):
        dc.rjcp(pair, x, kind="x")
    with pytest.raises(dc.ConfigError, match="reduction must be one of 'mean', 'sum'; got 'max'"):
        dc.jcp(pair, x, reduction="max")
    with pytest.raises(dc.ShapeError, match="x must have at least one row"):
        dc.jcp(pair, x[:0])
    with pytest.raises(dc.ConfigError, match=r"x must hold real numbers; got torch\.bool"):
        dc.jcp(pair, x > 0)
    with pytest.raises(dc.ConfigError, match=r"generator must be a torch\.Generator; got 3"):
        dc.jcp(pair, x, generator=3)
    with pytest.raises(dc.ConfigError, match="pair must have methods f and g; got Linear"):
        dc.jcp(nn.Linear(2, 2), x)
    with pytest.raises(dc.ShapeError, match="probes must have shape"):
        probe_defects(pair, x, x)
    with pytest.raises(
        dc.ShapeError, match=r"pair.g must return rows of x's shape \(5,\); got \(6,\)"
    ):
        dc.jcp(dc.Deceptron(nn.Linear(5, 6).double(), nn.Identity()), x)
