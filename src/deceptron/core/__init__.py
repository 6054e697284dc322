"""Small shared types: what every other room may rely on, and nothing that computes an answer."""

from deceptron.core.box import Bounds, Box
from deceptron.core.errors import (
    CheckpointError,
    ConfigError,
    DeceptronError,
    FileError,
    ShapeError,
    SimulatorError,
    SolveFailed,
    WorkFailed,
    unknown_name,
)
from deceptron.core.history import Cost, History
from deceptron.core.protocols import Pair, RowMap
from deceptron.core.scaler import Scaler
from deceptron.core.solution import Solution
from deceptron.core.status import Reason, Status

__all__ = [
    "Bounds",
    "Box",
    "CheckpointError",
    "ConfigError",
    "Cost",
    "DeceptronError",
    "FileError",
    "History",
    "Pair",
    "Reason",
    "RowMap",
    "Scaler",
    "ShapeError",
    "SimulatorError",
    "Solution",
    "SolveFailed",
    "Status",
    "WorkFailed",
    "unknown_name",
]
