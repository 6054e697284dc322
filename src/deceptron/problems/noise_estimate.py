"""The noise of observations of which only pairs are known: what neighbours cannot predict."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

ROWS = 800
# Length scales over the median distance, and ridges over the mean of the kernel's diagonal.
LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
RIDGES = (1e-8, 1e-6, 1e-4, 1e-2, 1e-1)


def estimate_noise(x: Float[Tensor, "N *x"], y: Float[Tensor, "N *y"]) -> Float[Tensor, "*y"]:
    """Standard deviation of each component of y about the best smooth function of x.

    Kernel ridge regression on the first rows, its residuals with each row left out in turn:
    ``e = (A^-1 y) / diag(A^-1)`` with ``A = K + ridge``. The least over lengths and ridges is kept
    for each component; it exceeds the noise by what the function still misses.
    """
    a, b = (part[:ROWS].to(torch.float64).flatten(1) for part in (x, y))
    a = (a - a.mean(0)) / a.std(0).clamp_min(1e-12)
    centre = b.mean(0)
    distance = torch.cdist(a, a)
    median = distance[distance > 0].median().clamp_min(1e-12)
    # The worst that is considered: y does not depend on x at all.
    best = b.std(0)
    for length in LENGTHS:
        kernel = torch.exp(-0.5 * (distance / (length * median)).square())
        values, vectors = torch.linalg.eigh(kernel)
        projected = vectors.mT @ (b - centre)
        for ridge in RIDGES:
            inverse = 1 / (values.clamp_min(0) + ridge)
            weights = vectors @ (inverse[:, None] * projected)
            diagonal = (vectors.square() * inverse).sum(1)
            left_out = (weights / diagonal[:, None]).square().mean(0).sqrt()
            best = torch.minimum(best, torch.where(left_out.isfinite(), left_out, best))
    floor = 1e-6 * b.std(0).max().clamp_min(1e-12)
    return best.clamp_min(floor).reshape(y.shape[1:]).to(y.dtype)
