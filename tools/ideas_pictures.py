"""The three pictures of the pages on ideas, made with models that ship.

``python -m tools.ideas_pictures`` draws them all, a name (gain, walk, corrections) one of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

import deceptron as dc
from deceptron.geometry import LocalGeometry, optimal_gain
from deceptron.plot.files import write_figure

OUT = Path(__file__).parents[1] / "docs" / "pictures"
SEED = 7


def gain() -> Figure:
    """What comes back of each of heat-1d's 64 displacements: learned, best possible, and all."""
    problem, pair = dc.problems.get("heat-1d"), dc.load("heat-1d")
    x = problem.dataset(SEED).test.x[:1]
    local = LocalGeometry.at(pair, x, pair.f(x))
    jacobian = local.jacobian[0].double()
    learned = local.reverse_jacobian[0].double() @ jacobian
    best = optimal_gain(pair, x, prior=problem.prior, noise_std=problem.noise_std)[0] @ jacobian
    figure = Figure(figsize=(8.4, 3.0), layout="constrained")
    axes = figure.subplots(1, 3)
    identity = torch.eye(len(best))
    titles = ("learned: $J_g J_f$", "best possible at this noise", "identity: all comes back")
    largest = float(learned.abs().max())
    for axis, title, matrix in zip(axes, titles, (learned, best, identity), strict=True):
        image = axis.imshow(matrix.detach(), cmap="RdBu_r", vmin=-largest, vmax=largest)
        axis.set_title(title, fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.colorbar(image, ax=axes, shrink=0.85)
    return figure


def walk() -> Figure:
    """The error of D-IPG over its steps, which is that of a walk to the one-shot answer."""
    problem, pair = dc.problems.get("heat-2d"), dc.load("heat-2d")
    test = problem.dataset(SEED).test
    x, y = test.x[:16], test.y[:16]
    steps = range(1, 16)
    errors = [_error(dc.solve(pair, y, method="d-ipg", max_iterations=k).x, x) for k in steps]
    one_shot = _error(dc.solve(pair, y, method="one-shot").x, x)
    stopped = dc.solve(pair, y, method="d-ipg", tolerance=0.38)
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axis = figure.subplots()
    axis.semilogy(steps, errors, "o-", markersize=4, label="D-IPG after so many steps")
    axis.axhline(one_shot, color="black", linestyle="--", label="one-shot answer of its network")
    axis.plot(
        float(stopped.iterations.double().mean()),
        _error(stopped.x, x),
        "s",
        color="tab:red",
        label="where the published tolerance stops",
    )
    axis.set_xlabel("steps")
    axis.set_ylabel("error, 16 rows of heat-2d")
    axis.legend(frameon=False, fontsize=9)
    return figure


def corrections() -> Figure:
    """Rows of darcy-2d before and after the default solver, by residual and by error."""
    problem, pair = dc.problems.get("darcy-2d"), dc.load("darcy-2d")
    data = problem.dataset(SEED)
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axis = figure.subplots()
    limit = 1.0
    for rows, color, label in (
        (data.test, "tab:blue", "like the training data"),
        (data.shifted, "tab:orange", "rougher"),
    ):
        x, y = rows.x[:12], rows.y[:12]
        before = dc.solve(pair, y, forward=problem, method="one-shot", noise_std=problem.noise_std)
        after = dc.solve(pair, y, forward=problem, noise_std=problem.noise_std)
        ends = [(s.over_noise, _row_errors(s.x, x)) for s in (before, after)]
        for start, end in zip(zip(*ends[0], strict=True), zip(*ends[1], strict=True), strict=True):
            arrow = {"arrowstyle": "->", "color": color, "alpha": 0.5}
            axis.annotate(
                "", xy=tuple(map(float, end)), xytext=tuple(map(float, start)), arrowprops=arrow
            )
        axis.scatter(*ends[0], s=16, facecolors="none", edgecolors=color, label=f"{label}: network")
        axis.scatter(*ends[1], s=16, color=color, label=f"{label}: dc.solve")
        limit = max(limit, float(after.over_noise[after.explained].max()))
    axis.axvline(limit, color="black", linestyle="--", linewidth=0.8)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("residual over noise (explained: left of the line)")
    axis.set_ylabel("error")
    axis.legend(frameon=False, fontsize=8)
    return figure


def _error(found: Tensor, truth: Tensor) -> float:
    return float((found - truth).square().mean().sqrt())


def _row_errors(found: Tensor, truth: Tensor) -> Tensor:
    return (found - truth).flatten(1).square().mean(1).sqrt()


PICTURES: dict[str, Callable[[], Figure]] = {
    "gain": gain,
    "walk": walk,
    "corrections": corrections,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    for name in parser.parse_args().names or PICTURES:
        print(write_figure(PICTURES[name](), OUT / f"ideas-{name}.png", dpi=110))
