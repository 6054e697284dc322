"""A user's own simulator is first class, and verify says what is wrong with it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

import deceptron as dc
from deceptron.core.differentiate import jvp
from tests.problems.small import generator

MATRIX = torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, 0.5]], dtype=torch.float64)


def simulate(x: Tensor) -> Tensor:
    return torch.tanh(x @ MATRIX.to(x).mT)


def sample(count: int, generator: Generator) -> Tensor:
    return torch.rand(count, 3, generator=generator, dtype=torch.float64)


def define(**changes: Any) -> dc.problems.Problem:
    arguments: dict[str, Any] = {
        "simulate": simulate,
        "sample": sample,
        "bounds": (0.0, 1.0),
        "noise_std": 0.01,
        **changes,
    }
    return dc.problems.define("mine", **arguments)


@pytest.fixture(autouse=True)
def _clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deceptron.problems.registry._DEFINED", {})


def test_a_defined_problem_does_what_the_built_in_ones_do() -> None:
    problem = define(train_count=50, val_count=4, test_count=5)
    assert (problem.x_shape, problem.y_shape) == ((3,), (2,))
    assert dc.problems.get("mine") is problem
    assert "mine" in dc.problems.names()
    assert dc.problems.verify(problem, quiet=True).ok
    data = problem.dataset(seed=3)
    assert data.train.y.shape == (50, 2)
    assert data.scaler.scale.shape == (2,)
    assert problem.prior.mean.shape == (3,)
    with pytest.raises(dc.ConfigError, match="no 'shifted' family"):
        _ = data.shifted
    wide = define(shifted=lambda count, g: 0.5 * sample(count, g))
    assert wide.dataset(seed=3).shifted.x.max() <= 0.5


def test_verify_says_what_is_lost_without_noise() -> None:
    assert "noise_std=0" in dc.problems.verify(define(noise_std=0.0), quiet=True).skipped[0]
    assert not dc.problems.verify(define(noise_std=0.1), quiet=True).skipped


def test_a_numpy_simulator_works_without_derivatives() -> None:
    def numpy_simulate(x: Tensor) -> np.ndarray:
        return np.tanh(x.numpy() @ MATRIX.numpy().T)

    problem = define(simulate=numpy_simulate, differentiable=False, train_count=10)
    report = dc.problems.verify(problem, quiet=True)
    assert report.ok, str(report)
    assert "derivatives" in report.skipped[0]
    data = problem.dataset(seed=1)
    torch.testing.assert_close(data.train.y, simulate(data.train.x))
    x = data.val.x[:2].requires_grad_()
    y = problem.simulate(x)
    with pytest.raises(dc.ConfigError, match="'mine' was defined with differentiable=False"):
        torch.autograd.grad(y.sum(), x)
    with pytest.raises(dc.ConfigError, match="differentiable=False"):
        jvp(problem.simulate, x.detach(), x.detach())


def detached(x: Tensor) -> Tensor:
    return simulate(x) + 0.3 * simulate(x).detach()


def coupled(x: Tensor) -> Tensor:
    return simulate(x) - 0.01 * x.mean()


def half_precision(x: Tensor) -> Tensor:
    return simulate(x).float()


def undefined(x: Tensor) -> Tensor:
    return torch.log(simulate(x) - 0.7)


def noisy(x: Tensor) -> Tensor:
    return simulate(x) + 0.01 * torch.rand(2, dtype=x.dtype)


def fails_near_a_corner(x: Tensor) -> Tensor:
    return torch.where((x[:, :1] > 0.97) & (x[:, 1:2] > 0.5), torch.nan, simulate(x))


def writes(x: Tensor) -> Tensor:
    y = simulate(x)
    x += 0.25
    return y


def raises(x: Tensor) -> Tensor:
    if len(x) > 1:
        raise ArithmeticError("no steady state")
    return simulate(x)


class WrongBackward(torch.autograd.Function):
    """Right forwards, wrong backwards."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx: Any, v: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * v


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (detached, r"the jvp is wrong: the Taylor remainder falls like h\^1"),
        (coupled, "rows are not independent"),
        (half_precision, "it must keep the dtype"),
        (undefined, "NaN or infinity"),
        (noisy, "two calls differ"),
        (fails_near_a_corner, r"NaN or infinity in \d+ of 64 points of the box"),
        (writes, r"simulate writes to its input, by up to 0\.25"),
        (raises, "finite output: simulate of .* raises ArithmeticError: no steady state"),
        (lambda x: WrongBackward.apply(x), "the vjp is not the adjoint of the jvp"),
    ],
)
def test_verify_names_what_is_wrong(
    broken: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = dc.problems.verify(define(simulate=broken))
    assert not report.ok
    assert any(re.search(words, text) for text in report.problems), str(report)
    assert "wrong:" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_verify_says_why_there_is_no_derivative(kind: str) -> None:
    def fails(x: Any, v: Any) -> Any:
        raise ArithmeticError("no adjoint here")

    def value(x: Any) -> Any:
        return np.tanh(x @ MATRIX.numpy().T)

    report = dc.problems.verify(define(simulate=dc.simulators.wrap(value, **{kind: fails})))
    words = rf"the {kind} fails .* in 3 of 3 rows: {kind}, row 0: ArithmeticError: no adjoint here"
    assert any(re.search(words, text) for text in report.problems), str(report)


def test_verify_tells_a_coupled_simulator_from_one_that_is_not_deterministic() -> None:
    report = dc.problems.verify(define(simulate=coupled), quiet=True)
    assert "same answer twice" in report.passed


def test_verify_says_by_how_much_an_adjoint_is_wrong() -> None:
    matrix = MATRIX.numpy()

    def value(x: Any) -> Any:
        return np.tanh(x @ matrix.T)

    def adjoint(x: Any, w: Any) -> Any:
        return ((1 - value(x) ** 2) * w) @ matrix

    def of_something_else(x: Any, w: Any) -> Any:
        return w @ matrix

    good = dc.problems.verify(define(simulate=dc.simulators.wrap(value, adjoint)), quiet=True)
    assert good.ok, str(good)
    assert good.defect is not None
    assert good.defect < 1e-6
    assert "defect of the adjoint" in str(good)
    bad = dc.problems.verify(
        define(simulate=dc.simulators.wrap(value, of_something_else)), quiet=True
    )
    assert re.search(r"<J d, p> and <d, J' p> differ by 1\.2 of", bad.problems[0])


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (lambda count, g: torch.rand(count, 3), "the same seed gives other rows each time"),
        (lambda count, g: torch.full((count, 3), 0.5), "every seed gives the same rows"),
    ],
)
def test_verify_sees_a_sampler_that_ignores_its_generator(sampler: Any, words: str) -> None:
    report = dc.problems.verify(define(sample=sampler), quiet=True)
    assert any(words in text for text in report.problems), str(report)


def test_code_without_derivatives_cannot_write_to_what_the_solver_holds() -> None:
    problem = define(simulate=writes, differentiable=False)
    x = problem.sample(3)
    before = x.clone()
    problem.simulate(x)
    assert torch.equal(x, before)


def test_samples_without_a_generator_are_fresh() -> None:
    problem = define()
    assert problem.sample(3).shape == (3, 3)
    assert not torch.equal(problem.sample(3), problem.sample(3))
    with pytest.raises(dc.ConfigError, match=r"generator must be a torch\.Generator"):
        problem.sample(3, generator=7)  # type: ignore[arg-type]


def test_rows_that_a_simulator_cannot_answer_are_left_out_of_data_sets() -> None:
    def value(x: Any) -> Any:
        return np.where(x[:, :1] > 0.9, np.nan, np.tanh(x @ MATRIX.numpy().T))

    with pytest.warns(RuntimeWarning, match="1 of 1 rows failed"):  # the first, as it happens
        problem = define(simulate=dc.simulators.wrap(value), train_count=200)
    with pytest.warns(RuntimeWarning, match=r"has no answer for \d+ of 200 rows of train"):
        train = problem.dataset(seed=1).train
    assert 150 < len(train) < 200
    assert float(train.x[:, 0].max()) <= 0.9
    assert bool(train.y.isfinite().all())

    with pytest.warns(RuntimeWarning, match="rows failed"):
        hopeless = define(simulate=dc.simulators.wrap(lambda x: value(3 * x)), train_count=200)
    with pytest.raises(dc.ConfigError, match=r"more than the share 0\.5 that may be left out"):
        _ = hopeless.dataset(seed=1).train


def test_verify_sees_samples_outside_the_bounds() -> None:
    for unit in (1.0, 1e-9):
        problem = define(
            bounds=(0.0, 0.5 * unit),
            sample=lambda count, generator: unit * sample(count, generator),  # noqa: B023
            simulate=lambda x: simulate(x / unit),  # noqa: B023
        )
        report = dc.problems.verify(problem, quiet=True)
        assert any("sample leaves the bounds" in text for text in report.problems)


def test_unbounded_and_tensor_bounds() -> None:
    free = define(bounds=(-torch.inf, torch.inf))
    assert dc.problems.verify(free, quiet=True).ok
    sides = (torch.zeros(3), torch.tensor([1.0, 1.0, 2.0]))
    assert dc.problems.verify(define(bounds=sides), quiet=True).ok
    with pytest.raises(dc.ConfigError, match="x must lie in the box"):
        define(bounds=sides).simulate(torch.tensor([[0.5, 1.5, 0.5]]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"simulate": 3}, "simulate must be a function"),
        ({"sample": lambda count, g: torch.rand(2, 3, generator=g)}, r"must return 1 row"),
        ({"sample": lambda count, g: None}, "what sample of .*got None"),
        ({"sample": lambda count, g: 1 / 0}, "sample of .* raises ZeroDivisionError"),
        ({"simulate": lambda x: 1 / 0}, "simulate of .* raises ZeroDivisionError"),
        ({"sample": lambda count, g: g.normal()}, r"given a torch\.Generator; .*default_rng"),
        ({"simulate": lambda x: x.cumulated()}, r"a tensor of shape \(1, 3\); .*simulators\.wrap"),
        ({"simulate": np.asarray}, r"must return a tensor; got ndarray: .*simulators\.wrap"),
        ({"simulate": lambda x: x[:, :0]}, r"to one row of at least one axis; got shape \(1, 0\)"),
        ({"noise_std": "0.1"}, "noise_std must be a number .*; got '0.1'"),
        ({"noise_std": torch.ones(77)}, r"noise_std must broadcast to one row of y.*\(77,\)"),
        ({"simulate": lambda x: x.sum()}, "to one row"),
        ({"bounds": (torch.nan, 1.0)}, "bounds must not contain NaN"),
        ({"noise_std": torch.tensor([0.1, -1.0])}, "noise_std must be finite and > 0.*got -1 in 1"),
        ({"noise_std": torch.tensor([0.0, 0.5])}, "or 0 in all; got 0 in 1 of 2"),
        ({"bounds": (None, 1.0)}, r"got \(None, 1.0\): write -inf or inf where there is no"),
    ],
)
def test_bad_definitions(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(dc.DeceptronError, match=message):
        define(**changes)


def test_names_are_guarded() -> None:
    with pytest.raises(dc.ConfigError, match="built-in"):
        dc.problems.define(
            "heat-1d", simulate=simulate, sample=sample, bounds=(0, 1), noise_std=0.1
        )
    define()
    with pytest.raises(dc.ConfigError, match=r"defined by problems\.define"):
        dc.problems.get("mine", noise_std=0.2)


def test_a_sensor_that_only_shows_its_noise_is_scaled_by_it() -> None:
    problem = define(
        simulate=lambda x: simulate(x) * torch.tensor([1.0, 1e-9]).to(x),
        noise_std=torch.tensor([0.01, 0.2]),
        train_count=100,
    )
    scale = problem.dataset(seed=1).scaler.scale
    assert float(scale[0]) > 0.1
    assert float(scale[1]) == pytest.approx(0.2)


def test_noise_per_component() -> None:
    problem = define(noise_std=torch.tensor([1e-6, 0.5]))
    y = torch.zeros(200, 2)
    spread = problem.add_noise(y, generator=generator()).std(0)
    assert float(spread[0]) < 1e-5
    assert float(spread[1]) == pytest.approx(0.5, rel=0.2)


def test_verify_tells_a_simulator_that_counts() -> None:
    counts = define(simulate=lambda x: (100 * simulate(x)).long(), noise_std=3.0)
    report = dc.problems.verify(counts, quiet=True)
    assert any("torch.int64 for torch.float32 latents" in words for words in report.problems)
    assert "rows independent" in report.passed


def test_one_number_a_row_needs_an_axis() -> None:
    with pytest.raises(dc.ShapeError, match=r"got shape \(1,\): one number a row is y\[:, None\]"):
        define(simulate=lambda x: x[:, 0])


def test_a_simulator_that_promotes_its_rows_still_gives_data_of_one_precision() -> None:
    constant = torch.ones(3, dtype=torch.float64)
    problem = define(simulate=lambda x: x * constant, train_count=8)
    assert problem.dataset(seed=0).train.y.dtype == torch.float32


def test_bounds_of_a_component_are_named_where_it_leaves_them() -> None:
    problem = define(bounds=(torch.zeros(3), torch.tensor([200.0, 5.0, 1.0])))
    with pytest.raises(dc.ConfigError, match=r"the box \[0, 5\] of mine; x\[1, 1\] is 7:"):
        problem.simulate(torch.tensor([[1.0, 1.0, 1.0], [100.0, 7.0, 1.0]]))


@pytest.mark.parametrize(
    ("bounds", "unit"),
    [((0.0, torch.inf), 1.0), ((-torch.inf, 1.0), 1.0), ((-torch.inf, torch.inf), 1e-3)],
)
def test_verify_stays_in_a_box_that_is_open_and_in_units_of_the_family(
    bounds: tuple[float, float], unit: float
) -> None:
    problem = define(
        bounds=bounds,
        simulate=lambda x: torch.tanh((x / unit) @ MATRIX.to(x).mT),
        sample=lambda count, g: unit * sample(count, g),
    )
    report = dc.problems.verify(problem, quiet=True)
    assert report.ok, str(report)


def test_noise_below_the_round_off_of_float32_is_named() -> None:
    problem = define(simulate=lambda x: 101325 + 0.2 * simulate(x), noise_std=0.002)
    report = dc.problems.verify(problem, quiet=True)
    assert "float32 tells y near 101325 apart by 0.012 only" in str(report)
    assert dc.problems.verify(define(noise_std=0.002), quiet=True).ok
