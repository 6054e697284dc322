"""Deceptron: learn the local inverse geometry of a forward model once, reuse it in every solve.

A name loads its room when it is first used: the command line can print its help, and a process
that only reads records can start, without torch.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deceptron import geometry, maps, problems, simulators
    from deceptron.comparison import compare
    from deceptron.core import (
        CheckpointError,
        ConfigError,
        DeceptronError,
        Reason,
        Scaler,
        ShapeError,
        SimulatorError,
        Solution,
        SolveFailed,
        Status,
    )
    from deceptron.geometry import jcp, rjcp, trust
    from deceptron.maps import Deceptron, load, save
    from deceptron.solve import methods, outliers, reverse_price, solve, solve_file
    from deceptron.train import recalibrate, train

__version__ = "0.3.0"

__all__ = [
    "CheckpointError",
    "ConfigError",
    "Deceptron",
    "DeceptronError",
    "Reason",
    "Scaler",
    "ShapeError",
    "SimulatorError",
    "Solution",
    "SolveFailed",
    "Status",
    "compare",
    "geometry",
    "jcp",
    "load",
    "maps",
    "methods",
    "outliers",
    "problems",
    "recalibrate",
    "reverse_price",
    "rjcp",
    "save",
    "simulators",
    "solve",
    "solve_file",
    "train",
    "trust",
]

_ROOMS = {
    "comparison": ("compare",),
    "core": (
        "CheckpointError",
        "ConfigError",
        "DeceptronError",
        "Reason",
        "Scaler",
        "ShapeError",
        "SimulatorError",
        "Solution",
        "SolveFailed",
        "Status",
    ),
    "geometry": ("jcp", "rjcp", "trust"),
    "maps": ("Deceptron", "load", "save"),
    "solve": ("methods", "outliers", "reverse_price", "solve", "solve_file"),
    "train": ("recalibrate", "train"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}
_MODULES = ("core", "geometry", "maps", "problems", "simulators")


class _Package(ModuleType):
    """This package, whose public names are imported when somebody asks for them."""

    def __getattr__(self, name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        if name in ("study", "report"):
            raise AttributeError(f"dc.{name} is deceptron_paper.{name} now: pip install ./paper")
        if name not in _ROOM_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing a room binds it to its name here, but `solve` and `train` are the functions.
        if not (name in _ROOM_OF and value is sys.modules.get(f"{__name__}.{name}")):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
