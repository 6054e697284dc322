"""What a problem looks like: latent, observation, noisy observation and noise of a few samples."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Generator, Tensor

from deceptron.core.checks import check_count
from deceptron.core.errors import ConfigError
from deceptron.problems import Problem

SUFFIXES = (".png", ".pdf", ".svg")


def draw_problem(
    problem: Problem, path: str | Path, *, count: int = 3, seed: int = 0, family: str = "prior"
) -> Path:
    """Write a picture of ``count`` samples, a row each; fields in space show their middle slice."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"path must end in one of {', '.join(SUFFIXES)}; got {str(path)!r}")
    if not path.parent.is_dir():
        raise ConfigError(f"path must lie in a folder that exists; got {str(path)!r}")
    check_count("count", count)
    latents, noise = (Generator().manual_seed(2 * seed + k) for k in range(2))
    x = problem.sample(count, generator=latents, family=family)
    with torch.no_grad():
        clean = problem.simulate(x)
    noisy = problem.add_noise(clean, generator=noise, family=family)

    panels = [("latent x", x, x)]
    channels = clean.shape[1] if clean.ndim > 2 else 1
    for channel in range(channels):
        label = f" {channel + 1}" if channels > 1 else ""
        bare, dirty = (y[:, channel : channel + 1] if y.ndim > 2 else y for y in (clean, noisy))
        noise_only = dirty - bare
        panels += [
            (f"observation{label}", bare, bare),
            (f"with noise{label}", dirty, bare),
            (f"noise{label}", noise_only, noise_only),
        ]
    figure = Figure(figsize=(2.3 * len(panels), 2.0 * count + 0.5), layout="constrained")
    axes = figure.subplots(count, len(panels), squeeze=False)
    for column, (title, values, scale) in enumerate(panels):
        axes[0][column].set_title(title, fontsize=10)
        # White is zero where both signs matter; round-off below zero does not count.
        signed = bool(scale.min() < -0.1 * scale.max())
        for row in range(count):
            _panel(figure, axes[row][column], _plane(values[row]), _plane(scale[row]), signed)
    _write(figure, path)
    return path


def _plane(value: Tensor) -> Tensor:
    """The vector or the image that stands for a field of any dimension."""
    value = value.detach().cpu()
    while value.ndim > 1 and value.shape[0] == 1:
        value = value[0]
    while value.ndim > 2:
        value = value[value.shape[0] // 2]
    return value


def _panel(figure: Figure, axis: Any, value: Tensor, scale: Tensor, signed: bool) -> None:
    axis.tick_params(labelsize=7)
    if value.ndim < 2:
        axis.plot(value.numpy(), linewidth=1.2)
        axis.margins(x=0)
        return
    largest = float(scale.abs().max())
    low, high = (-largest, largest) if signed else (float(scale.min()), float(scale.max()))
    image = axis.imshow(value.numpy(), cmap="RdBu_r" if signed else "viridis", vmin=low, vmax=high)
    axis.set_xticks([])
    axis.set_yticks([])
    bar = figure.colorbar(image, ax=axis, shrink=0.85)
    bar.ax.tick_params(labelsize=7)


def _write(figure: Figure, path: Path) -> None:
    """A picture is complete or absent: written beside its name, then renamed."""
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        figure.savefig(partial, dpi=80)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
