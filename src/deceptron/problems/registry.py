"""The problems by name: those of the library and those a user defines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal

from torch import Generator, Tensor

from deceptron.core.box import Bounds
from deceptron.core.checks import check_flags
from deceptron.core.errors import ConfigError, unknown_name
from deceptron.problems.advection_diffusion import AdvectionDiffusion2D
from deceptron.problems.allen_cahn import AllenCahn2D
from deceptron.problems.base import Problem
from deceptron.problems.custom import make_custom
from deceptron.problems.darcy import Darcy2D
from deceptron.problems.heat_1d import Heat1D
from deceptron.problems.heat_2d import Heat2D
from deceptron.problems.heat_3d import Heat3D
from deceptron.problems.measured import MeasuredProblem, make_measured
from deceptron.problems.navier_stokes import NavierStokes2D

_BUILT_IN: dict[str, type[Problem]] = {
    "heat-1d": Heat1D,
    "heat-2d": Heat2D,
    "heat-3d": Heat3D,
    "darcy-2d": Darcy2D,
    "advection-diffusion-2d": AdvectionDiffusion2D,
    "allen-cahn-2d": AllenCahn2D,
    "navier-stokes-2d": NavierStokes2D,
}
_DEFINED: dict[str, Problem] = {}


def names() -> list[str]:
    """The seven problems of the library, then those defined in this process."""
    return [*_BUILT_IN, *_DEFINED]


def get(name: str, **overrides: Any) -> Problem:
    """The problem of this name.

    Args:
        name: one of ``dc.problems.names()``.
        overrides: other values for fields of a problem that ships, for example ``grid=64`` or
            ``noise_std=0.03``; ``deceptron problems NAME`` lists them.
    """
    if name in _DEFINED:
        if overrides:
            raise ConfigError(
                f"problem {name!r} was defined by problems.define: change it there, "
                f"not by {', '.join(overrides)}"
            )
        return _DEFINED[name]
    if name not in _BUILT_IN:
        raise unknown_name("problem", name, names())
    kind = _BUILT_IN[name]
    known = [field.name for field in fields(kind) if field.init and field.name != "name"]
    for key in overrides:
        if key not in known:
            raise unknown_name(f"field of {name}", key, known)
    return kind(**overrides)


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
    if name in _BUILT_IN:
        raise ConfigError(f"name must not be that of a built-in problem; got {name!r}")
    check_flags(differentiable=differentiable)
    problem = make_custom(
        name,
        simulate=simulate,
        sample=sample,
        shifted=shifted,
        extreme=extreme,
        bounds=bounds,
        noise_std=noise_std,
        differentiable=(
            getattr(simulate, "differentiable", True) if differentiable is None else differentiable
        ),
        scaling=scaling,
        train_count=train_count,
        val_count=val_count,
        test_count=test_count,
        equation=equation,
        paper=paper,
    )
    _DEFINED[name] = problem
    return problem


def from_data(
    x: Any,
    y: Any,
    *,
    bounds: Bounds | None = None,
    noise_std: float | Tensor | None = None,
    name: str = "data",
    noisy: bool = True,
    val_share: float = 0.1,
    test_share: float = 0.1,
    seed: int = 0,
    scaling: Literal["component", "channel"] = "component",
    equation: str = "",
) -> MeasuredProblem:
    """A problem from measured pairs of latent and observation, without a simulator.

    It can be trained and solved on the surrogate, with trust and error bars. What needs a simulator
    raises an error that says so: ``problem.simulate``, fresh rows, shifted sets.

    Args:
        x: latents, one a row: a tensor, an array or lists.
        y: what was observed for each.
        bounds: ``(low, high)`` of the latents; by default the range of each component of x, a tenth
            wider on each side.
        noise_std: of y, a number or one row of them; None estimates it from how well y follows from
            x among neighbours, which is an upper estimate where there are few rows.
        name: under which runs know it.
        noisy: y carries its noise already, as measured data do, and training adds none. False for
            noise-free pairs, for example from a simulator that is no longer at hand.
        val_share: part of the rows that chooses epochs and calibrates.
        test_share: part of the rows kept aside, ``problem.dataset(seed).test``.
        seed: of the split; ``dataset`` gives the same rows for every seed of its own.
        scaling: whether y is normalised by component or by its first axis.
        equation: what is measured, in words.
    """
    if name in _BUILT_IN:
        raise ConfigError(f"name must not be that of a built-in problem; got {name!r}")
    return make_measured(
        x,
        y,
        bounds=bounds,
        noise_std=noise_std,
        name=name,
        noisy=noisy,
        val_share=val_share,
        test_share=test_share,
        seed=seed,
        scaling=scaling,
        equation=equation,
    )
