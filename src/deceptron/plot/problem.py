"""What a problem looks like: latent, observation, noisy observation and noise of a few samples."""

from __future__ import annotations

import torch
from torch import Generator

from deceptron.core.checks import check_count, check_seed
from deceptron.plot.picture import Picture, picture
from deceptron.plot.planes import MOST_CHANNELS, draw_field, is_signed, plane_of
from deceptron.problems import Problem


def plot_problem(
    problem: Problem, *, count: int = 3, seed: int = 0, family: str = "prior"
) -> Picture:
    """``count`` samples of a problem, a row each; fields in space show their middle slice."""
    check_count("count", count)
    check_seed(seed)
    latents, noise = (Generator().manual_seed(2 * seed + k) for k in range(2))
    x = problem.sample(count, generator=latents, family=family)
    with torch.no_grad():
        clean = problem.simulate(x)
    noisy = problem.add_noise(clean, generator=noise, family=family)
    columns = [("latent x", x, x)]
    channels = clean.shape[1] if clean.ndim > 2 and clean.shape[1] <= MOST_CHANNELS else 1
    for channel in range(channels):
        label = f" {channel + 1}" if channels > 1 else ""
        one = slice(channel, channel + 1) if channels > 1 else slice(None)
        bare, dirty = clean[:, one], noisy[:, one]
        noise_only = dirty - bare
        columns += [
            (f"observation{label}", bare, bare),
            (f"with noise{label}", dirty, bare),
            (f"noise{label}", noise_only, noise_only),
        ]
    figure = picture(2.3 * len(columns), 2.0 * count + 0.5)
    axes = figure.subplots(count, len(columns), squeeze=False)
    for column, (title, values, scale) in enumerate(columns):
        axes[0][column].set_title(title, fontsize=10)
        signed = is_signed(scale.numpy())
        for row in range(count):
            alike = [plane_of(scale[row])]
            draw_field(figure, axes[row][column], plane_of(values[row]), alike, signed=signed)
    return figure
