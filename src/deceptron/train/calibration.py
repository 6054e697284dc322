"""The last step of a training run: what validation data say about error bars and trust."""

from __future__ import annotations

from dataclasses import replace

import torch

from deceptron.core.errors import ConfigError
from deceptron.geometry import Posterior, fit_interval_factor, fit_prior_share, fit_trust
from deceptron.maps import Deceptron
from deceptron.problems import Dataset, Problem
from deceptron.train.streams import stream

# Two jvps for each row and draw, four where the share is chosen: a minute for the largest problem.
# The draws are those that a solution's bars are made of.
ROWS = 256
SHARE_OF_ROWS, SHARE_SAMPLES = 0.25, 8


def calibrate(pair: Deceptron, problem: Problem, data: Dataset, *, rows: int = ROWS) -> Deceptron:
    """Fit error bars and the limits of trust on the first rows of ``data.val`` with fresh noise.

    They are kept in ``pair.provenance["calibration"]``, which is saved and loaded with the pair;
    the same pair comes back. The answers that bars are fitted to are one-shot, g(y) in the box.
    A quarter of the rows chooses the prior's share, the others the factor.
    """
    noise_std = problem.noise_std
    if not bool((torch.as_tensor(noise_std) > 0).all()):
        raise ConfigError(f"calibrate(problem=...) must have noise_std > 0; got {noise_std}")
    like = pair.scaler.scale
    x, clean = (part[:rows].to(like) for part in (data.val.x, data.val.y))
    y = problem.add_noise(clean, generator=stream(data.seed, "calibration-noise"))
    if len(x) < 2:
        raise ConfigError(f"calibrate(data=...) must have two or more rows in val; got {len(x)}")
    few = max(1, int(SHARE_OF_ROWS * len(x)))

    def bars(rows: slice) -> Posterior:
        return Posterior.one_shot(pair, y[rows], prior=problem.prior, noise_std=noise_std)

    first, others = slice(None, few), slice(few, None)
    share = fit_prior_share(bars(first), x[first], samples=SHARE_SAMPLES)
    factor = fit_interval_factor(replace(bars(others), prior_share=share), x[others])
    pair.provenance["calibration"] = {
        "interval_factor": factor,
        "prior_share": share,
        "trust": fit_trust(pair, y),
        "rows": len(x),
    }
    return pair
