"""Row-wise derivatives of batched maps, without forming a Jacobian unless asked to.

Every map here treats its rows independently, so one product with the block-diagonal Jacobian of
the whole batch is the product of each row with its own Jacobian.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd import forward_ad

from deceptron.core.errors import ConfigError, SimulatorError
from deceptron.core.protocols import RowMap

# Torch has one level of dual numbers for all threads, and refuses a second.
_LEVEL = threading.RLock()


def is_differentiable(forward: object) -> bool:
    """What a simulator, or the problem whose method it is, says of itself; True if nothing."""
    owner = getattr(forward, "__self__", None)
    return bool(getattr(forward, "differentiable", getattr(owner, "differentiable", True)))


def jvp(function: RowMap, x: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor]:
    """Value and directional derivative ``(f(x), J(x) v)``, in one forward pass."""
    if torch.is_inference_mode_enabled():
        # There, and on tensors made there, dual numbers lose their tangents without a word.
        with torch.inference_mode(False), torch.no_grad():
            return jvp(function, x, tangent)
    x, tangent = (t.clone() if t.is_inference() else t for t in (x, tangent))
    with _jvps_of_functions(), _LEVEL, forward_ad.dual_level():
        value, derivative = forward_ad.unpack_dual(function(forward_ad.make_dual(x, tangent)))
    # A map that ignores its input (g = 0, say) returns no tangent.
    return value, torch.zeros_like(value) if derivative is None else derivative


class Linearisation:
    """J(x) of each row, for many products at one point: a forward and a backward pass now.

    J'u is linear in u, so its derivative with respect to u is J: both products are backward passes
    over graphs that exist already. Where torch gives constants symbolic tangents (every weight of
    a network), that is 2 to 15 times faster than dual numbers; where it does not, as fast.
    """

    def __init__(self, function: RowMap, x: Tensor) -> None:
        with torch.enable_grad():
            self._x = x.detach().requires_grad_()
            self._y = function(self._x)
            self._u = torch.zeros_like(self._y, requires_grad=True)
            self._pulled = pull_back(self._y, self._x, self._u, create_graph=True)

    def jvp(self, v: Tensor) -> Tensor:
        """``J v``."""
        product = _derivative(self._pulled, self._u, v)
        if product is not None:
            return product
        # No graph from u to J'u: J is zero, as that of rounding is, or torch has lost it.
        slopes = 1 + torch.linspace(0, 1, self._u.numel()).to(self._u).reshape(self._u.shape)
        pulled = _derivative(self._y, self._x, slopes)
        if pulled is not None and bool((pulled != 0).any()):
            raise _differentiable_once()
        return torch.zeros_like(self._y)

    def vjp(self, w: Tensor) -> Tensor:
        """``J' w``."""
        return pull_back(self._y, self._x, w, retain_graph=True)


@contextmanager
def _jvps_of_functions() -> Iterator[None]:
    """What torch says of an ``autograd.Function`` without J v, in words for who wrote it."""
    try:
        yield
    except (RuntimeError, SimulatorError) as error:
        if "jvp function for custom" in f"{error} {error.__cause__}":
            raise _differentiable_once() from error
        raise


def _differentiable_once() -> ConfigError:
    return ConfigError(
        "f has J'w but not J v: it is a torch.autograd.Function without jvp, whose backward torch "
        "cannot differentiate (it detaches, or is once_differentiable). Pass "
        "forward=dc.simulators.wrap(f, vjp=...), which needs no more than J'w, or "
        "differentiable=False beside a pair"
    )


def pull_back(
    output: Tensor,
    leaf: Tensor,
    cotangent: Tensor,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> Tensor:
    """Derivative of <output, cotangent>; zero where the output ignores the leaf."""
    keep = retain_graph or create_graph
    pulled = _derivative(output, leaf, cotangent, retain_graph=keep, create_graph=create_graph)
    return torch.zeros_like(leaf) if pulled is None else pulled


def _derivative(
    output: Tensor,
    leaf: Tensor,
    cotangent: Tensor,
    *,
    retain_graph: bool = True,
    create_graph: bool = False,
) -> Tensor | None:
    """The same; None where no path of the graph leads to the leaf."""
    if not output.requires_grad:
        return None
    (pulled,) = torch.autograd.grad(
        output,
        leaf,
        cotangent,
        retain_graph=retain_graph,
        create_graph=create_graph,
        allow_unused=True,
    )
    return pulled


# Rows that are worked on together where a Jacobian is formed: enough to outweigh what torch takes
# for a call, few enough for the cache. Up to so many, the calls are what takes the time.
_TOGETHER, _FEW = 1024, 256


def dense_jacobian(function: RowMap, x: Tensor, outputs: int | None = None) -> Tensor:
    """Jacobian of each row, ``(B, m, n)`` over flattened components; n rows of work for each.

    Rows are repeated for as many columns as are worked on together. Where they are few, and it is
    known that the ``outputs`` are hardly more than the inputs, all rows of J by one backward pass
    are as much work in a quarter of the calls.
    """
    if torch.is_inference_mode_enabled() or x.is_inference():
        with torch.inference_mode(False), torch.no_grad():
            return dense_jacobian(function, x.clone(), outputs)
    n = math.prod(x.shape[1:])
    if outputs is not None and outputs <= 2 * n and len(x) * outputs <= _FEW:
        return _by_rows(function, x, outputs)
    columns: Tensor | None = None  # all of J': it may be large, and is written once
    first = 0
    for rows in x.split(_TOGETHER):
        for place, block in _columns(function, rows, n):
            if columns is None:
                columns = block.new_empty(len(x), n, block.shape[2])
            columns[first : first + len(rows), place] = block
        first += len(rows)
    assert columns is not None
    return columns.mT


def jacobian_of_row(function: RowMap, row: Tensor, together: int) -> Tensor:
    """Jacobian ``(m, n)`` of one row in float64, by dual numbers, so many columns at a time."""
    units = torch.eye(row.numel(), dtype=row.dtype, device=row.device).split(together)
    columns = []
    with torch.no_grad():
        for unit in units:
            points = row.repeat_interleave(len(unit), dim=0)
            _, pushed = jvp(function, points, unit.reshape(-1, *row.shape[1:]))
            columns.append(pushed.flatten(1).double())
    return torch.cat(columns).T


def _columns(function: RowMap, x: Tensor, n: int) -> Iterator[tuple[slice, Tensor]]:
    """Which columns of J, and their values ``(B, columns, m)``; as many as go together."""
    rows = len(x)
    width = min(n, max(1, _TOGETHER // rows))
    basis = torch.eye(n, dtype=x.dtype, device=x.device)
    linearised: Linearisation | None = None
    for first in range(0, n, width):
        block = basis[first : first + width]
        if linearised is None or len(block) < width:
            linearised = Linearisation(function, x.repeat_interleave(len(block), dim=0))
        tangents = block.repeat(rows, 1).reshape(-1, *x.shape[1:])
        products = linearised.jvp(tangents)
        yield slice(first, first + len(block)), products.reshape(rows, len(block), -1)


def _by_rows(function: RowMap, x: Tensor, m: int) -> Tensor:
    """One backward pass from as many copies of each row as it has outputs."""
    with torch.enable_grad():
        copies = x.detach().repeat_interleave(m, dim=0).requires_grad_()
        y = function(copies)
    basis = torch.eye(m, dtype=y.dtype, device=y.device).expand(len(x), m, m)
    return pull_back(y, copies, basis.reshape(y.shape)).reshape(len(x), m, -1)
