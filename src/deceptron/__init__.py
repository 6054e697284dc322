"""Deceptron: learn the local inverse geometry of a forward model once, reuse it in every solve."""

from deceptron import geometry, maps, problems, simulators
from deceptron.core import (
    CheckpointError,
    ConfigError,
    DeceptronError,
    Scaler,
    ShapeError,
    SimulatorError,
    Solution,
    SolveFailed,
    Status,
)
from deceptron.geometry import jcp, rjcp, trust
from deceptron.maps import Deceptron, load, save
from deceptron.solve import methods, solve, solve_file
from deceptron.train import recalibrate, train

__version__ = "0.2.0"

__all__ = [
    "CheckpointError",
    "ConfigError",
    "Deceptron",
    "DeceptronError",
    "Scaler",
    "ShapeError",
    "SimulatorError",
    "Solution",
    "SolveFailed",
    "Status",
    "geometry",
    "jcp",
    "load",
    "maps",
    "methods",
    "problems",
    "recalibrate",
    "rjcp",
    "save",
    "simulators",
    "solve",
    "solve_file",
    "train",
    "trust",
]
