"""Other people's physics: simulators in NumPy, JAX, a server or a program, as one kind of map."""

from deceptron.simulators.command import from_command
from deceptron.simulators.jax_function import from_jax
from deceptron.simulators.numpy_functions import wrap
from deceptron.simulators.simulator import Calls, Simulator
from deceptron.simulators.umbridge import from_umbridge

__all__ = ["Calls", "Simulator", "from_command", "from_jax", "from_umbridge", "wrap"]
