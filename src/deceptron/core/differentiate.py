"""Row-wise derivatives of batched maps, without forming a Jacobian unless asked to.

Every map here treats its rows independently, so one product with the block-diagonal Jacobian of
the whole batch is the product of each row with its own Jacobian.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from deceptron.core.protocols import RowMap


def jvp(function: RowMap, x: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor]:
    """Value and directional derivative ``(f(x), J(x) v)``, in one forward pass."""
    if torch.is_inference_mode_enabled():
        # There, and on tensors made there, dual numbers lose their tangents without a word.
        with torch.inference_mode(False), torch.no_grad():
            return jvp(function, x, tangent)
    x, tangent = (t.clone() if t.is_inference() else t for t in (x, tangent))
    with forward_ad.dual_level():
        value, derivative = forward_ad.unpack_dual(function(forward_ad.make_dual(x, tangent)))
    # A map that ignores its input (g = 0, say) returns no tangent.
    return value, torch.zeros_like(value) if derivative is None else derivative


def dense_jacobian(function: RowMap, x: Tensor) -> Tensor:
    """Jacobian of each row, ``(B, m, n)`` over flattened components; n rows of work for each."""
    rows, n = x.shape[0], x[0].numel()
    basis = torch.eye(n, dtype=x.dtype, device=x.device)
    tangents = basis.repeat(rows, 1).reshape(rows * n, *x.shape[1:])
    _, columns = jvp(function, x.repeat_interleave(n, dim=0), tangents)
    return columns.reshape(rows, n, -1).transpose(1, 2)
