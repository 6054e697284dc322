"""Forward-mode differentiation where PyTorch would silently return no tangent.

Under ``torch.inference_mode``, and on tensors made there, dual numbers can lose their tangents
without a word: a defect would then read as that of g = 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def forward_mode() -> Iterator[None]:
    """Leave inference mode for a while, still without building a graph."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


def ordinary(tensor: Tensor) -> Tensor:
    """A copy that can carry a tangent, if this tensor was made in inference mode."""
    return tensor.clone() if tensor.is_inference() else tensor
