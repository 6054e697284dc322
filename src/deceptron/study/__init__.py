"""Experiments on problems and models; results as plain rows and tensors, never as pictures."""

from deceptron.core.processes import LocalProcesses
from deceptron.study.builtin import get_study
from deceptron.study.demo import Demo, run_demo
from deceptron.study.entries import ProblemEntry, declare_problem
from deceptron.study.grid import Block, Study
from deceptron.study.measure import Measurement, measure
from deceptron.study.method_entry import MethodEntry
from deceptron.study.methods import declare_method
from deceptron.study.records import Records, read
from deceptron.study.runner import Summary, run_study

__all__ = [
    "Block",
    "Demo",
    "LocalProcesses",
    "Measurement",
    "MethodEntry",
    "ProblemEntry",
    "Records",
    "Study",
    "Summary",
    "declare_method",
    "declare_problem",
    "get_study",
    "measure",
    "read",
    "run_demo",
    "run_study",
]
