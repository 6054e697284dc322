"""Experiments on problems and models; results as plain rows and tensors, never as pictures."""

from deceptron_paper.study.builtin import get_study
from deceptron_paper.study.entries import ProblemEntry, declare_problem
from deceptron_paper.study.grid import Block, Study
from deceptron_paper.study.method_entry import MethodEntry
from deceptron_paper.study.methods import declare_method
from deceptron_paper.study.records import Records, read
from deceptron_paper.study.runner import Summary, run_study

__all__ = [
    "Block",
    "MethodEntry",
    "ProblemEntry",
    "Records",
    "Study",
    "Summary",
    "declare_method",
    "declare_problem",
    "get_study",
    "read",
    "run_study",
]
