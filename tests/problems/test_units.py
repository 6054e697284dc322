"""Parameters of different units in one vector: trained without them, answered in them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import deceptron as dc
from deceptron.core import units as core_units
from deceptron.core.units import LARGEST_RATIO, UnitlessForward, Units, unitless_prior
from deceptron.problems.units import UnitlessProblem

UNITS = torch.tensor([1e-6, 1.0, 1e5], dtype=torch.float64)
MEAN = torch.tensor([2e-6, 0.0, 3e7], dtype=torch.float64)


def simulate(x):
    z = (x - MEAN.to(x)) / UNITS.to(x)
    return torch.stack([z[:, 0] + 0.2 * z[:, 1] ** 2, z[:, 1], z[:, 2] - z[:, 0], z.sum(1)], 1)


def draw(count, generator):
    white = torch.rand(count, 3, generator=generator, dtype=torch.float64) - 0.5
    return MEAN + UNITS * white


def mixed(**changes):
    settings = {
        "simulate": simulate,
        "sample": draw,
        "bounds": (MEAN - UNITS, MEAN + UNITS),
        "noise_std": 0.05,
        "train_count": 300,
        "val_count": 60,
        "test_count": 40,
    }
    return dc.problems.define("mixed", **{**settings, **changes})


def units_of(problem):
    return core_units.units_of(problem._prior_samples())


def unitless(problem):
    return UnitlessProblem.of(problem, units_of(problem))


@pytest.fixture(scope="module")
def pair():
    return dc.train(mixed(), "smoke", progress=False)


@pytest.fixture(scope="module")
def test_rows():
    return mixed().dataset(3, dtype=torch.float64).test


def test_it_is_the_same_problem_without_units():
    original = mixed()
    problem = unitless(original)
    x = original.sample(50, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    z = problem.sample(50, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(problem.units.physical(z), x, rtol=1e-12, atol=0)
    torch.testing.assert_close(problem.units.reduced(x), z)
    torch.testing.assert_close(problem.simulate(z), original.simulate(x))
    many = problem.sample(2000, dtype=torch.float64)
    assert float((many.std(0) - 1).abs().max()) < 0.1
    assert float(many.mean(0).abs().max()) < 0.1
    low, high = problem.bounds
    torch.testing.assert_close(problem.units.physical(low), original.bounds[0], rtol=1e-9, atol=0)
    torch.testing.assert_close(problem.units.physical(high), original.bounds[1], rtol=1e-9, atol=0)
    with pytest.raises(dc.ConfigError, match="must lie in the box"):
        problem.simulate(2 * high[None])


def test_rows_are_those_of_the_original():
    original = mixed()
    problem = unitless(original)
    for split in ("train", "val", "test"):
        own, theirs = (getattr(p.dataset(5), split) for p in (problem, original))
        spread = theirs.x.double() - MEAN
        # What float32 leaves of 3e7 plus a few 1e4.
        torch.testing.assert_close(
            problem.units.physical(own.x.double()) - MEAN, spread, rtol=1e-3, atol=4.0
        )
        torch.testing.assert_close(own.y, theirs.y, rtol=1e-3, atol=1e-3)


def test_a_simulator_of_single_precision_is_asked_in_single_precision():
    matrix = torch.rand(3, 4)
    problem = mixed(simulate=lambda x: (x / UNITS.float()) @ matrix)
    assert unitless(problem).dataset(1).train.y.dtype == torch.float32


@pytest.mark.parametrize("on_simulator", [True, False])
def test_answers_and_bars_are_in_the_units_of_x(pair, test_rows, on_simulator):
    original = mixed()
    assert dc.problems.verify(original, quiet=True).ok
    forward = original if on_simulator else None
    solution = dc.solve(pair, test_rows.y.float(), forward=forward)
    error = solution.x.double() - test_rows.x
    # Nearly linear, 0.05 of noise: of the order of that in every component.
    assert float((error / UNITS).square().mean(0).sqrt().max()) < 0.15
    held = (error.abs() <= 1.645 * solution.std).double().mean()
    assert 0.75 < float(held) <= 1
    low, high = solution.interval(0.9)
    assert 0.75 < float(((low <= test_rows.x) & (test_rows.x <= high)).double().mean()) <= 1
    draws = solution.posterior(200, generator=torch.Generator().manual_seed(0)).double()
    ratio = draws.std(0) / solution.std
    assert 0.5 < float(ratio.mean()) < 1.5
    some = solution[[3, 5]]
    torch.testing.assert_close(some.std, solution.std[[3, 5]])
    assert float(dc.trust(pair, test_rows.y).flag.double().mean()) < 0.5


def test_every_answer_equals_that_of_a_problem_without_units(pair, test_rows):
    """A solve in units is the solve without them, its answers multiplied."""
    problem = unitless(mixed())
    y, inside = test_rows.y.float(), pair.unitless
    x0 = problem.units.physical(torch.full((len(y), 3), 0.3, dtype=torch.float64))
    low, high = MEAN - 0.3 * UNITS, MEAN + 0.4 * UNITS
    reduced = (problem.units.reduced(low), problem.units.reduced(high))
    for asked, without in (
        ({"method": "one-shot"}, {"method": "one-shot"}),
        ({"method": "d-ipg"}, {"method": "d-ipg"}),
        ({"method": "lm", "x0": x0}, {"method": "lm", "x0": torch.full((len(y), 3), 0.3)}),
        ({"bounds": (low, high)}, {"bounds": reduced}),
    ):
        own = dc.solve(pair, y, forward=mixed().unchecked(), **asked)
        other = dc.solve(inside, y, forward=problem.unchecked(), **without)
        torch.testing.assert_close(
            problem.units.reduced(own.x.double()),
            other.x.double(),
            rtol=0,
            atol=1e-4,  # float32 beside 3e7
        )
        assert torch.equal(own.status, other.status)


def test_a_prior_of_x_regularises_x(pair, test_rows):
    original = mixed()
    asked = {"forward": original, "noise_std": 0.05, "method": "gn"}
    solution = dc.solve(pair, test_rows.y.float(), prior=original.prior, **asked)
    problem = unitless(original)
    other = dc.solve(
        pair.unitless, test_rows.y.float(), prior=problem.prior, **{**asked, "forward": problem}
    )
    torch.testing.assert_close(
        problem.units.reduced(solution.x.double()), other.x.double(), rtol=0, atol=1e-2
    )
    assert solution.std.shape == solution.x.shape


def test_priors_are_carried_over_exactly():
    original = mixed()
    units, prior = units_of(original), original.prior
    other = unitless_prior(prior, units)
    rows = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(other.apply(other.solve(rows)), rows, rtol=1e-8, atol=1e-8)
    scale = units.scale
    covariance = prior.apply(torch.eye(3, dtype=torch.float64))
    expected = covariance / scale / scale[:, None]
    torch.testing.assert_close(other.apply(torch.eye(3, dtype=torch.float64)), expected)
    roots = other.sqrt(torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(roots.T @ roots, expected)
    torch.testing.assert_close(other.variance, expected.diagonal())


def test_it_survives_files_and_calls_in_between(pair, test_rows, tmp_path):
    y = test_rows.y[:6].float()
    again = dc.load(dc.save(pair, tmp_path / "pair.safetensors"))
    one, two = (dc.solve(p, y, forward=mixed()) for p in (pair, again))
    assert torch.equal(one.x, two.x)
    # A file has logarithms of variances in half precision: a percent or less.
    torch.testing.assert_close(one.std, two.std, rtol=0.01, atol=0)
    assert "units of x" in repr(again)
    seen = []
    dc.solve(pair, y, forward=mixed(), callback=lambda number, snapshot: seen.append(snapshot.x))
    assert all(float(x[:, 2].min()) > 1e7 for x in seen)
    np.save(tmp_path / "y.npy", y.numpy())
    dc.solve_file(pair, tmp_path / "y.npy", tmp_path / "x.npz")
    torch.testing.assert_close(
        dc.Solution.load(tmp_path / "x.npz").x, dc.solve(pair, y).x, rtol=1e-6, atol=0
    )


def test_a_run_goes_on_and_knows_its_units(tmp_path):
    out = tmp_path / "run"
    first = dc.train(mixed(), "smoke", out, progress=False)
    second = dc.train(mixed(), "smoke", out, progress=False)
    assert second.units is not None
    assert torch.equal(first.units.scale, second.units.scale)
    low, high = second.bounds
    torch.testing.assert_close(low, MEAN - UNITS)
    torch.testing.assert_close(high, MEAN + UNITS)
    again = dc.recalibrate(second, mixed(), simulations=40, progress=False)
    assert torch.equal(again.units.scale, second.units.scale)
    torch.testing.assert_close(again.bounds[1], MEAN + UNITS)


def test_diagnostics_take_x_or_say_what_to_pass(pair, test_rows):
    from deceptron.geometry import Posterior, noise_aware_rjcp

    x, prior = test_rows.x[:4], mixed().prior
    inside = pair.units.reduced(x).float()
    seeded = {"generator": torch.Generator().manual_seed(0)}
    again = {"generator": torch.Generator().manual_seed(0)}
    own, other = dc.rjcp(pair, x, **seeded), dc.rjcp(pair.unitless, inside, **again)
    torch.testing.assert_close(own, other, rtol=1e-2, atol=1e-3)
    problem, noise = unitless(mixed()), {"noise_std": 0.05, "probes": 64}
    aware = noise_aware_rjcp(pair, x.float(), prior=prior, forward=simulate, **noise, **seeded)
    without = noise_aware_rjcp(
        pair.unitless, inside, prior=problem.prior, forward=problem.simulate, **noise, **seeded
    )
    assert 0.5 < float(aware.mean() / without.mean()) < 2
    with pytest.raises(dc.ConfigError, match=r"pair\.unitless"):
        Posterior(pair=pair, x=x, prior=prior, noise_std=0.05)


def test_measured_rows_too():
    generator = torch.Generator().manual_seed(0)
    x = draw(200, generator)
    y = simulate(x) + 0.05 * torch.randn(200, 4, generator=generator, dtype=torch.float64)
    measured = dc.problems.from_data(x.numpy(), y.numpy(), noise_std=0.05)
    problem = unitless(measured)
    assert not problem.has_simulator
    assert problem.carries_noise
    train = problem.dataset(0).train
    assert np.allclose(train.x.std(0), 1, atol=0.01)
    found = dc.solve(dc.train(measured, "smoke", progress=False), y.float()).x
    assert float(((found.double() - x) / UNITS).square().mean().sqrt()) < 0.3


def scaled(*units, mean=0.0):
    """Vectors whose components vary by these amounts about a mean."""
    spread = torch.tensor(units, dtype=torch.float64)

    def sample(count, generator):
        return mean + spread * torch.rand(count, len(units), generator=generator)

    return dc.problems.define(
        "scaled", simulate=lambda x: x, sample=sample, bounds=(-1e9, 1e9), noise_std=0.1
    )


def test_only_where_units_matter():
    assert units_of(scaled(1.0, 0.6 * LARGEST_RATIO)) is None
    assert units_of(scaled(1.0, 2 * LARGEST_RATIO)) is not None
    assert units_of(scaled(1e-6, 1e-6)) is not None
    assert units_of(scaled(1.0, 1.0, mean=1e5)) is not None
    assert units_of(scaled(1.0, 1.0, mean=50.0)) is None
    assert units_of(scaled(0.0, 0.0)) is None
    for name in dc.maps.shipped():
        assert units_of(dc.problems.get(name)) is None


def test_channels_of_a_field_have_a_unit_each():
    units = torch.tensor([1e3, 1.0], dtype=torch.float64)[:, None]

    def fields(count, generator):
        return units * torch.randn(count, 2, 10, generator=generator, dtype=torch.float64)

    original = dc.problems.define(
        "fields",
        simulate=lambda x: x / units.to(x),
        sample=fields,
        bounds=(-torch.inf, torch.inf),
        noise_std=0.1,
    )
    assert dc.problems.verify(original, quiet=True).ok
    problem = unitless(original)
    assert problem.units.scale.shape == problem.units.shift.shape == (2, 1)
    z = problem.sample(50, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert 0.8 < float(z.std()) < 1.2
    torch.testing.assert_close(problem.simulate(z), original.simulate(problem.units.physical(z)))


def test_channels_keep_their_units_on_another_grid(tmp_path):
    units = torch.tensor([1e3, 1.0])[:, None, None]

    def waves(grid):
        place = torch.arange(grid) * 2 * torch.pi / grid

        def draw(count, generator):
            a, b, c = torch.randn(3, count, 2, 1, 1, generator=generator).unbind(0)
            return units * (a * place.sin()[:, None] + b * place.cos() + c)

        def mixing(x):
            z = x / units.to(x)
            return z + 0.1 * z.roll(1, 1) ** 2

        return dc.problems.define(
            "waves",
            simulate=mixing,
            sample=draw,
            bounds=(-9 * units, 9 * units),
            noise_std=0.05,
            train_count=200,
        )

    pair = dc.train(waves(16), "smoke", progress=False)
    fine = dc.recalibrate(
        pair.at_grid(24, latents="periodic"), waves(24), simulations=30, progress=False
    )
    test = waves(24).dataset(3).test
    solution = dc.solve(fine, test.y[:4], forward=waves(24))
    error = ((solution.x - test.x[:4]) / units).square().mean((0, 2, 3)).sqrt()
    assert float(error.max()) < 0.05
    again = dc.load(dc.save(fine, tmp_path / "fine.safetensors"))
    found = dc.solve(again, test.y[:4], forward=waves(24)).x
    # Laws are stored in single precision: a tenth of what the noise leaves open.
    torch.testing.assert_close(found / units, solution.x / units, rtol=0, atol=0.005)
    vector = dc.train(mixed(), "smoke", progress=False)
    with pytest.raises(dc.ConfigError, match="no points of a grid"):
        vector.at_grid(6, latents="cells")


def test_points_of_a_field_share_a_unit_whatever_they_do_at_a_boundary():
    def fields(count, generator):
        profile = torch.tensor([1e-4, 1.0, 1.0, 1e-4], dtype=torch.float64)
        return profile * torch.randn(count, 1, 4, generator=generator, dtype=torch.float64)

    problem = dc.problems.define(
        "profile", simulate=lambda x: x, sample=fields, bounds=(-9.0, 9.0), noise_std=0.1
    )
    assert units_of(problem) is None


def test_a_field_within_a_vector_has_one_unit():
    """A rod that is cold at both ends, and the two numbers that came with it."""
    place = torch.linspace(0, 1, 41, dtype=torch.float64)  # 1e-16 at the end
    waves = torch.stack([(k * torch.pi * place).sin() / k for k in range(1, 6)])

    def rod(count, generator):
        return torch.randn(count, 5, generator=generator, dtype=torch.float64) @ waves

    def joined(count, generator):
        numbers = torch.randn(count, 2, generator=generator, dtype=torch.float64)
        return torch.cat([rod(count, generator), numbers * torch.tensor([1e5, 1e-4])], 1)

    settings = {"simulate": lambda x: x, "bounds": (-1e9, 1e9), "noise_std": 0.1}
    assert units_of(dc.problems.define("rod", sample=rod, **settings)) is None
    units = units_of(dc.problems.define("rod and numbers", sample=joined, **settings))
    assert float(units.scale[0]) == 1  # it never varies
    assert len(units.scale[1:41].unique()) == 1
    torch.testing.assert_close(
        units.scale[40:],
        torch.tensor([0.85, 1e5, 1e-4], dtype=torch.float64),
        rtol=0.2,
        atol=0,
    )


def test_coefficients_of_waves_keep_what_is_known_of_their_decay():
    decay = torch.arange(1, 21, dtype=torch.float64) ** -2.0
    assert units_of(scaled(*decay.tolist())) is None
    # Twenty numbers of any units are no such thing.
    mixed_up = 10 ** (9 * torch.rand(20, generator=torch.Generator().manual_seed(5)))
    units = units_of(scaled(*mixed_up.tolist()))
    torch.testing.assert_close(units.scale * 12**0.5, mixed_up.double(), rtol=0.1, atol=0)


def test_a_component_that_never_varies_keeps_its_unit():
    def constant(count, generator):
        varying = torch.rand(count, 2, generator=generator) * torch.tensor([1.0, 1e3])
        return torch.cat([varying, torch.full((count, 1), 7.0)], 1)

    original = dc.problems.define(
        "constant", simulate=lambda x: x, sample=constant, bounds=(0.0, 1e3), noise_std=0.1
    )
    problem = unitless(original)
    assert float(problem.units.scale[2]) == 1
    assert torch.equal(problem.sample(3)[:, 2], torch.zeros(3))


def test_bounds_hold_to_the_last_digit():
    """A root of x has no value below zero, and round-off must not lead there."""
    units = Units(torch.tensor([0.37, 411.3]), torch.tensor([0.11, 97.7]))
    bounds = (0.0, torch.tensor([1.0, 900.0]))
    low, high = units.reduced_bounds(bounds)
    for side, wanted in ((low, torch.zeros(2)), (high, bounds[1])):
        z = side.float()[None].repeat(3, 1).requires_grad_()
        x = units.physical(z, bounds)
        assert bool(((x >= 0) & (x <= bounds[1])).all())
        torch.testing.assert_close(x, wanted.expand(3, 2), rtol=0, atol=1e-4)
        x.sum().backward()
        torch.testing.assert_close(z.grad, units.scale.expand(3, 2))
    outside = units.physical(low.float()[None] - 0.1, bounds)
    assert bool((outside < 0).all())  # that is no round-off: the simulator's own checks see it
    rooted = UnitlessForward(lambda x: x.sqrt(), units, bounds)
    assert bool(rooted(low.float()[None]).isfinite().all())
    assert rooted.differentiable


def test_units_must_be_units():
    module = torch.nn.Identity()
    with pytest.raises(dc.ConfigError, match="must be Units; got Scaler"):
        dc.Deceptron(module, module, units=dc.core.scaler.Scaler())
