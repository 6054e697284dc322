"""The last step of a training run: what validation data say about error bars and trust."""

from __future__ import annotations

import torch

from deceptron.core.errors import ConfigError
from deceptron.geometry import Posterior, fit_interval_factor, fit_trust
from deceptron.maps import Deceptron
from deceptron.problems import Dataset, Problem
from deceptron.train.streams import stream

# A jvp through f and one through g for each row and draw: a minute for the largest of the seven.
ROWS, SAMPLES = 256, 16


def calibrate(
    pair: Deceptron, problem: Problem, data: Dataset, *, rows: int = ROWS, samples: int = SAMPLES
) -> Deceptron:
    """Fit the factor of error bars and the limits of trust on ``data.val`` with fresh noise.

    They are kept in ``pair.provenance["calibration"]``, which is saved and loaded with the pair;
    the same pair comes back. The answers that bars are fitted to are one-shot, g(y) in the box.
    """
    noisy = problem.noise_std
    if not bool((torch.as_tensor(noisy) > 0).all()):
        raise ConfigError(f"calibrate(problem=...) must have noise_std > 0; got {noisy}")
    like = pair.scaler.scale
    x, clean = (part[:rows].to(like) for part in (data.val.x, data.val.y))
    y = problem.add_noise(clean, generator=stream(data.seed, "calibration-noise"))
    posterior = Posterior.one_shot(pair, y, prior=problem.prior, noise_std=problem.noise_std)
    pair.provenance["calibration"] = {
        "interval_factor": fit_interval_factor(
            posterior, x, samples=samples, generator=stream(data.seed, "calibration-draws")
        ),
        "trust": fit_trust(pair, y),
        "rows": len(x),
        "samples": samples,
    }
    return pair
