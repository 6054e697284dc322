"""Tables and figures; the only room that imports matplotlib, and never one that solves."""

from deceptron.report.pictures import draw_problem

__all__ = ["draw_problem"]
