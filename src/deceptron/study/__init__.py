"""Experiments on problems and models; results as plain rows and tensors, never as pictures."""

from deceptron.study.demo import DEMO_PROBLEMS, Demo, run_demo
from deceptron.study.measure import Measurement, measure
from deceptron.study.quality import Quality, assess

__all__ = ["DEMO_PROBLEMS", "Demo", "Measurement", "Quality", "assess", "measure", "run_demo"]
