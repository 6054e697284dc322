"""Pictures for a notebook or a file: answers, what is left of the data, history, training curves.

Importing this imports matplotlib; ``solution.plot()`` and its like do so when they are called.
"""

from deceptron.plot.comparison import plot_comparison
from deceptron.plot.curves import training_curves
from deceptron.plot.solution import plot_solution

__all__ = ["plot_comparison", "plot_solution", "training_curves"]
