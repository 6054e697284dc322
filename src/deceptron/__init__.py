"""Deceptron: learn the local inverse geometry of a forward model once, reuse it in every solve."""

from deceptron import problems
from deceptron.core import (
    CheckpointError,
    ConfigError,
    DeceptronError,
    Scaler,
    ShapeError,
    Solution,
    SolveFailed,
    Status,
)
from deceptron.solve import methods, solve

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DeceptronError",
    "Scaler",
    "ShapeError",
    "Solution",
    "SolveFailed",
    "Status",
    "methods",
    "problems",
    "solve",
]
