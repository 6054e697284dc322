"""The least value of convex quadratics in boxes: projected Newton steps, one row apart from others.

Components that the gradient holds at a bound stay there, the others take Newton's step (Bertsekas
1982): all of it, cut at the box, or a share, or what leads to the first bound. A projected gradient
step is tried beside them, which alone would converge. The lowest is taken.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

MOST = 60
SHARES = (1.0, 0.5, 0.25, 0.0625)


def least_in_box(
    hessian: Float[Tensor, "B n n"],
    slope: Float[Tensor, "B n"],
    low: Float[Tensor, "B n"],
    high: Float[Tensor, "B n"],
    z: Float[Tensor, "B n"],
) -> Float[Tensor, "B n"]:
    """Where ``z' H z / 2 - slope' z`` is least in the box, from the least place in all of space.

    Rows that lie in their box, and those that are not finite, stay as they are.
    """
    rows = ((z < low) | (z > high)).any(1).nonzero().flatten()
    if len(rows) == 0:
        return z
    diagonal = hessian[rows].diagonal(dim1=1, dim2=2)
    unit = torch.where(diagonal > 0, diagonal, 1.0).rsqrt()
    h = hessian[rows] * unit[:, :, None] * unit[:, None, :]
    h.diagonal(dim1=1, dim2=2).add_(1e-13)
    b, least, most = slope[rows] * unit, low[rows] / unit, high[rows] / unit
    found = torch.minimum(torch.maximum(z[rows] / unit, least), most)
    shares = torch.tensor(SHARES).to(found)[:, None].expand(-1, len(rows))
    steepest = h.abs().sum(2).amax(1)
    for _ in range(MOST):
        gradient = (h @ found[:, :, None])[:, :, 0] - b
        held = ((found <= least) & (gradient > 0)) | ((found >= most) & (gradient < 0))
        free = (~held).to(h)
        system = h * free[:, :, None] * free[:, None, :] + torch.diag_embed(1 - free)
        factor, failed = torch.linalg.cholesky_ex(system)
        step = -torch.cholesky_solve((gradient * free)[:, :, None], factor)[:, :, 0]
        step = torch.where((failed == 0)[:, None], step, 0.0)
        room = torch.where(step > 0, most - found, least - found) / step
        first = torch.where(step == 0, torch.inf, room).amin(1).clamp(max=1.0)
        tried = found + torch.cat([shares, first[None]])[:, :, None] * step
        tried = torch.cat([tried, (found - gradient / steepest[:, None])[None]])
        tried = torch.minimum(torch.maximum(tried, least), most)
        # The value above that of where we are, by the difference: no digits are lost.
        by = tried - found
        value = (by * (gradient + 0.5 * (by[:, :, None, :] @ h)[:, :, 0])).sum(2)
        lowest, place = torch.where(value.isfinite(), value, torch.inf).min(0)
        lower = lowest < -1e-12 * (b * found).abs().sum(1)
        if not bool(lower.any()):
            break
        best = tried[place, torch.arange(len(rows), device=place.device)]
        found = torch.where(lower[:, None], best, found)
    return z.index_copy(0, rows, found * unit)
