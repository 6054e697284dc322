"""What a problem looks like: latent, observation, noisy observation and noise of a few samples."""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Generator

from deceptron.core.checks import check_count
from deceptron.problems import Problem
from deceptron.report.drawing import (
    as_plane,
    check_picture_path,
    draw_field,
    is_signed,
    write_figure,
)


def draw_problem(
    problem: Problem, path: str | Path, *, count: int = 3, seed: int = 0, family: str = "prior"
) -> Path:
    """Write a picture of ``count`` samples, a row each; fields in space show their middle slice."""
    path = Path(path)
    check_picture_path(path)
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
        signed = is_signed(scale)
        for row in range(count):
            axis = axes[row][column]
            draw_field(figure, axis, as_plane(values[row]), as_plane(scale[row]), signed)
    return write_figure(figure, path)
