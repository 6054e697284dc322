from dataclasses import replace

import pytest
import torch

import deceptron as dc
from deceptron import problems
from deceptron.maps import LinearStart, LowRank, SpectralGain, UNet, Wiener
from deceptron.train.api import train
from deceptron.train.standard import TABLE, recipe_for

LARGEST_FILE = 3_000_000


def built(problem):
    data = problem.dataset(7)
    return recipe_for(problem).build(problem, data, torch.Generator().manual_seed(0)), data


@pytest.fixture(autouse=True)
def _nothing_stays_defined(monkeypatch):
    monkeypatch.setattr("deceptron.problems.registry._DEFINED", {})


def own(x_shape, simulate, **fields):
    return problems.define(
        "own",
        simulate=simulate,
        sample=lambda count, generator: torch.rand(count, *x_shape, generator=generator),
        noise_std=0.01,
        **{"bounds": (0.0, 1.0), "train_count": 60, "val_count": 20, "test_count": 10, **fields},
    )


def test_every_problem_of_the_library_is_in_the_table():
    assert set(TABLE) <= set(problems.names())
    assert len(TABLE) == 7


@pytest.mark.parametrize("name", problems.names())
def test_pairs_start_at_the_linear_estimate_and_fit_in_the_package(name, tmp_path):
    # Enough rows for the full rank of every linear part.
    problem = problems.get(name, train_count=130, val_count=10, test_count=10)
    (f, g), data = built(problem)
    y = data.scaler.normalise(data.test.y)
    assert torch.equal(f(data.test.x), f.linear(data.test.x))
    assert torch.equal(g(y), g.linear(y))
    # As `train` saves it for the package, with a linear estimate beside the two maps.
    pair = dc.Deceptron(f, g, scaler=data.scaler, bounds=problem.bounds, wiener=g.linear)
    assert dc.save(pair, tmp_path / "pair.safetensors").stat().st_size <= LARGEST_FILE


def test_the_same_generator_gives_the_same_weights():
    problem = own((1, 8, 8), torch.sin)
    (a, _), (b, _) = (built(problem)[0] for _ in range(2))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize(
    ("x_shape", "simulate"),
    [
        ((3,), lambda x: torch.stack([x.sum(1), x[:, 0] * x[:, 1]], dim=1)),
        ((6, 5), lambda x: x.sum(2)),
        ((2, 6, 5), lambda x: x[:, :1].square()),
        ((1, 4, 6, 3), torch.sin),
        ((1, 6, 6), lambda x: x.flatten(1)[:, ::2]),
    ],
)
def test_any_shape_trains(x_shape, simulate):
    problem = own(x_shape, simulate)
    (f, g), data = built(problem)
    assert f(data.test.x).shape == data.test.y.shape
    assert g(data.test.y).shape == data.test.x.shape
    assert isinstance(g.linear, LowRank)


def test_a_large_pair_carries_its_linear_start_as_the_linear_estimate(tmp_path):
    problem = own((1, 4, 4), torch.sin)
    recipe = replace(recipe_for(problem), wiener_limit=15)
    pair, data = train(problem, recipe, tmp_path), problem.dataset(7)
    y = data.scaler.normalise(data.train.y)
    # Every component is kept here, so the linear part is the dense ridge; training left it alone.
    ridge = Wiener.fit(data.train.x, y, noise_std=0.01 / data.scaler.scale)
    for found in (pair, dc.load(tmp_path / "pair.safetensors")):
        torch.testing.assert_close(found.wiener(y), ridge(y), rtol=0, atol=1e-4)
    solution = dc.solve(pair, data.test.y, method="wiener")
    expected = ridge(data.scaler.normalise(data.test.y)).clamp(0, 1)
    torch.testing.assert_close(solution.x, expected, rtol=0, atol=1e-4)


def test_unbounded_latents():
    problem = own((3,), torch.sin, bounds=(-float("inf"), float("inf")))
    assert recipe_for(problem).weights.pairs > 0


def test_periodic_problems_get_periodic_maps():
    problem = problems.get("advection-diffusion-2d", train_count=40, val_count=10, test_count=10)
    (f, g), _ = built(problem)
    for network in (f, g):
        assert isinstance(network, LinearStart)
        assert isinstance(network.linear, SpectralGain)
        assert isinstance(network.body, UNet)
        assert network.body.padding == "circular"


def test_longer_rows_get_fewer_epochs():
    usual = recipe_for(problems.get("heat-2d"))
    finer = recipe_for(problems.get("heat-2d", grid=64))
    assert 0 < finer.reverse.epochs < usual.reverse.epochs
    assert recipe_for(problems.get("heat-2d", grid=33)).forward.epochs > 0


@pytest.mark.parametrize(
    ("name", "grid", "levels"),
    [("darcy-2d", 64, 4), ("darcy-2d", 128, 5), ("allen-cahn-2d", 64, 3)],
)
def test_finer_grids_get_more_levels_and_about_as_many_steps(name, grid, levels):
    def settings_and_steps(problem):
        recipe = recipe_for(problem)
        batches = problem.train_count / recipe.forward.batch_size
        return recipe.build.keywords["settings"], batches * recipe.forward.epochs

    _, usual = settings_and_steps(problems.get(name))
    finer, steps = settings_and_steps(problems.get(name, grid=grid))
    assert finer.levels == levels
    assert 0.5 * usual <= steps <= 2 * usual


def test_levels_are_those_that_the_grid_can_be_halved_to():
    finer = recipe_for(problems.get("heat-2d", grid=66)).build.keywords["settings"]
    assert finer.levels == 2


def test_training_beats_the_linear_start():
    problem = own(
        (3,),
        lambda x: torch.stack([x.sum(1), (3 * x[:, 0]).sin(), x[:, 1] * x[:, 2], x[:, 2] ** 3], 1),
        train_count=1000,
    )
    recipe = recipe_for(problem)
    stages = {"forward": 2, "reverse": 30, "jcp": 1}
    changes = {n: replace(getattr(recipe, n), epochs=epochs) for n, epochs in stages.items()}
    pair, data = train(problem, replace(recipe, **changes)), problem.dataset(7)
    y = pair.scaler.normalise(data.test.y)

    def error(estimate):
        return float((estimate - data.test.x).detach().square().mean().sqrt())

    assert error(pair.g(y)) < 0.7 * error(pair.g.linear(y))


@pytest.mark.parametrize("width", [torch.inf, 1e4])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e3])
def test_the_loss_of_latents_in_a_wide_box_is_in_units_of_their_spread(unit, width):
    problem = problems.define(
        "unbounded",
        simulate=lambda x: x / unit,
        sample=lambda count, generator: unit * torch.randn(count, 4, generator=generator),
        bounds=(-width * unit, width * unit),
        noise_std=0.1,
    )
    assert recipe_for(problem).weights.pairs == pytest.approx(unit**-2, rel=0.2)
