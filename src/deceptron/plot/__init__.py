"""Pictures for a notebook or a file: problems, answers, what is left of the data, training curves.

Importing this imports matplotlib; ``solution.plot()`` and its like do so when they are called.
"""

from deceptron.plot.comparison import plot_comparison
from deceptron.plot.curves import training_curves
from deceptron.plot.files import write_figure
from deceptron.plot.problem import plot_problem
from deceptron.plot.reconstructions import Example, plot_reconstructions
from deceptron.plot.solution import plot_solution

__all__ = [
    "Example",
    "plot_comparison",
    "plot_problem",
    "plot_reconstructions",
    "plot_solution",
    "training_curves",
    "write_figure",
]
