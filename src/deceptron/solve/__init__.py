"""The batched loop, descents, searches, linear solves, and the methods made of them."""

from deceptron.solve import methods
from deceptron.solve.api import solve
from deceptron.solve.loop import Snapshot
from deceptron.solve.methods import Method

__all__ = ["Method", "Snapshot", "methods", "solve"]
