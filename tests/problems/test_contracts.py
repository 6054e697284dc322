"""What every problem promises, whatever its physics."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import deceptron as dc
from deceptron.core.differentiate import jvp
from deceptron.problems.base import FAMILIES
from deceptron.problems.verify import taylor_order
from tests.problems.small import COUNTS, NAMES, draw, generator, interior, small

DTYPES = (torch.float32, torch.float64)


def test_the_seven_are_registered() -> None:
    assert dc.problems.names()[:7] == NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3])
def test_shapes_dtype_and_finite_values(name: str, dtype: torch.dtype, rows: int) -> None:
    problem = dc.problems.get(name)
    x = draw(problem, rows, dtype)
    y = problem.simulate(x)
    assert x.shape == (rows, *problem.x_shape)
    assert y.shape == (rows, *problem.y_shape)
    assert x.dtype == y.dtype == dtype
    assert bool(y.isfinite().all())


@pytest.mark.parametrize("name", NAMES)
def test_print_says_what_it_is_in_a_few_lines(name: str) -> None:
    problem = dc.problems.get(name)
    lines = str(problem).splitlines()
    assert lines[0] == f"Problem {name}"
    assert f"  noise of y: {problem.noise_std:g}" in lines
    assert len(lines) < 10
    assert str(problem.dataset(3)) == f"Dataset({name}, seed 3, torch.float32)"


@pytest.mark.parametrize("name", NAMES)
def test_float32_agrees_with_float64(name: str) -> None:
    problem = dc.problems.get(name)
    x = draw(problem, 2, torch.float32)
    exact = problem.simulate(x.double())
    assert float((problem.simulate(x) - exact).abs().max() / exact.abs().max()) < 2e-5


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_feel_their_company(name: str) -> None:
    problem = small(name)
    x = draw(problem, 5)
    together = problem.simulate(x)
    alone = torch.cat([problem.simulate(row) for row in x.split(1)])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_row_stays_alone_when_checks_are_off(name: str) -> None:
    problem = small(name).unchecked()
    x = draw(problem, 3)
    clean = problem.simulate(x)
    x[1] = torch.nan
    y = problem.simulate(x)
    assert bool(y[1].isnan().any())
    torch.testing.assert_close(y[[0, 2]], clean[[0, 2]], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("family", FAMILIES)
def test_samples_fill_the_box_and_ignore_later_rows(name: str, family: str) -> None:
    problem = dc.problems.get(name)
    many = problem.sample(130, generator=generator(5), family=family)
    low, high = problem.bounds
    assert bool(((many >= low) & (many <= high)).all())
    for count in (1, 5, 64, 65):
        few = problem.sample(count, generator=generator(5), family=family)
        assert torch.equal(few, many[:count])
    assert not torch.equal(many, problem.sample(130, generator=generator(6), family=family))


@pytest.mark.parametrize("name", NAMES)
def test_families_differ_and_get_rougher(name: str) -> None:
    problem = dc.problems.get(name)

    def roughness(family: str) -> float:
        x = problem.sample(64, generator=generator(1), family=family, dtype=torch.float64)
        return float(x.diff(dim=-1).square().mean() / x.var())

    prior, shifted, extreme = map(roughness, FAMILIES)
    assert shifted > 1.1 * prior
    assert extreme > 1.1 * prior
    assert problem.noise_factor("extreme") == 3.0


@pytest.mark.parametrize("name", NAMES)
def test_datasets_are_fixed_by_the_seed(name: str) -> None:
    problem = small(name, **COUNTS, extreme_count=3)
    one, two = problem.dataset(seed=7), problem.dataset(seed=7)
    backwards = [two.extreme, two.shifted, two.test, two.val, two.train]
    forwards = [one.train, one.val, one.test, one.shifted, one.extreme]
    for a, b in zip(forwards, backwards[::-1], strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.y, b.y)
    assert [len(split) for split in forwards] == [70, 5, 6, 4, 3]
    assert not torch.equal(one.test.x, problem.dataset(seed=8).test.x)
    assert not torch.equal(one.train.x[:5], one.val.x)


@pytest.mark.parametrize("name", NAMES)
def test_training_is_noise_free_and_tests_are_noisy(name: str) -> None:
    problem = small(name, **COUNTS)
    data = problem.dataset(seed=1)
    clean = problem.simulate(data.train.x)
    torch.testing.assert_close(data.train.y, clean, rtol=1e-4, atol=1e-6)
    level = float((data.test.y - problem.simulate(data.test.x)).square().mean().sqrt())
    assert 0.5 * problem.noise_std < level < 1.3 * problem.noise_std
    normalised = data.scaler.normalise(data.train.y)
    assert abs(float(normalised.mean())) < 1e-3
    assert 0.8 < float(normalised.std()) < 1.1


@pytest.mark.parametrize("name", NAMES)
def test_scaler_kind(name: str) -> None:
    problem = small(name, **COUNTS)
    shape = problem.dataset(seed=1).scaler.scale.shape
    channels = problem.y_shape[0]
    by_channel = (channels,) + (1,) * (len(problem.y_shape) - 1)
    assert shape == (problem.y_shape if name.startswith("heat") else by_channel)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_and_jvps_against_finite_differences(name: str) -> None:
    problem = small(name)
    x = interior(problem, 1).requires_grad_()
    assert torch.autograd.gradcheck(problem.simulate, x, check_forward_ad=True, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_taylor_remainder_falls_like_the_square(name: str) -> None:
    problem = small(name)
    x = interior(problem, 2)
    direction = torch.randn(x.shape, dtype=x.dtype, generator=generator(9))
    direction = 0.5 * direction / direction.abs().max()
    y, slope = jvp(problem.simulate, x, direction)
    remainders = [
        float((problem.simulate(x + h * direction) - y - h * slope).norm())
        for h in (2.0**-k for k in range(4, 10))
    ]
    assert 1.9 < taylor_order(remainders, 1e-12) < 2.1


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives_and_transforms(name: str) -> None:
    problem = small(name)
    x = interior(problem, 1)
    v, u = (torch.randn(x.shape, dtype=x.dtype, generator=generator(k)) for k in (1, 2))

    def derivative(point: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(problem.simulate, (point,), (v,))[1]

    def gradient(point: torch.Tensor) -> torch.Tensor:
        leaf = point if point.requires_grad else point.clone().requires_grad_()
        (value,) = torch.autograd.grad(derivative(leaf).sum(), leaf)
        return value

    h = 1e-5
    expected = (derivative(x + h * u) - derivative(x - h * u)) / (2 * h)
    bound = 1e-6 * max(float(expected.abs().sum()), 1e-3)
    assert abs(float((gradient(x) * u).sum() - expected.sum())) < bound

    def objective(point: torch.Tensor) -> torch.Tensor:
        return problem.simulate(point).sum()

    hessian_v = torch.func.jvp(torch.func.grad(objective), (x,), (v,))[1]
    assert abs(float((hessian_v * u).sum() - expected.sum())) < bound

    nested = torch.func.jvp(derivative, (x,), (u,))[1]
    assert float((nested - expected).abs().max()) < bound


@pytest.mark.parametrize("name", NAMES)
def test_verify_is_content_with_the_defaults(name: str) -> None:
    report = dc.problems.verify(dc.problems.get(name), quiet=True)
    assert report.ok, str(report)
    assert len(report.passed) == 11
    assert report.defect is not None


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_survive_a_first_use_in_inference_mode(name: str) -> None:
    # A grid of its own: what depends on the grid is kept from its first use on.
    problem = small(name, grid=14)
    with torch.inference_mode():
        problem.simulate(draw(problem, 1))
    x = draw(problem, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(problem.simulate(x).sum(), x)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_survive_a_first_use_within_a_transform(name: str) -> None:
    problem = small(name, grid=18)
    x = draw(problem, 1)

    def gradient(z: Tensor) -> Tensor:
        return torch.func.grad(lambda rows: problem.simulate(rows).square().sum())(z)

    _, curved = torch.func.jvp(gradient, (x,), (torch.ones_like(x),))
    assert bool(curved.isfinite().all())
    assert bool(gradient(x).isfinite().all())


@pytest.mark.parametrize("name", NAMES)
def test_other_grids_work(name: str) -> None:
    grid = 12 if name == "heat-3d" else 40
    problem = dc.problems.get(name, grid=grid)
    assert problem.x_shape[-1] == grid
    assert bool(problem.simulate(draw(problem, 1)).isfinite().all())
