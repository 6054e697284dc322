"""Algorithm 1 of the paper, one instance at a time, written for reading: the oracle."""

from __future__ import annotations

import torch
from torch import Tensor


def algorithm_one(
    f,
    g,
    target: Tensor,
    x0: Tensor,
    low: float,
    high: float,
    *,
    relaxation: float = 0.4,
    step_size: float = 1.0,
    armijo: float = 1e-4,
    shrink: float = 0.5,
    backtracks: int = 8,
    max_iterations: int = 50,
    tolerance: float = 0.0,
) -> tuple[Tensor, int, str]:
    def phi(x: Tensor) -> Tensor:
        return 0.5 * ((f(x[None])[0] - target) ** 2).mean()

    x = x0.clone()
    for t in range(max_iterations):
        y = f(x[None])[0]
        r = y - target
        if (r**2).mean().sqrt() <= tolerance:
            return x, t, "tolerance"
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(phi(leaf), leaf)
        alpha, accepted = step_size, False
        for _ in range(1 + backtracks):
            proposal = g((y - alpha * r)[None])[0]
            candidate = ((1 - relaxation) * x + relaxation * proposal).clamp(low, high)
            step = candidate - x
            if phi(candidate) <= phi(x) + armijo * (gradient * step).sum():
                x, accepted = candidate, True
                break
            alpha *= shrink
        if not accepted:
            return x, t, "stalled"
    if ((f(x[None])[0] - target) ** 2).mean().sqrt() <= tolerance:
        return x, max_iterations, "tolerance"
    return x, max_iterations, "limit"
