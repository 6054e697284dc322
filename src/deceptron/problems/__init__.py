"""The physics: batched, differentiable simulators with their latents, boxes and noise."""

from deceptron.problems.base import Problem
from deceptron.problems.dataset import Dataset, Split
from deceptron.problems.prior import LowRankPrior, Prior, SpectralPrior
from deceptron.problems.registry import define, get, names
from deceptron.problems.verify import Report, verify

__all__ = [
    "Dataset",
    "LowRankPrior",
    "Prior",
    "Problem",
    "Report",
    "SpectralPrior",
    "Split",
    "define",
    "get",
    "names",
    "verify",
]
