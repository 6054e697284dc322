"""How good a trained pair is on test instances it has not seen, beside the linear estimate."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator

from deceptron.geometry import rjcp
from deceptron.maps import Deceptron
from deceptron.measure import Measurement, linear_estimate, measure, surrogate_error
from deceptron.problems import Dataset, Problem


@dataclass(frozen=True)
class Quality:
    """``surrogate_error`` and ``noise_level`` are RMS in normalised measurement units."""

    measurements: dict[str, Measurement]
    surrogate_error: float
    noise_level: float
    rjcp: float

    @property
    def surrogate_below_noise(self) -> bool:
        """Whether the surrogate may be trusted down to the noise."""
        return self.surrogate_error < self.noise_level

    def rmse(self, method: str) -> float:
        """Mean over the instances."""
        return float(self.measurements[method].rmse.mean())


def assess(pair: Deceptron, problem: Problem, data: Dataset) -> Quality:
    """Wiener, one-shot and D-IPG (80 iterations, discrepancy stop) on ``data.test``."""
    x, y = data.test.x, data.test.y
    level = data.scaler.noise_level(problem.noise_std, problem.y_shape)
    linear = Deceptron(
        pair.f,
        pair.g,
        scaler=data.scaler,
        bounds=problem.bounds,
        wiener=linear_estimate(problem, data.train, data.scaler),
    )
    measurements = {
        "wiener": measure(linear, problem, x, y, label="wiener", method="wiener"),
        "one-shot": measure(pair, problem, x, y, label="one-shot", method="one-shot"),
        "d-ipg": measure(
            pair,
            problem,
            x,
            y,
            label="D-IPG",
            method="d-ipg",
            noise_std=problem.noise_std,
            max_iterations=80,
        ),
    }
    few = x[:64]  # RJCP varies little between rows; jvps are the slow part
    composition = rjcp(pair, few, generator=Generator().manual_seed(0)).mean()
    return Quality(measurements, surrogate_error(pair, problem, x), level, float(composition))
