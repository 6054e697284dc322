"""The least value of convex quadratics in boxes: projected Newton steps, one row apart from others.

Components that the gradient holds at a bound stay there, the others take Newton's step (Bertsekas
1982): all of it, cut at the box, or a share, or what leads to the first bound. A projected gradient
step is tried beside them, which alone would converge. The lowest is taken.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MOST = 60
SHARES = (1.0, 0.5, 0.25, 0.0625)


def least_in_box(
    hessian: Float[Tensor, "B n n"],
    slope: Float[Tensor, "B n"],
    low: Float[Tensor, "B n"],
    high: Float[Tensor, "B n"],
    start: Float[Tensor, "B n"],
) -> Float[Tensor, "B n"]:
    """Where ``z' H z / 2 - slope' z`` is least in the box, from the place in it next to ``start``.

    Rows that are not finite stay where they start.
    """
    diagonal = hessian.diagonal(dim1=1, dim2=2)
    unit = torch.where(diagonal > 0, diagonal, 1.0).rsqrt()
    h = hessian * unit[:, :, None] * unit[:, None, :]
    h.diagonal(dim1=1, dim2=2).add_(1e-13)
    b, least, most = slope * unit, low / unit, high / unit
    found = torch.minimum(torch.maximum(start / unit, least), most)
    rows = torch.arange(len(h), device=h.device)
    for _ in range(MOST):
        place, lower = _lower(h[rows], b[rows], least[rows], most[rows], found[rows])
        rows = rows[lower]
        if len(rows) == 0:
            break
        found = found.index_copy(0, rows, place[lower])
    # At a bound to the last digit: scaling there and back may lose one.
    inside = torch.where(found <= least, low, found * unit)
    return torch.where(found >= most, high, inside)


def _lower(
    h: Tensor, b: Tensor, least: Tensor, most: Tensor, found: Tensor
) -> tuple[Float[Tensor, "B n"], Bool[Tensor, " B"]]:
    """The best of the trials, and whether it is lower by more than round-off."""
    gradient = (h @ found[:, :, None])[:, :, 0] - b
    held = ((found <= least) & (gradient > 0)) | ((found >= most) & (gradient < 0))
    free = (~held).to(h)
    system = h * free[:, :, None] * free[:, None, :] + torch.diag_embed(1 - free)
    factor, failed = torch.linalg.cholesky_ex(system)
    step = -torch.cholesky_solve((gradient * free)[:, :, None], factor)[:, :, 0]
    step = torch.where((failed == 0)[:, None], step, 0.0)
    room = torch.where(step > 0, most - found, least - found) / step
    first = torch.where(step == 0, torch.inf, room).amin(1).clamp(max=1.0)
    shares = torch.tensor(SHARES).to(found)[:, None].expand(-1, len(h))
    tried = found + torch.cat([shares, first[None]])[:, :, None] * step
    steepest = h.abs().sum(2).amax(1)
    tried = torch.cat([tried, (found - gradient / steepest[:, None])[None]])
    tried = torch.minimum(torch.maximum(tried, least), most)
    # The value above that of where we are, by the difference: no digits are lost.
    by = (tried - found).movedim(0, 1)
    value = (by * (gradient[:, None] + 0.5 * by @ h)).sum(2)
    lowest, place = torch.where(value.isfinite(), value, torch.inf).min(1)
    lower = lowest < -1e-12 * (b * found).abs().sum(1)
    return tried[place, torch.arange(len(h), device=h.device)], lower
