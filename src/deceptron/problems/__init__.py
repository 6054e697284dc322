"""The physics: batched, differentiable simulators with their latents, boxes and noise."""

from deceptron.problems.base import Problem
from deceptron.problems.custom import define
from deceptron.problems.dataset import Dataset, Split
from deceptron.problems.measured import MeasuredProblem, from_data
from deceptron.problems.prior import LowRankPrior, Prior, SpectralPrior
from deceptron.problems.registry import get, names
from deceptron.problems.verify import Report, verify

__all__ = [
    "Dataset",
    "LowRankPrior",
    "MeasuredProblem",
    "Prior",
    "Problem",
    "Report",
    "SpectralPrior",
    "Split",
    "define",
    "from_data",
    "get",
    "names",
    "verify",
]
