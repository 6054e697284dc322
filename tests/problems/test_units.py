"""Parameters of different units in one vector: noticed, and dealt with by ``unitless``."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import deceptron as dc
from deceptron.problems.units import LARGEST_RATIO, uneven_units

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


def test_it_is_the_same_problem_without_units():
    original = mixed()
    problem = dc.problems.unitless(original)
    x = original.sample(50, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    z = problem.sample(50, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(problem.physical(z), x, rtol=1e-12, atol=0)
    torch.testing.assert_close(problem.reduced(x), z)
    torch.testing.assert_close(problem.simulate(z), original.simulate(x))
    many = problem.sample(2000, dtype=torch.float64)
    assert float((many.std(0) - 1).abs().max()) < 0.1
    assert float(many.mean(0).abs().max()) < 0.1
    low, high = problem.bounds
    torch.testing.assert_close(problem.physical(low), original.bounds[0], rtol=1e-9, atol=0)
    torch.testing.assert_close(problem.physical(high), original.bounds[1], rtol=1e-9, atol=0)
    with pytest.raises(dc.ConfigError, match="must lie in the box"):
        problem.simulate(2 * high[None])


def test_rows_are_those_of_the_original():
    original = mixed()
    problem = dc.problems.unitless(original)
    for split in ("train", "val", "test"):
        own, theirs = (getattr(p.dataset(5), split) for p in (problem, original))
        spread = theirs.x.double() - MEAN
        # What float32 leaves of 3e7 plus a few 1e4.
        torch.testing.assert_close(
            problem.physical(own.x.double()) - MEAN, spread, rtol=1e-3, atol=4.0
        )
        torch.testing.assert_close(own.y, theirs.y, rtol=1e-3, atol=1e-3)


def test_a_simulator_of_single_precision_is_asked_in_single_precision():
    matrix = torch.rand(3, 4)
    problem = mixed(simulate=lambda x: (x / UNITS.float()) @ matrix)
    assert dc.problems.unitless(problem).dataset(1).train.y.dtype == torch.float32


def test_verify_and_training_say_what_to_do():
    original = mixed()
    assert "dc.problems.unitless" in str(dc.problems.verify(original))
    with pytest.warns(UserWarning, match=r"vary by .* dc\.problems\.unitless\(problem\)"):
        dc.train(original, "smoke", progress=False)
    assert dc.problems.verify(dc.problems.unitless(original)).ok


def test_answers_and_bars_lead_back(tmp_path):
    original = mixed()
    problem = dc.problems.unitless(original)
    pair = dc.train(problem, "smoke", tmp_path / "run", progress=False)
    test = original.dataset(3, dtype=torch.float64).test
    solution = dc.solve(pair, test.y.float(), forward=problem)
    x, std = problem.physical(solution.x.double()), problem.scale * solution.std
    error = (x - test.x) / UNITS
    # Nearly linear, 0.05 of noise: of the order of that in every component.
    assert float(error.square().mean(0).sqrt().max()) < 0.15
    held = ((x - test.x).abs() <= 1.645 * std).double().mean()
    assert 0.75 < float(held) <= 1
    assert dc.train(problem, "smoke", tmp_path / "run", progress=False).name == "mixed"


def test_measured_rows_too():
    generator = torch.Generator().manual_seed(0)
    x = draw(200, generator)
    y = simulate(x) + 0.05 * torch.randn(200, 4, generator=generator, dtype=torch.float64)
    problem = dc.problems.unitless(dc.problems.from_data(x.numpy(), y.numpy(), noise_std=0.05))
    assert not problem.has_simulator
    assert problem.carries_noise
    train = problem.dataset(0).train
    assert np.allclose(train.x.std(0), 1, atol=0.01)
    pair = dc.train(problem, "smoke", progress=False)
    assert dc.solve(pair, y.float()).x.isfinite().all()


def test_fields_and_even_vectors_are_left_alone():
    even = torch.rand(50, 4) * torch.tensor([1.0, 0.6 * LARGEST_RATIO, 1.0, 1.0])
    assert uneven_units(even) is None
    assert uneven_units(torch.rand(50, 1, 4) * torch.tensor([1.0, 1e6, 1.0, 1.0])) is None
    assert uneven_units(even * torch.tensor([0.1, 1.0, 1.0, 1.0])) is not None


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
    (words,) = dc.problems.verify(original, quiet=True).problems
    assert words.startswith("channels of x must vary by about as much")
    problem = dc.problems.unitless(original)
    assert problem.scale.shape == (2, 1)
    assert dc.problems.verify(problem, quiet=True).ok
    z = problem.sample(50, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert 0.8 < float(z.std()) < 1.2
    torch.testing.assert_close(problem.simulate(z), original.simulate(problem.physical(z)))


def test_a_component_that_never_varies_keeps_its_unit():
    def constant(count, generator):
        return torch.cat(
            [torch.rand(count, 2, generator=generator), torch.full((count, 1), 7.0)], 1
        )

    problem = dc.problems.unitless(
        dc.problems.define(
            "constant", simulate=lambda x: x, sample=constant, bounds=(0.0, 8.0), noise_std=0.1
        )
    )
    assert float(problem.scale[2]) == 1
    assert torch.equal(problem.sample(3)[:, 2], torch.zeros(3))


def test_only_problems():
    with pytest.raises(dc.ConfigError, match="takes a problem; got str"):
        dc.problems.unitless("heat-1d")
