"""One small piece of physics in NumPy, with both derivatives, and the same in torch."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]
MATRIX = np.random.default_rng(0).normal(size=(5, 3))


def value(x: Array) -> Array:
    return np.tanh(x @ MATRIX.T)


def vjp(x: Array, w: Array) -> Array:
    return ((1 - value(x) ** 2) * w) @ MATRIX


def jvp(x: Array, v: Array) -> Array:
    return (1 - value(x) ** 2) * (v @ MATRIX.T)


def in_torch(x: Tensor) -> Tensor:
    return torch.tanh(x @ torch.as_tensor(MATRIX).to(x).T)


def rows(count: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, dtype=torch.float64, generator=generator).to(dtype)


def fails_above(x: Array) -> Array:
    """One row; beyond 0.9 in the first component there is no answer."""
    if x[0] > 0.9:
        raise ArithmeticError("no steady state")
    return value(x)


def dies_above(x: Array) -> Array:
    """As ``fails_above``, in the way of a compiled program."""
    if x[0] > 0.9:
        os.kill(os.getpid(), signal.SIGKILL)
    return value(x)


def batch_fails_above(x: Array) -> Array:
    if (x[:, 0] > 0.9).any():
        raise ArithmeticError("no steady state")
    return value(x)


def where_it_runs(x: Array) -> Array:
    """Process, threads of torch, threads of other libraries."""
    others = os.environ["OMP_NUM_THREADS"]
    return np.array([float(os.getpid()), float(torch.get_num_threads()), float(others)])
