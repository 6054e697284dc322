"""The noise of observations of which only pairs are known: what neighbours cannot predict."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Rows that are looked at, and those that a kernel is made of.
MOST, ROWS = 4000, 800
# Length scales over the median distance, and ridges over the mean of the kernel's diagonal.
LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
RIDGES = (1e-8, 1e-6, 1e-4, 1e-2, 1e-1)
# Degrees of freedom from which repeated measurements tell the noise themselves, to 13%.
REPEATED = 30


def estimate_noise(x: Float[Tensor, "N *x"], y: Float[Tensor, "N *y"]) -> Float[Tensor, "*y"]:
    """Standard deviation of each component of y about the best smooth function of x.

    Rows that are copies of others count once. Where latents were measured more than once, it is the
    pooled deviation of those about their means, for which nothing is assumed of the function. Else,
    and of components that never vary there, kernel ridge regression on the first rows, its
    residuals with each row left out in turn:
    ``e = (A^-1 y) / diag(A^-1)`` with ``A = K + ridge``. The least over lengths and ridges is kept
    for each component; it exceeds the noise by what the function still misses.
    """
    a, b = (part[:MOST].to(torch.float64).flatten(1) for part in (x, y))
    once = _first_of_each(torch.cat([a, b], 1))
    a, b = a[once], b[once]
    repeated = _deviation_of_repeated(a, b)
    a, b = a[:ROWS], b[:ROWS]
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
    if repeated is not None:
        best = torch.where(repeated > 0, repeated, best)
    floor = 1e-6 * b.std(0).max().clamp_min(1e-12)
    return best.clamp_min(floor).reshape(y.shape[1:]).to(y.dtype)


def _first_of_each(rows: Float[Tensor, "N k"]) -> Int[Tensor, " d"]:
    """Where each different row is first, in their order."""
    different, which = rows.unique(dim=0, return_inverse=True)
    places = torch.arange(len(rows))
    first = torch.full((len(different),), len(rows)).scatter_reduce(0, which, places, "amin")
    return first.sort().values


def _deviation_of_repeated(
    a: Float[Tensor, "N n"], b: Float[Tensor, "N m"]
) -> Float[Tensor, " m"] | None:
    """``sum |b - mean of its a|^2 / (N - different a)``, its root; None where that is too few."""
    different, which = a.unique(dim=0, return_inverse=True)
    degrees = len(a) - len(different)
    if degrees < REPEATED:
        return None
    sums = b.new_zeros(len(different), b.shape[1]).index_add_(0, which, b)
    means = sums / which.bincount()[:, None]
    return ((b - means[which]).square().sum(0) / degrees).sqrt()
