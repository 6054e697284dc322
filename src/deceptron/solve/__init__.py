"""The batched loop, descents, searches, linear solves, and the methods made of them."""

from deceptron.solve import methods
from deceptron.solve.api import solve
from deceptron.solve.methods import Method
from deceptron.solve.outliers import outliers
from deceptron.solve.prices import reverse_price
from deceptron.solve.snapshot import Snapshot
from deceptron.solve.stream import FileSummary, solve_file

__all__ = [
    "FileSummary",
    "Method",
    "Snapshot",
    "methods",
    "outliers",
    "reverse_price",
    "solve",
    "solve_file",
]
