"""What a method, a surrogate and a linear estimate make of instances whose answer is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.arrays import rms
from deceptron.core.protocols import Pair
from deceptron.core.scaler import Scaler
from deceptron.core.solution import Solution
from deceptron.maps import Deceptron, Wiener
from deceptron.problems import Problem, Split
from deceptron.solve import solve
from deceptron.solve.methods import Method

__all__ = ["Measurement", "linear_estimate", "measure", "rms", "simulate", "surrogate_error"]

CHUNK = 256
# The ridge needs some variance even where a sensor is nearly noise-free.
LEAST_NOISE = 1e-4


@dataclass(frozen=True)
class Measurement:
    """One method on one set of instances; tensors have an entry per instance.

    ``true_residual`` is the RMS misfit of the simulator, not the surrogate, in units of the noise.
    """

    method: str
    solution: Solution
    rmse: Float[Tensor, " B"]
    true_residual: Float[Tensor, " B"]

    def summary(self) -> dict[str, str | float]:
        """A line of a table: means over the instances, RMS of the misfits, median iterations."""
        return {
            "method": self.method,
            "RMSE": float(self.rmse.mean()),
            "true residual / noise": float(self.true_residual.square().mean().sqrt()),
            "iterations": float(self.solution.iterations.double().median()),
            "evaluations": float(self.solution.cost.evaluations.double().mean()),
            "ms per instance": 1e3 * self.solution.seconds / len(self.rmse),
        }


def measure(
    pair: Pair,
    problem: Problem,
    x: Float[Tensor, "B *x"],
    y: Float[Tensor, "B *y"],
    *,
    label: str,
    method: str | Method,
    **settings: Any,
) -> Measurement:
    """Solve the observations ``y`` of the latents ``x`` and compare."""
    solution = solve(pair, y, method=method, **settings)
    return Measurement(
        label,
        solution,
        rmse=rms(solution.x - x),
        true_residual=rms((simulate(problem, solution.x) - y) / problem.noise_std),
    )


def simulate(problem: Problem, x: Float[Tensor, "B *x"]) -> Float[Tensor, "B *y"]:
    """The simulator without a graph, in chunks."""
    with torch.no_grad():
        return torch.cat([problem.simulate(rows) for rows in x.split(CHUNK)])


def linear_estimate(problem: Problem, train: Split, scaler: Scaler) -> Wiener:
    """The ridge from training pairs, which it scales as the networks do."""
    noise = torch.as_tensor(problem.noise_std) / scaler.scale
    return Wiener.fit(train.x, scaler.normalise(train.y), noise_std=noise.clamp_min(LEAST_NOISE))


def surrogate_error(pair: Deceptron, problem: Problem, x: Float[Tensor, "B *x"]) -> float:
    """RMS of f against the simulator, normalised units."""
    with torch.no_grad():
        z = x if pair.units is None else pair.units.reduced(x)
        predicted = torch.cat([pair.f(rows) for rows in z.split(CHUNK)])
    return float((predicted - pair.scaler.normalise(simulate(problem, x))).square().mean().sqrt())
