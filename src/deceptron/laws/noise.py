"""How noisy data may be: what pure noise stays below, and what it costs to say there is more.

Where no correction that is plausible explains a row, its noise is larger than was said, by a factor
v >= 1: the same data then cost ``q / v^2 + m log v^2`` for a quadratic form q of m numbers, least
at ``v^2 = q / m``. Where a correction looks like noise the data cannot tell them apart, and what
was said of the noise is believed: v has the prior ``v^-PREFERENCE``, which a handful of data
outweigh where they can. Noise that was told is wrong by odds of ``MISTOLD`` only.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

# Of the standard normal distribution.
QUANTILE_99 = 2.326
# With 10 a correction outweighs noise of ten times the stated one where sensors are few: errors of
# 1.3 to 1.5 times that of g(y) on three problems with 6 to 20 of them. The seven are the same.
PREFERENCE = 3.0
# Rows of right noise miss such odds by chance three deviations out.
MISTOLD = 0.01


def noise_limit(count: Float[Tensor, "#B"]) -> Float[Tensor, "#B"]:
    """How many times its level 99% of pure noise stays below, in the RMS of so many components: the
    mean of m squares of standard normals has the deviation sqrt(2 / m), its root half of that.
    """
    return 1 + 0.5 * QUANTILE_99 * (2 / count).sqrt()


def price(noise: Tensor, *, told: bool) -> Tensor:
    """Of a factor v of the noise: minus twice the logarithm of its prior."""
    cost = 2 * PREFERENCE * noise.log()
    return torch.where(noise > 1, cost - 2 * math.log(MISTOLD), cost) if told else cost


def priced(
    value: Float[Tensor, "*S B"],
    count: Float[Tensor, " B"],
    loudest: Float[Tensor, " B"],
    *,
    told: bool,
) -> tuple[Float[Tensor, "*S B"], Float[Tensor, "*S B"]]:
    """What quadratic forms cost at the likeliest noise up to the loudest, and its factor v."""
    noise = torch.minimum((value / count).clamp_min(1.0).sqrt(), loudest)
    cost = value / noise.square() + 2 * count * noise.log() + price(noise, told=told)
    believed = value <= cost
    return torch.where(believed, value, cost), torch.where(believed, 1.0, noise)
