"""Tables and figures; the only room that imports matplotlib, and never one that solves."""

from deceptron.report.pictures import draw_problem
from deceptron.report.reconstructions import Example, draw_reconstructions

__all__ = ["Example", "draw_problem", "draw_reconstructions"]
