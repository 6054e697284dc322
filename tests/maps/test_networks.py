import json

import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.core.differentiate import dense_jacobian
from deceptron.maps import MLP, Network, ResidualCNN, Wiener, build, cnn_pair, kinds, mlp_pair
from deceptron.maps import register as register_kind

NETWORKS = {
    "mlp": lambda g: MLP((5, 7, 6), generator=g),
    "mlp-silu": lambda g: MLP((5, 6), activation="silu", output_activation="tanh", generator=g),
    "cnn-1d": lambda g: ResidualCNN((6,), (2, 6), dimensions=1, channels=3, generator=g),
    "cnn-2d": lambda g: ResidualCNN((2, 5, 4), (5, 4), dimensions=2, channels=3, generator=g),
    "cnn-2d-circular": lambda g: ResidualCNN(
        (5, 4), (1, 5, 4), dimensions=2, channels=3, padding="circular", generator=g
    ),
    "cnn-3d": lambda g: ResidualCNN(
        (3, 2, 4), (3, 2, 4), dimensions=3, channels=3, output_activation="tanh", generator=g
    ),
    "cnn-no-blocks": lambda g: ResidualCNN((6,), (6,), dimensions=1, blocks=0, generator=g),
    "wiener": lambda g: Wiener.fit(
        torch.randn(30, 2, 3, generator=g), torch.randn(30, 4, generator=g), noise_std=0.3
    ),
}


@pytest.fixture(params=NETWORKS)
def network(request):
    return NETWORKS[request.param](torch.Generator().manual_seed(0))


def rows(network, count, dtype=torch.float32):
    g = torch.Generator().manual_seed(1)
    return torch.randn(count, *network.in_shape, generator=g, dtype=dtype)


def size(module):
    return sum(p.numel() for p in module.parameters())


def test_shapes(network):
    assert network(rows(network, 3)).shape == (3, *network.out_shape)
    assert network(rows(network, 1)).shape == (1, *network.out_shape)
    with pytest.raises(dc.ShapeError, match="takes rows of shape"):
        network(torch.zeros(3, 99))


def test_rows_do_not_see_each_other(network):
    network = network.double()
    x = rows(network, 4, torch.float64)
    together, alone = network(x), torch.cat([network(row[None]) for row in x])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-13)
    spoiled = x.clone()
    spoiled[2] = torch.nan
    keep = [0, 1, 3]
    assert torch.equal(network(spoiled)[keep], together[keep])


def test_forward_mode_equals_reverse_mode(network):
    network = network.double()
    x = rows(network, 2, torch.float64)
    forward = dense_jacobian(network, x)
    for row in range(2):
        reverse = torch.autograd.functional.jacobian(lambda z: network(z[None])[0], x[row])
        torch.testing.assert_close(
            forward[row], reverse.reshape(forward[row].shape), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("activation", ["silu", "gelu", "softplus", "tanh"])
def test_smooth_activations_are_twice_differentiable(activation):
    g = torch.Generator().manual_seed(0)
    mlp = MLP((3, 4, 2), activation=activation, generator=g).double()
    cnn = ResidualCNN(
        (3, 2), (3, 2), dimensions=2, channels=2, blocks=1, activation=activation, generator=g
    ).double()
    for network in (mlp, cnn):
        x = rows(network, 2, torch.float64).requires_grad_()
        assert torch.autograd.gradgradcheck(network, x)


def test_config_is_json_and_builds_a_twin(network):
    config = json.loads(json.dumps(network.config()))
    before = torch.get_rng_state()
    twin = build(network.kind, config)
    assert torch.equal(torch.get_rng_state(), before)
    assert type(twin) is type(network)
    assert twin.config() == network.config()
    twin.load_state_dict(network.state_dict())
    assert torch.equal(twin(rows(network, 3)), network(rows(network, 3)))


def test_the_generator_decides_the_weights():
    a, b, c = (mlp_pair(generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(a.g.layers[0].weight, b.g.layers[0].weight)
    assert not torch.equal(a.g.layers[0].weight, c.g.layers[0].weight)
    before = torch.get_rng_state()
    mlp_pair(generator=torch.Generator())
    assert torch.equal(torch.get_rng_state(), before)


def test_the_papers_mlp_pair():
    pair = mlp_pair(64, generator=torch.Generator().manual_seed(0))
    assert size(pair.f) == 64 * 64 + 64
    assert size(pair.g) == 64 * 128 + 128 + 128 * 64 + 64
    w, v = pair.f.layers[0].weight, pair.g.layers
    x = torch.rand(5, 64)
    leaky = nn.LeakyReLU(0.1)
    torch.testing.assert_close(pair.f(x), leaky(x @ w.T))
    torch.testing.assert_close(pair.g(x), leaky(x @ v[0].weight.T) @ v[1].weight.T)
    reference = nn.Linear(64, 64)
    nn.init.kaiming_uniform_(reference.weight, a=0.1)
    assert w.abs().max() <= (6 / (1.01 * 64)) ** 0.5
    assert w.std().item() == pytest.approx(reference.weight.std().item(), rel=0.05)
    assert all(not layer.bias.any() for layer in (*pair.f.layers, *v))


@pytest.mark.parametrize(
    ("dimensions", "x_shape", "y_shape", "channels", "blocks", "count"),
    [
        (3, (8, 8, 8), (8, 8, 8), 12, 2, 336 + 4 * 3900 + 325),
        (2, (32, 32), (32, 32), 16, 2, 160 + 4 * 2320 + 145),
        (2, (32, 32), (32, 32), 48, 4, 480 + 8 * 20784 + 433),
        (2, (32, 32), (2, 32, 32), 16, 2, 160 + 4 * 2320 + 290),
        (1, (64,), (64,), 8, 1, 32 + 2 * 200 + 25),
    ],
)
def test_the_papers_cnn_pairs(dimensions, x_shape, y_shape, channels, blocks, count):
    options = {"dimensions": dimensions, "channels": channels, "blocks": blocks}
    pair = cnn_pair(x_shape, y_shape, reverse_output_activation="tanh", **options)
    assert size(pair.f) == count
    assert pair.x_shape == x_shape
    assert pair.y_shape == y_shape
    y = pair.f(torch.rand(2, *x_shape))
    assert y.shape == (2, *y_shape)
    assert pair.g(100 * y).abs().max() <= 1


def test_cnn_equals_its_plain_transcription():
    g = torch.Generator().manual_seed(0)
    for padding in ("zeros", "circular"):
        net = ResidualCNN(
            (4, 4, 4), (4, 4, 4), dimensions=3, channels=3, padding=padding, generator=g
        )
        mode = "constant" if padding == "zeros" else "circular"

        def conv(layer, h, mode=mode):
            h = nn.functional.pad(h, (1,) * 6, mode=mode)
            return nn.functional.conv3d(h, layer.weight, layer.bias)

        act = nn.LeakyReLU(0.1)
        x = torch.randn(3, 4, 4, 4, generator=g)
        h = act(conv(net.entry, x[:, None]))
        for first, second in zip(net.first, net.second, strict=True):
            h = act(h + conv(second, act(conv(first, h))))
        torch.testing.assert_close(net(x), conv(net.exit, h)[:, 0])


def test_circular_padding_commutes_with_shifts():
    for padding, equal in (("circular", True), ("zeros", False)):
        net = ResidualCNN((6, 5), (6, 5), dimensions=2, padding=padding)
        x = torch.randn(2, 6, 5)
        a, b = net(x.roll((2, 1), (1, 2))), net(x).roll((2, 1), (1, 2))
        assert torch.allclose(a, b, atol=1e-6) == equal


def test_a_new_kind_is_one_decorated_class(tmp_path):
    @register_kind("test-scale")
    class Scale(Network):
        def __init__(self, size):
            super().__init__()
            self.in_shape = self.out_shape = (size,)
            self.factor = nn.Parameter(torch.rand(size))

        def forward(self, x):
            return x * self.factor

        def config(self):
            return {"size": self.in_shape[0]}

    pair = dc.Deceptron(Scale(3), Scale(3))
    restored = dc.load(dc.save(pair, tmp_path / "pair"))
    assert isinstance(restored.f, Scale)
    assert torch.equal(restored.f.factor, pair.f.factor)
    assert "test-scale" in kinds()
    with pytest.raises(dc.ConfigError, match=r"'mlp'.* is taken by deceptron.maps.mlp.MLP"):
        register_kind("mlp")(Scale)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MLP((5,)), r"MLP\(widths=...\) must hold at least input and output"),
        (lambda: MLP((5, 0)), r"MLP\(widths=...\) must hold one or more positive integers"),
        (lambda: MLP((5, 5), activation="leaky-relu"), "Did you mean 'leaky_relu'"),
        (lambda: ResidualCNN((4,), (4,), dimensions=4), "dimensions=...* must be 1, 2 or 3; got 4"),
        (lambda: ResidualCNN((4,), (4,), dimensions=2), "must have 2 axes, or one more"),
        (lambda: ResidualCNN((4,), (5,), dimensions=1), "must share their grid"),
        (lambda: ResidualCNN((4,), (4,), dimensions=1, padding="same"), "padding=.*'same'"),
        (lambda: ResidualCNN((4,), (4,), dimensions=1, channels=0), "channels=.* got 0"),
        (lambda: build("mlq", {}), "Did you mean 'mlp'"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(dc.DeceptronError, match=message):
        make()
