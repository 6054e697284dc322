"""What the examples share: their options, data with gaps, SciPy's answer and the table."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.optimize import least_squares
from torch import Tensor

import deceptron as dc

# Share of the sensors that are silent in a row, at random.
MISSING = 0.1


@dataclass(frozen=True)
class Options:
    """How much work to do, whether sensors may be silent, and where to draw the error bars."""

    small: bool
    complete: bool
    picture: Path | None

    @property
    def rows(self) -> int:
        """Fresh rows to solve."""
        return 8 if self.small else 200

    @property
    def train_rows(self) -> int:
        """Rows to simulate for training."""
        return 128 if self.small else 3000

    @property
    def val_rows(self) -> int:
        """Rows to simulate for validation and calibration."""
        return 40 if self.small else 300

    @property
    def preset(self) -> str:
        """Of the training."""
        return "smoke" if self.small else "standard"


def options() -> Options:
    """From the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="seconds, and no accuracy")
    parser.add_argument("--complete", action="store_true", help="no sensor is silent")
    parser.add_argument("--picture", type=Path, help="draw the error bars into this file")
    return Options(**vars(parser.parse_args()))


def with_gaps(y: Tensor, asked: Options, seed: int = 2) -> Tensor:
    """NaN where a sensor is silent."""
    silent = torch.rand(y.shape, generator=torch.Generator().manual_seed(seed)) < MISSING
    return y if asked.complete else torch.where(silent, torch.nan, y)


def scipy_answers(
    forward: Callable[[Tensor], Tensor],
    y: Tensor,
    noise: Tensor,
    prior: Any,
    bounds: tuple[Any, Any],
) -> Tensor:
    """``least_squares`` on each row: residuals over their noise, then those of the prior."""
    mean = prior.mean.double().flatten()
    n = mean.numel()
    eye = torch.eye(n, dtype=torch.float64).reshape(n, *prior.mean.shape)
    root = prior.whiten(eye).reshape(n, n).numpy()
    low, high = (np.broadcast_to(np.asarray(side, float).ravel(), n) for side in bounds)
    answers = []
    for row in y.double():
        seen = row.isfinite()

        def residual(x: Any, row: Tensor = row, seen: Tensor = seen) -> Any:
            found = forward(torch.from_numpy(x).reshape(1, *prior.mean.shape)).detach()[0].double()
            misfit = ((found - row) / noise.double())[seen].numpy()
            return np.concatenate([misfit, root @ (x - mean.numpy())])

        start = np.clip(mean.numpy(), low + 1e-6, high - 1e-6)
        answers.append(least_squares(residual, start, bounds=(low, high)).x)
    return torch.from_numpy(np.stack(answers)).reshape(len(y), *prior.mean.shape)


def compare(
    title: str,
    truth: Tensor,
    answers: dict[str, Callable[[], Any]],
    simulator: dc.simulators.Simulator | None = None,
) -> None:
    """Run each way to answer and print error, coverage of 90% intervals, calls and time."""
    table = Table(
        "method", "RMSE", "90% intervals hold", "simulator calls a row", "ms a row", title=title
    )
    for name, answer in answers.items():
        if simulator is not None:
            simulator.reset()
        began = time.perf_counter()
        found = answer()
        seconds = time.perf_counter() - began
        asked = "none" if simulator is None else _each(simulator.calls, len(truth))
        x = found if isinstance(found, Tensor) else found.x
        error = float((x - truth).double().square().mean().sqrt())
        held, took = _coverage(found, truth), f"{1e3 * seconds / len(truth):.3g}"
        table.add_row(name, f"{error:.4f}", held, asked, took)
    Console(width=100).print(table)


def show_bars(solution: dc.Solution, truth: Tensor, names: list[str], picture: Path | None) -> None:
    """The first row, component by component."""
    low, high = solution.interval(0.9)
    table = Table("", "truth", "answer", "90% interval", title="error bars of the first row")
    for k, name in enumerate(names):
        x, a, b, c = (float(rows[0].flatten()[k]) for rows in (truth, solution.x, low, high))
        table.add_row(name, f"{x:.3f}", f"{a:.3f}", f"{b:.3f} to {c:.3f}")
    Console(width=100).print(table)
    if picture is not None:
        fields = (truth, solution.x, low, high)
        draw_bars(*(rows[0].flatten()[: len(names)].double() for rows in fields), names, picture)


def draw_bars(
    truth: Tensor, answer: Tensor, low: Tensor, high: Tensor, names: list[str], path: Path
) -> None:
    """Truth, answer and interval of each component; the figure stays open for a gallery."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    places = range(len(names))
    arms = torch.stack([answer - low, high - answer]).clamp_min(0).numpy()
    axis.errorbar(places, answer, arms, fmt="o", capsize=4, label="answer, 90% interval")
    axis.plot(places, truth, "x", color="black", label="truth")
    axis.set_xticks(places, names, rotation=40, ha="right")
    axis.legend(frameon=False)
    figure.savefig(path)


def _coverage(found: Any, truth: Tensor) -> str:
    if isinstance(found, Tensor):
        return "no bars"
    low, high = found.interval(0.9)
    return f"{float(((truth >= low) & (truth <= high)).double().mean()):.0%}"


def _each(calls: dc.simulators.Calls, rows: int) -> str:
    kinds = {"values": calls.values, "vjps": calls.vjps, "jvps": calls.jvps}
    return ", ".join(f"{n / rows:.1f} {kind}" for kind, n in kinds.items() if n) or "none"
