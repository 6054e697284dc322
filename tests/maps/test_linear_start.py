import json

import pytest
import torch

import deceptron as dc
from deceptron.core.differentiate import dense_jacobian, jvp
from deceptron.maps import MLP, LinearStart, LowRank, SpectralGain, UNet, Wiener, build


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def started(body, linear, *, periodic=False):
    """A linear start whose body is no longer zero, so that there is something to test."""
    net = LinearStart(linear, body, periodic=periodic)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=generator))
    return net


def unet(linear, *, periodic=False, levels=2):
    count = LinearStart.feature_count(linear, periodic=periodic)
    return UNet(
        (count, *linear.in_shape[1:]),
        linear.out_shape,
        channels=3,
        levels=levels,
        padding="circular" if periodic else "zeros",
        gates=not periodic,
        generator=torch.Generator().manual_seed(1),
    )


def plane():
    linear = LowRank.fit(draw(40, 1, 4, 6), draw(40, 2, 4, 6, seed=1), noise_std=0.1, rank=5)
    return started(unet(linear), linear)


def torus():
    linear = SpectralGain.fit(draw(40, 2, 4, 6), draw(40, 1, 4, 6, seed=1), noise_std=0.1)
    return started(unet(linear, periodic=True), linear, periodic=True)


def space():
    linear = LowRank.fit(draw(40, 1, 4, 2, 4), draw(40, 1, 4, 2, 4, seed=1), rank=5)
    return started(unet(linear), linear)


def vector():
    linear = LowRank.fit(draw(40, 7), draw(40, 3, 2, seed=1), noise_std=0.1, rank=5)
    body = MLP((5, 8, 6), activation="silu", generator=torch.Generator().manual_seed(1))
    return started(body, linear)


@pytest.fixture(params=[plane, torus, space, vector])
def network(request):
    return request.param()


def rows(network, count=3, dtype=torch.float64):
    return draw(count, *network.in_shape, seed=9).to(dtype)


def test_shapes_and_rows(network):
    network = network.double()
    x = rows(network, 4)
    together = network(x)
    assert together.shape == (4, *network.out_shape)
    alone = torch.cat([network(row[None]) for row in x])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    with pytest.raises(dc.ShapeError, match="takes rows of shape"):
        network(torch.zeros(3, 99))


def test_forward_mode_equals_reverse_mode(network):
    network = network.double()
    x = rows(network, 2)
    forward = dense_jacobian(network, x)
    for row in range(2):
        reverse = torch.autograd.functional.jacobian(lambda z: network(z[None])[0], x[row])
        torch.testing.assert_close(
            forward[row], reverse.reshape(forward[row].shape), rtol=1e-9, atol=1e-10
        )


def test_twice_differentiable_and_jcp_trains(network):
    network = network.double()
    x = rows(network, 1).requires_grad_()
    assert torch.autograd.gradgradcheck(network, x)
    _, tangent = jvp(network, x, torch.ones_like(x))
    tangent.square().sum().backward()
    assert all(p.grad is not None for p in network.body.parameters() if p.ndim > 1)


def test_file_restores_the_map(network, tmp_path):
    config = json.loads(json.dumps(network.config()))
    twin = build(network.kind, config)
    twin.load_state_dict(network.state_dict())
    x = rows(network, dtype=torch.float32)
    assert torch.equal(twin(x), network(x))
    pair = dc.Deceptron(network, Wiener(network.in_shape, network.out_shape))
    restored = dc.load(dc.save(pair, tmp_path / "pair.safetensors"))
    assert torch.equal(restored.f(x), network(x))


def test_a_fresh_unet_is_zero_so_the_start_is_linear():
    linear = LowRank.fit(draw(40, 1, 4, 4), draw(40, 1, 4, 4, seed=1), noise_std=0.1, rank=5)
    net = LinearStart(linear, unet(linear)).fit_scales(draw(40, 1, 4, 4), draw(40, 1, 4, 4, seed=1))
    x = draw(3, 1, 4, 4, seed=2)
    assert torch.equal(net(x), linear(x))
    assert net.scale > 0


def test_full_rank_is_the_wiener_estimate():
    x, y = draw(60, 5), draw(60, 2, 3, seed=1)
    y = y + (x @ draw(5, 6, seed=2)).reshape(-1, 2, 3)
    part = LowRank.fit(y.double(), x.double(), noise_std=0.3, rank=6)
    oracle = Wiener.fit(x.double(), y.double(), noise_std=0.3)
    torch.testing.assert_close(part(y.double()), oracle(y.double()))


def test_weighted_noise_is_the_weighted_ridge():
    x, y = draw(60, 4).double(), draw(60, 3, seed=1).double()
    noise = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)
    part = LowRank.fit(y, x, noise_std=noise, rank=3)
    a, b = y - y.mean(0), x - x.mean(0)
    gain = torch.linalg.solve(a.T @ a / 60 + torch.diag(noise**2), a.T @ b / 60)
    prediction, clean = part.estimate(y)
    torch.testing.assert_close(prediction, x.mean(0) + a @ gain)
    shrink = torch.linalg.solve(a.T @ a / 60 + torch.diag(noise**2), a.T @ a / 60)
    torch.testing.assert_close(clean, y.mean(0) + a @ shrink)


def test_components_have_unit_variance_with_their_noise():
    y = draw(4000, 6) * torch.arange(1, 7)
    part = LowRank.fit(y, draw(4000, 2, seed=1), noise_std=0.5, rank=4)
    spread = part.coefficients(y + 0.5 * draw(4000, 6, seed=3)).std(0)
    torch.testing.assert_close(spread, torch.ones(4), rtol=0.05, atol=0.0)


def test_spectral_gain_recovers_a_convolution_and_commutes_with_shifts():
    x = draw(50, 1, 8, 6).double()
    y = x + 0.5 * x.roll(1, -1) - 0.2 * x.roll(1, -2)
    part = SpectralGain.fit(y, x)
    torch.testing.assert_close(part(y), x, rtol=1e-5, atol=1e-6)
    moved = part(y.roll((2, 1), (2, 3)))
    torch.testing.assert_close(moved, part(y).roll((2, 1), (2, 3)))
    noisy = SpectralGain.fit(y, x, noise_std=1.0)
    assert noisy(y - y.mean()).std() < 0.9 * x.std()


def test_periodic_network_commutes_with_shifts():
    net = torus().double()
    x = rows(net)
    moved = net(x.roll((2, 4), (2, 3)))
    torch.testing.assert_close(moved, net(x).roll((2, 4), (2, 3)))


def test_a_silent_sensor_does_not_break_the_fit():
    y = draw(30, 4)
    y[:, 2] = 1.0
    part = LowRank.fit(y, draw(30, 2, seed=1))
    assert part(y).isfinite().all()
    assert part.coefficients(y).isfinite().all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UNet((1, 6), (1, 6), levels=3), "divisible by 4"),
        (lambda: UNet((1, 6), (1, 8)), "on one grid"),
        (lambda: UNet((1, 8), (1, 8), padding="mirror"), "padding"),
        (lambda: SpectralGain((4,), (4,)), r"\(channels, \*grid\)"),
        (lambda: LowRank.fit(draw(3, 2), draw(4, 2)), "same number of rows"),
        (lambda: LowRank.fit(draw(3, 2) / 0, draw(3, 2)), "finite"),
        (lambda: LinearStart(LowRank((4,), (4,), 2), MLP((3, 4))), "must take 2 features"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(dc.DeceptronError, match=message):
        make()
