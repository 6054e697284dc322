"""A mistake gets an error that names the argument, the rule and the value."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import deceptron as dc
from deceptron.demo import run_demo
from deceptron.plot import plot_problem
from deceptron.problems.heat import ModeFamily
from tests.problems.small import NAMES, draw, generator, small


def test_unknown_name_lists_and_suggests() -> None:
    with pytest.raises(dc.ConfigError, match=r"Did you mean 'darcy-2d'\?.*heat-1d.*navier"):
        dc.problems.get("darcy2d")


def test_unknown_field_suggests() -> None:
    with pytest.raises(dc.ConfigError, match=r"'viscositi'.*Did you mean 'viscosity'"):
        dc.problems.get("navier-stokes-2d", viscositi=1.0)
    with pytest.raises(dc.ConfigError, match="differentiable"):
        dc.problems.get("heat-1d", differentiable=False)


@pytest.mark.parametrize("seed", [-1, 2**62, 10**20])
def test_seeds_that_no_generator_takes_are_refused(seed: int) -> None:
    problem, x = dc.problems.get("heat-1d"), torch.arange(40.0)[:, None]
    for use in (
        lambda: dc.problems.verify(problem, seed=seed),
        lambda: dc.problems.from_data(x, 2 * x, noise_std=0.1, seed=seed),
        lambda: problem.dataset(seed),
        lambda: plot_problem(problem, seed=seed),
        lambda: run_demo("heat-1d", seed=seed),
    ):
        with pytest.raises(dc.ConfigError, match="seed must be"):
            use()


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("heat-1d", {"diffusivity": -1.0}, r"diffusivity must lie in \(0, inf\]; got -1"),
        ("heat-1d", {"grid": 8}, "grid must be at least 10, the sine modes"),
        ("heat-2d", {"grid": 4}, "grid must be at least 5"),
        ("heat-2d", {"blur": 1.5}, r"blur must lie in \[0, 1\]"),
        ("heat-3d", {"grid": 8.0}, "grid must be an integer"),
        ("heat-3d", {"latents": "rough"}, "latents must be a ModeFamily; got 'rough'"),
        ("darcy-2d", {"lowest": 0.0}, r"lowest must lie in \(0"),
        ("darcy-2d", {"highest": 0.1}, r"highest must lie in \(0.2"),
        ("darcy-2d", {"grid": 4}, "grid must be at least 5, a cell per correlation length"),
        ("advection-diffusion-2d", {"diffusivity": -1e-3}, "diffusivity must lie in"),
        ("advection-diffusion-2d", {"grid": 5}, "grid must be at least 6, two points per wave"),
        ("advection-diffusion-2d", {"velocity": (1.0,)}, "velocity must be two"),
        ("allen-cahn-2d", {"dt": 0.6, "time": 3.0}, "dt must be at most 0.5 .*got 0.6"),
        ("allen-cahn-2d", {"epsilon": float("nan")}, "epsilon must lie in"),
        ("navier-stokes-2d", {"grid": 10}, "grid must be at least 12, three points per wave"),
        ("navier-stokes-2d", {"dt": 0.1}, "dt must be at most 0.03352 .*got 0.1"),
        ("navier-stokes-2d", {"dt": 0.03, "grid": 64}, "dt must be at most 0.01"),
        ("navier-stokes-2d", {"times": (1.0, 0.5)}, "times must be positive and increasing"),
        ("navier-stokes-2d", {"viscosity": -1.0}, "viscosity must lie in"),
        ("heat-1d", {"noise_std": -0.1}, "noise_std must lie in"),
        ("heat-1d", {"test_count": 0}, "test_count must be an integer >= 1; got 0"),
        ("heat-1d", {"bounds": (1.0, 0.0)}, "low <= high"),
    ],
)
def test_fields_out_of_range_say_the_limit(
    name: str, overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(dc.ConfigError, match=message):
        dc.problems.get(name, **overrides)


@pytest.mark.parametrize("name", NAMES)
def test_latents_outside_the_box_or_not_finite(name: str) -> None:
    problem = small(name)
    x = draw(problem, 3)
    x[1].view(-1)[4] = 7.0
    with pytest.raises(dc.ConfigError, match=r"x must lie in the box .*x\[1, .*\] is 7"):
        problem.simulate(x)
    assert problem.unchecked().simulate(x).shape[0] == 3
    x[1].view(-1)[4] = torch.nan
    with pytest.raises(dc.ConfigError, match="x must be finite; row 1 holds 1"):
        problem.simulate(x)


def test_a_box_with_one_side_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deceptron.problems.registry._DEFINED", {})
    positive = dc.problems.define(
        "positive",
        simulate=lambda x: x.sqrt(),
        sample=lambda count, g: torch.rand(count, 3, generator=g),
        bounds=(0.0, float("inf")),
        noise_std=0.1,
    )
    assert bool(positive.simulate(torch.full((2, 3), 1e6)).isfinite().all())
    with pytest.raises(dc.ConfigError, match=r"x must lie in the box \[0, inf\]"):
        positive.simulate(torch.full((2, 3), -5.0))


def test_round_off_at_the_bounds_is_forgiven() -> None:
    problem = small("heat-2d")
    x = draw(problem, 2).clamp(0, 1)
    for near in (x + 1e-6, x - 1e-6):
        assert bool(problem.simulate(near).isfinite().all())


def test_shapes_and_dtypes() -> None:
    problem = dc.problems.get("heat-2d")
    with pytest.raises(dc.ShapeError, match=r"x must have shape \(rows, 1, 32, 32\)"):
        problem.simulate(torch.rand(32, 32))
    with pytest.raises(dc.ShapeError, match="floating"):
        problem.simulate(torch.ones(1, 1, 32, 32, dtype=torch.int64))
    with pytest.raises(dc.ShapeError, match="at least one row"):
        problem.simulate(torch.rand(0, 1, 32, 32))


def test_sampling_arguments() -> None:
    problem = small("heat-1d")
    with pytest.raises(dc.ConfigError, match="family must be one of 'prior', 'shifted', 'extreme'"):
        problem.sample(2, generator=generator(), family="rough")
    with pytest.raises(dc.ConfigError, match="count must be an integer"):
        problem.sample(0, generator=generator())
    with pytest.raises(dc.ConfigError, match=r"generator must be a torch\.Generator"):
        problem.sample(2, generator=7)  # type: ignore[arg-type]
    with pytest.raises(dc.ConfigError, match="seed must be an integer >= 0"):
        problem.dataset(seed=-1)
    with pytest.raises(dc.ConfigError, match="modes must be an integer"):
        ModeFamily(modes=0)
