import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.core import Pair
from deceptron.laws.calibration import Calibration
from deceptron.maps import MLP, LinearStart, LowRank, Wiener, cnn_pair, mlp_pair


def test_any_two_modules_are_a_pair():
    f, g = nn.Linear(3, 5), nn.Linear(5, 3)
    pair = dc.Deceptron(forward=f, reverse=g)
    assert isinstance(pair, Pair)
    x = torch.rand(4, 3)
    assert torch.equal(pair.f(x), f(x))
    assert torch.equal(pair(x), f(x))
    assert torch.equal(pair.g(f(x)), g(f(x)))
    y = torch.tensor([[1.5, -2.0]])
    assert torch.equal(pair.scaler.normalise(y), y)
    assert pair.bounds is None
    assert pair.x_shape is None
    assert pair.name is None


def test_shapes_come_from_the_maps_that_know_them():
    pair = cnn_pair((6, 6), (2, 6, 6), dimensions=2, channels=2)
    assert (pair.x_shape, pair.y_shape) == ((6, 6), (2, 6, 6))
    pair = dc.Deceptron(nn.Linear(3, 5), nn.Linear(5, 3), x_shape=(3,), y_shape=[5])
    assert (pair.x_shape, pair.y_shape) == ((3,), (5,))


def test_everything_follows_to():
    low = torch.zeros(64)
    wiener = Wiener.fit(torch.rand(9, 64), torch.rand(9, 64), noise_std=1.0)
    maps = mlp_pair()
    pair = dc.Deceptron(
        maps.f, maps.g, bounds=(low, 1.0), wiener=wiener, scaler=dc.Scaler(0.5, 2.0)
    ).double()
    assert pair.bounds[0].dtype == torch.float64
    assert pair.bounds[1] == 1.0
    assert pair.scaler.scale.dtype == torch.float64
    y = pair.f(torch.rand(2, 64, dtype=torch.float64))
    assert pair.wiener(y).dtype == pair.g(y).dtype == torch.float64


def test_bounds_are_copied():
    low = torch.zeros(3)
    pair = dc.Deceptron(nn.Identity(), nn.Identity(), bounds=(low, 1.0))
    low += 1
    assert not pair.bounds[0].any()


def test_a_pair_for_one_noise_is_the_same_at_every_noise():
    plain = dc.Deceptron(nn.Identity(), nn.Identity(), y_shape=(3,))
    assert plain.at_noise(0.3) is plain
    shipped = dc.load("heat-3d")
    assert shipped.at_noise(0.3) is shipped


@pytest.mark.parametrize("known", [0.5, None])
def test_a_pair_knows_the_noise_it_was_trained_for(known):
    found = Calibration(noise_std=known)
    assert dc.Deceptron(nn.Identity(), nn.Identity(), calibration=found).noise_std == known
    # What is only noted is not read.
    kept = {"fields": {"noise_std": 0.5}}
    assert dc.Deceptron(nn.Identity(), nn.Identity(), provenance=kept).noise_std is None


def test_a_noise_that_is_none_is_refused():
    part = LowRank.fit(torch.rand(9, 4), torch.rand(9, 4), noise_std=0.1, rank=2)
    g = LinearStart(part, MLP((3, 4)), noise_range=(0.5, 2.0), noise_level=0.1)
    pair = dc.Deceptron(nn.Identity(), g)
    with pytest.raises(dc.ConfigError, match="noise_std must be >= 0; got nan"):
        pair.at_noise(float("nan"))
    with pytest.raises(dc.ShapeError, match=r"one row of y, shape \(4,\); got \(5,\)"):
        pair.at_noise(torch.ones(5))


def test_each_row_of_a_noise_has_a_level_of_its_own():
    """Levels are rounded, from that of the training; of one row or of many, the same."""
    pair = dc.load("heat-1d")
    ratio = torch.tensor([1.0, 1.004, 2.0, 0.5, 3.0, 3.01, torch.inf], dtype=torch.float64)
    noise = pair.noise_std * ratio[:, None]
    levels = pair.g_levels(noise)
    assert levels[0] == levels[1] == pair.g.noise_level
    assert levels[4] == levels[5]
    torch.testing.assert_close(levels / levels[0], ratio, rtol=0.011, atol=0)
    torch.testing.assert_close(levels[:4], levels[0] * ratio[[0, 0, 2, 3]], rtol=1e-12, atol=0)
    assert [float(pair.g_levels(float(own))) for own in noise[:, 0]] == levels.tolist()
    gone = noise.repeat(1, 64)
    gone[:, 5:] = torch.inf  # the sensors that there are decide
    there = float((noise[2] / pair.scaler.scale[:5]).square().mean().sqrt())
    assert float(pair.g_levels(gone)[2]) == pytest.approx(there, rel=0.011)
    with pytest.raises(dc.ConfigError, match="takes noise of one level"):
        pair.at_noise(noise)


def test_repr_says_what_the_pair_is_in_a_few_lines():
    """Its layers would fill a page; they are in repr(pair.f)."""
    lines = repr(dc.load("heat-2d")).splitlines()
    assert lines[0] == "Deceptron pair heat-2d"
    assert "  latent x: 1 × 32 × 32" in lines
    assert lines[-1].startswith("  verdict: the surrogate f errs by 0.088 times the noise")
    assert len(lines) < 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forward": torch.sin}, r"Deceptron\(forward=...\) must be an nn.Module; got builtin"),
        ({"reverse": None}, r"Deceptron\(reverse=...\) must be an nn.Module; got NoneType"),
        ({"wiener": 3}, r"Deceptron\(wiener=...\) must be an nn.Module; got int"),
        ({"scaler": 2.0}, r"Deceptron\(scaler=...\) must be a Scaler; got float"),
        ({"bounds": (1.0, 0.0)}, "low <= high"),
        ({"bounds": (float("nan"), 0.0)}, "bounds must not contain NaN"),
        ({"bounds": 3}, r"bounds must be a pair \(low, high\); got 3"),
        ({"bounds": (torch.zeros(3), torch.ones(4))}, "bounds must have shapes that fit"),
        ({"bounds": (torch.zeros(5), 1.0), "x_shape": (3,)}, "bounds must broadcast"),
        ({"x_shape": (3, -1)}, r"Deceptron\(x_shape=...\) must hold .* got \(3, -1\)"),
    ],
)
def test_bad_arguments_are_named(options, message):
    arguments = {"forward": nn.Linear(3, 3), "reverse": nn.Linear(3, 3), **options}
    with pytest.raises(dc.DeceptronError, match=message):
        dc.Deceptron(**arguments)


def test_maps_that_do_not_fit_each_other_are_refused():
    with pytest.raises(dc.ShapeError, match=r"x_shape.*MLP.out_shape is \(8,\); got \(4,\)"):
        dc.Deceptron(mlp_pair(4).f, mlp_pair(8).g)


def test_surrogate_error_is_what_training_noted():
    f, g = MLP((3, 3)), MLP((3, 3))
    assert dc.Deceptron(f, g).surrogate_error == 0.0
    found = Calibration(surrogate_error=0.25)
    assert dc.Deceptron(f, g, calibration=found).surrogate_error == 0.25


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (None, "the noise it was trained for is not known"),
        (
            0.1,
            "the surrogate f errs by 2.5 times the noise: too much to check answers with it; pass "
            "forward= to dc.solve or train on more rows",
        ),
        (0.002, "the surrogate f errs by 120 times the noise"),
        (0.5, "the surrogate f errs by 0.5 times the noise: pass forward= to dc.solve for better"),
        (
            2.5,
            "the surrogate f errs by 0.1 times the noise: on data like the training data dc.solve",
        ),
    ],
)
def test_a_pair_says_in_words_what_it_is_good_for(noise, words):
    """The noise is in physical units, the error of f in normalised ones."""
    known = Calibration(noise_std=None if noise is None else 4 * noise, surrogate_error=0.25)
    pair = dc.Deceptron(MLP((3, 3)), MLP((3, 3)), scaler=dc.Scaler(1.0, 4.0), calibration=known)
    assert pair.verdict.startswith(words)


def test_sensors_that_show_only_noise_do_not_make_a_surrogate_look_good():
    """One sensor of noise 0.1, three of noise 1: f errs by 2.5 times the noise of the first."""
    noise = torch.tensor([0.1, 1.0, 1.0, 1.0])
    known = Calibration(noise_std=noise, surrogate_error=0.25)
    pair = dc.Deceptron(MLP((4, 4)), MLP((4, 4)), calibration=known)
    assert pair.verdict.startswith("the surrogate f errs by 1.3 times the noise: too much")
