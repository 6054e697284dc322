import json

import pytest
import torch

import deceptron as dc
from deceptron.core.differentiate import dense_jacobian, jvp
from deceptron.maps import MLP, LinearStart, LowRank, SpectralGain, UNet, Wiener, build


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def started(body, linear, **settings):
    """A linear start whose body is no longer zero, so that there is something to test."""
    net = LinearStart(linear, body, **settings)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=generator))
    return net


def unet(linear, *, periodic=False, levels=2, more=0):
    count = LinearStart.feature_count(linear, periodic=periodic) + more
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


def conditioned_vector():
    linear = LowRank.fit(draw(40, 7), draw(40, 3, 2, seed=1), noise_std=0.5, rank=5)
    body = MLP((6, 8, 6), activation="silu", generator=torch.Generator().manual_seed(1))
    return started(body, linear, noise_range=(0.5, 4.0), noise_level=0.5)


def conditioned_torus():
    linear = SpectralGain.fit(draw(40, 2, 4, 6), draw(40, 1, 4, 6, seed=1), noise_std=0.5)
    body = unet(linear, periodic=True, more=1)
    return started(body, linear, periodic=True, noise_range=(0.5, 4.0), noise_level=0.5)


@pytest.fixture(params=[plane, torus, space, vector, conditioned_vector, conditioned_torus])
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


def test_one_exact_sensor_does_not_make_the_others_exact():
    x = draw(4000, 3).double()
    y = x + 0.0
    part = LowRank.fit(y, x, noise_std=torch.tensor([0.0, 1.0, 1.0]), rank=3)
    seen = draw(5, 3, seed=1).double()
    # Unit variance: the exact sensor is believed, the noisy ones by half.
    expected = seen * torch.tensor([1.0, 0.5, 0.5], dtype=torch.float64)
    torch.testing.assert_close(part(seen), expected, rtol=0, atol=0.1)


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


@pytest.mark.parametrize("make", ["low-rank", "spectral"])
def test_a_linear_part_knows_the_best_estimate_at_any_noise(make):
    """Fitted at one noise and asked at others, each row at its own: what fits there give."""
    if make == "low-rank":
        y, x = draw(60, 5).double(), draw(60, 3, seed=1).double()
        y[:, :3] += 2 * x
        noise = torch.linspace(0.1, 0.7, 5, dtype=torch.float64)

        def fit(times):
            return LowRank.fit(y, x, noise_std=times * noise, rank=5)
    else:
        x = draw(60, 1, 4, 6).double()
        y = torch.cat([x + x.roll(1, -1), x - 0.5 * x.roll(1, -2)], dim=1)

        def fit(times):
            return SpectralGain.fit(y, x, noise_std=times * 0.7)

    part, ratios = fit(1.0), (0.3, 1.0, 5.0)
    found = part.estimate(y[:3], torch.tensor(ratios, dtype=torch.float64))
    for row, ratio in enumerate(ratios):
        wanted = fit(ratio).estimate(y[row : row + 1])
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a[row], b[0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("make", [conditioned_vector, conditioned_torus])
def test_a_conditioned_map_is_a_map_for_each_noise(make):
    network = make().double().requires_grad_(False)
    x, ratios = rows(network), [0.5, 1.0, 3.0]
    together = network(x, torch.tensor(ratios, dtype=x.dtype))
    for row, ratio in enumerate(ratios):
        alone = network.at_noise(0.5 * ratio)(x[row : row + 1])
        torch.testing.assert_close(together[row], alone[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(network(x)[1], together[1])
    assert float((network.at_noise(1.5)(x) - network(x)).abs().max()) > 0.01
    # Beyond what it was trained for it is the nearest map it knows; the weights are the same.
    assert torch.equal(network.at_noise(50.0)(x), network.at_noise(2.0)(x))
    assert torch.equal(network.at_noise(0.0)(x), network.at_noise(0.25)(x))
    assert network.at_noise(2.0).body is network.body
    assert network.noise_ratio == 1.0


def test_a_fresh_conditioned_map_is_the_ridge_at_every_noise():
    y, x = draw(60, 5), draw(60, 3, seed=1)
    linear = LowRank.fit(y, x, noise_std=0.5, rank=5)
    body = MLP((6, 3), generator=torch.Generator().manual_seed(1))
    torch.nn.init.zeros_(body.layers[-1].weight)
    net = LinearStart(linear, body, noise_range=(0.1, 4.0), noise_level=0.5).fit_scales(y, x)
    for noise in (0.1, 0.5, 1.5):
        ridge = Wiener.fit(x.double(), y.double(), noise_std=noise)
        torch.testing.assert_close(net.at_noise(noise)(y), ridge(y.double()).float())


def test_a_map_bound_to_a_noise_keeps_it_in_its_file(tmp_path):
    network = conditioned_vector()
    x = rows(network, dtype=torch.float32)
    scaler = dc.Scaler(0.0, 2.0)
    pair = dc.Deceptron(Wiener(network.in_shape, network.out_shape), network, scaler=scaler)
    loud = pair.at_noise(2.0)  # 1.0 normalised, twice that of the fit
    assert torch.equal(loud.g(x), network.at_noise(1.0)(x))
    restored = dc.load(dc.save(loud, tmp_path / "pair.safetensors"))
    assert torch.equal(restored.g(x), loud.g(x))
    assert torch.equal(restored.at_noise(1.0).g(x), network(x))


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


def test_a_constant_input_predicts_the_mean():
    y = draw(30, 2)
    part = LowRank.fit(torch.ones(30, 3), y)
    torch.testing.assert_close(part(torch.ones(1, 3))[0], y.mean(0))


@pytest.mark.parametrize("shape", [(1, 4, 6), (5,)])
def test_the_units_of_the_data_do_not_matter(shape):
    """Permeabilities of 1e-12 are as good as numbers near one."""
    tiny = 2.0**-40
    x, y = draw(40, *shape), draw(40, *shape, seed=1)
    nets = []
    for unit in (1.0, tiny):
        linear = LowRank.fit(unit * x, unit * y, rank=3)
        body = unet(linear) if len(shape) > 1 else MLP((3, 8, 5), activation="silu")
        nets.append(LinearStart(linear, body).fit_scales(unit * x, unit * y))
    usual, small = nets
    torch.testing.assert_close(small.scale / tiny, usual.scale)
    if len(shape) > 1:  # all but the coordinates
        ratio = (small.feature_scale / usual.feature_scale).flatten()
        torch.testing.assert_close(ratio[:-2], torch.full((5,), tiny), rtol=1e-3, atol=0)


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
        (
            lambda: LinearStart(LowRank((4,), (4,), 2), MLP((2, 4)), noise_range=(1, 4)),
            "must take 3 features",
        ),
        (
            lambda: LinearStart(LowRank((4,), (4,), 2), MLP((3, 4)), noise_range=(2.0, 4.0)),
            "0 < low <= 1 <= high",
        ),
        (
            lambda: LinearStart(LowRank((4,), (4,), 2), MLP((3, 4)), noise_range=(1.0, 1.0)),
            "more than one level",
        ),
        (
            lambda: LinearStart(
                LowRank((4,), (4,), 2), MLP((3, 4)), noise_range=(1.0, 2.0), noise_level=0.0
            ),
            "noise_level",
        ),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(dc.DeceptronError, match=message):
        make()


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_further_levels_of_a_unet_are_neither_wider_nor_gated(levels):
    network = UNet((1, 16, 16), (1, 16, 16), channels=4, levels=levels, gates=True)
    assert max(p.shape[0] for p in network.parameters()) == 4 * min(2 ** (levels - 1), 4)
    assert len(network.gate) == min(levels, 3)
    # Each gate acts on what it was made for.
    assert network(torch.ones(2, 1, 16, 16)).shape == (2, 1, 16, 16)
