"""The problems by name: those of the library and those a user has defined."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from deceptron.core.errors import ConfigError, unknown_name
from deceptron.problems.advection_diffusion import AdvectionDiffusion2D
from deceptron.problems.allen_cahn import AllenCahn2D
from deceptron.problems.base import Problem
from deceptron.problems.darcy import Darcy2D
from deceptron.problems.heat_1d import Heat1D
from deceptron.problems.heat_2d import Heat2D
from deceptron.problems.heat_3d import Heat3D
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


def check_own_name(name: str) -> None:
    """Refuse what cannot be the name of a problem that does not ship."""
    if not isinstance(name, str) or not name:
        raise ConfigError(f"name must be a non-empty text; got {name!r}")
    if name in _BUILT_IN:
        raise ConfigError(f"name must not be that of a built-in problem; got {name!r}")


def enter(problem: Problem) -> None:
    """Let ``get`` find it; one that was defined by its name before is replaced."""
    _DEFINED[problem.name] = problem
