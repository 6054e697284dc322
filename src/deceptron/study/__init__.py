"""Experiments on problems and shipped models; results as plain rows, never as pictures."""

from deceptron.study.demo import DEMO_PROBLEMS, Demo, run_demo

__all__ = ["DEMO_PROBLEMS", "Demo", "run_demo"]
