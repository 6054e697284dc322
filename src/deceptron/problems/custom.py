"""A user's own problem, from plain functions, with or without derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from deceptron.core.arrays import real_tensor
from deceptron.core.box import Bounds
from deceptron.core.checks import check_flags
from deceptron.core.errors import ConfigError, ShapeError, SimulatorError, calling
from deceptron.problems.base import Problem
from deceptron.problems.registry import check_own_name, enter

# Rows tried to learn the shape of y from a simulator that may fail.
ATTEMPTS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class CustomProblem(Problem):
    """Made by ``define``; ``differentiable=False`` cuts the simulator out of every derivative."""

    differentiable: bool = True
    simulator: Callable[[Tensor], Any]
    sampler: Callable[[int, Generator], Any]
    latent_shape: tuple[int, ...]
    observation_shape: tuple[int, ...]
    shifted_sampler: Callable[[int, Generator], Any] | None = None
    extreme_sampler: Callable[[int, Generator], Any] | None = None

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of one latent."""
        return self.latent_shape

    @property
    def y_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return self.observation_shape

    def _simulate(self, x: Tensor) -> Tensor:
        with calling(f"simulate of {self.name!r}"):
            if self.differentiable:
                y = self.simulator(x)
            else:
                y = _Opaque.apply(x, self.simulator, self.name)
        _check_tensor(self.name, y)
        wanted = (x.shape[0], *self.observation_shape)
        if tuple(y.shape) != wanted:
            raise ShapeError(
                f"simulate of {self.name!r} must return a tensor {wanted}; got {tuple(y.shape)}"
            )
        return y

    def _sample(self, count: int, generator: Generator, family: str) -> Tensor:
        samplers = {
            "prior": self.sampler,
            "shifted": self.shifted_sampler,
            "extreme": self.extreme_sampler,
        }
        sampler = samplers[family]
        if sampler is None:
            raise ConfigError(
                f"problem {self.name!r} has no {family!r} family: "
                f"pass {family}=... to problems.define"
            )
        return _sampled(sampler, count, generator, self.name)


def define(
    name: str,
    *,
    simulate: Callable[[Tensor], Any],
    sample: Callable[[int, Generator], Any],
    bounds: Bounds,
    noise_std: float | Tensor,
    differentiable: bool | None = None,
    shifted: Callable[[int, Generator], Any] | None = None,
    extreme: Callable[[int, Generator], Any] | None = None,
    scaling: Literal["component", "channel"] = "component",
    train_count: int = 3000,
    val_count: int = 300,
    test_count: int = 80,
    equation: str = "",
    paper: str = "",
) -> Problem:
    """A problem of your own, from a simulator and a sampler; then run ``problems.verify`` on it.

    Args:
        name: for ``dc.problems.get`` and run folders; defining it again replaces it.
        simulate: ``(rows, *x) -> (rows, *y)``, each row by itself, without noise. A PyTorch
            function, or one of ``dc.simulators`` for code from elsewhere.
        sample: ``(count, generator) -> (count, *x)``, plausible latents; the networks learn from
            these.
        bounds: ``(low, high)`` of the latents, numbers or one row of x each; answers stay inside.
        noise_std: standard deviation of the noise, a number or one row of y.
        differentiable: whether derivatives flow through ``simulate``. By default what a simulator
            of ``dc.simulators`` says of itself, and True for any other function. With False the
            function may work in NumPy.
        shifted: a sampler of latents unlike those of ``sample``, for ``dataset(seed).shifted``.
        extreme: another, for ``dataset(seed).extreme``.
        scaling: whether y is normalised by ``"component"`` or by ``"channel"``, its first axis.
        train_count: rows that are simulated to train on.
        val_count: rows that choose epochs and calibrate.
        test_count: rows of ``dataset(seed).test``.
        equation: what it solves, in a line, for tables and pages.
        paper: what of it is the paper's; only the problems that ship need it.
    """
    check_own_name(name)
    check_flags(differentiable=differentiable)
    for argument, function in (("simulate", simulate), ("sample", sample)):
        if not callable(function):
            raise ConfigError(f"{argument} must be a function; got {type(function).__name__}")
    if differentiable is None:
        differentiable = getattr(simulate, "differentiable", True)
    x, found = _first_row(name, simulate, sample)
    if differentiable:
        _check_tensor(name, found)
    y = real_tensor(f"what simulate of {name!r} returns", found)
    if y.ndim < 2 or y.shape[0] != 1 or y.numel() == 0:
        hint = ": one number a row is y[:, None]" if y.shape == (1,) else ""
        raise ShapeError(
            f"simulate of {name!r} must map (1, {', '.join(map(str, x.shape[1:]))}) "
            f"to one row of at least one axis; got shape {tuple(y.shape)}{hint}"
        )
    problem = CustomProblem(
        name=name,
        simulator=simulate,
        sampler=sample,
        shifted_sampler=shifted,
        extreme_sampler=extreme,
        latent_shape=tuple(x.shape[1:]),
        observation_shape=tuple(y.shape[1:]),
        bounds=bounds,
        noise_std=noise_std,
        differentiable=differentiable,
        scaling=scaling,
        train_count=train_count,
        val_count=val_count,
        test_count=test_count,
        equation=equation,
        paper=paper,
    )
    enter(problem)
    return problem


def _first_row(
    name: str, simulate: Callable[[Tensor], Any], sample: Callable[[int, Generator], Any]
) -> tuple[Tensor, Any]:
    for seed in range(ATTEMPTS):
        x = _sampled(sample, 1, Generator().manual_seed(seed), name)
        x = x.to(torch.get_default_dtype())
        try:
            with torch.no_grad(), calling(f"simulate of {name!r}"):
                return x, simulate(x)
        except SimulatorError as error:  # this row may be one that it has no answer for
            last = error
    if isinstance(last.__cause__, (TypeError, AttributeError)):
        raise SimulatorError(
            f"{last}. It was given a tensor of shape {tuple(x.shape)}; if it works in NumPy, pass "
            "simulate=dc.simulators.wrap(...), with batched=False if it takes one row"
        ) from last.__cause__
    raise last


def _check_tensor(name: str, y: Any) -> None:
    if not isinstance(y, Tensor):
        raise ShapeError(
            f"simulate of {name!r} must return a tensor; got {type(y).__name__}: pass "
            "simulate=dc.simulators.wrap(...) if it works in NumPy"
        )


def _sampled(
    sampler: Callable[[int, Generator], Any], count: int, generator: Generator, name: str
) -> Tensor:
    try:
        with calling(f"sample of {name!r}"):
            rows = real_tensor(f"what sample of {name!r} returns", sampler(count, generator))
    except SimulatorError as error:
        cause = error.__cause__
        if isinstance(cause, AttributeError) and isinstance(cause.obj, Generator):
            raise SimulatorError(
                f"{error}. It is given a torch.Generator; for NumPy's write rng = "
                "np.random.default_rng(torch.randint(2**31, (), generator=generator).item())"
            ) from cause
        raise
    if rows.ndim < 2 or rows.shape[0] != count:
        raise ShapeError(
            f"sample of {name!r} must return {count} row(s) of at least one axis; "
            f"got shape {tuple(rows.shape)}"
        )
    return rows


class _Opaque(torch.autograd.Function):
    """Calls the simulator on plain values; asking for a derivative raises in words."""

    @staticmethod
    def forward(x: Tensor, simulator: Callable[[Tensor], Any], name: str) -> Tensor:
        # A copy: code that writes to its input must not write to the solver's.
        found = simulator(x.detach().clone())
        return real_tensor(f"what simulate of {name!r} returns", found).to(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.name = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise _no_derivative(ctx.name)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        raise _no_derivative(ctx.name)


def _no_derivative(name: str) -> ConfigError:
    return ConfigError(
        f"problem {name!r} was defined with differentiable=False, so its simulator has no "
        "derivatives: pass problem.simulate itself to dc.solve(forward=...), or a function that "
        "calls it with differentiable=False"
    )
