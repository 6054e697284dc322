"""Whatever array people have, as a tensor of real numbers."""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deceptron.core.checks import check_rows
from deceptron.core.errors import ConfigError, ShapeError


def real_tensor(name: str, value: Any) -> Tensor:
    """A tensor as it is, any other array as a copy; what masked arrays and frames lack is NaN."""
    if not isinstance(value, Tensor):
        return torch.from_numpy(real_array(name, value))
    if value.is_complex() or value.dtype == torch.bool or value.is_quantized:
        hint = _COMPLEX if value.is_complex() else ""
        raise ConfigError(f"{name} must hold real numbers; got {value.dtype}{hint}")
    if value.is_nested or value.layout != torch.strided or value.is_meta:
        kind = "nested" if value.is_nested else f"{value.layout} on {value.device}"
        raise ConfigError(f"{name} must be a dense tensor that holds its numbers; it is {kind}")
    return value


def as_rows(name: str, value: Any, *, shape: tuple[int, ...] | None, like: Tensor | None) -> Tensor:
    """Rows of ``shape``, in the precision and on the device of ``like``, where those are known.

    One row alone may come without its first axis.
    """
    rows = real_tensor(name, value)
    if like is not None:
        if like.is_meta:
            raise ConfigError("pair must hold numbers; its weights are on the device 'meta'")
        rows = rows.to(like)
    elif not rows.is_floating_point() or not hasattr(value, "dtype"):
        # Python's numbers and integers have no precision to keep.
        rows = rows.to(torch.get_default_dtype())
    if shape is not None and tuple(rows.shape) == tuple(shape):
        rows = rows[None]
    if shape is not None and tuple(rows.shape[1:]) != tuple(shape):
        raise ShapeError(
            f"{name} must have rows of shape {tuple(shape)}, as the pair's data; "
            f"got shape {tuple(rows.shape)}{mistaken(tuple(rows.shape), tuple(shape))}"
        )
    return check_rows(name, rows)


def mistaken(got: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """The likely mistake if rows of ``shape`` were wanted; nothing if none comes to mind."""
    if got[:-1] == shape:
        return ": the rows seem to lie along the last axis; they must come first (transpose it)"
    if got[1:] and sorted(got[1:]) == sorted(shape):
        return ": the axes of a row are in another order"
    if got[1:] and math.prod(got[1:]) == math.prod(shape):
        return ": as many numbers a row, so reshape it"
    if len(got) == 2 and len(shape) == 1 and got[1] == shape[0] + 1:
        return ": one column too many; is it a date or a row number?"
    return ""


def rows_like(name: str, value: Any, x: Tensor) -> Tensor:
    """One row for each of the answers ``x``; a single one may come without its first axis."""
    rows = real_tensor(name, value).detach().to(x)
    rows = rows[None] if len(x) == 1 and rows.shape == x.shape[1:] else rows
    if rows.shape != x.shape:
        raise ShapeError(
            f"{name} must have the shape of the answers, {tuple(x.shape)}; got {tuple(rows.shape)}"
        )
    return rows


def rms(rows: Tensor) -> Tensor:
    """Root mean square of each row."""
    return rows.flatten(1).square().mean(1).sqrt()


def weight_of(pair: object) -> Tensor | None:
    """A weight of a module, for its precision and device; None if it has none."""
    if isinstance(pair, nn.Module):
        for weight in chain(pair.parameters(), pair.buffers()):
            if weight.is_floating_point():
                return weight
    return None


def real_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    """The same in NumPy, always a copy."""
    try:
        return _real_array(value)
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(
            f"{name} must be a number or an array of numbers; got {_words(value)}{_hint(value)}"
        ) from None


def _real_array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ma.MaskedArray):
        array = np.ma.filled(value.astype(np.float64), np.nan)
    elif hasattr(value, "iloc"):  # pandas
        if any(kind in "mM" for kind in _kinds(value)):  # it would make them nanoseconds
            raise TypeError
        array = value.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        array = np.asarray(value)
    if array.dtype.kind == "O" and value is not None:
        array = array.astype(np.float64)
    if array.dtype.kind not in "fiu":
        raise TypeError
    # Torch knows this machine's byte order only, and nothing wider than 64 bits.
    narrow = np.float64 if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    return np.array(array, dtype=narrow, order="C")


_COMPLEX = ": give real and imaginary parts as separate components"


def _kinds(frame: Any) -> list[str]:
    dtypes = frame.dtypes if hasattr(frame, "columns") else [frame.dtype]
    return [getattr(dtype, "kind", "O") for dtype in dtypes]


def _hint(value: Any) -> str:
    """What to do about a value that is no array of numbers, where that is clear."""
    if hasattr(value, "columns") and hasattr(value, "iloc"):
        return f": these columns are no numbers: {reprlib.repr(_wordy(value))}"
    if isinstance(value, Mapping):
        return f": name one of its arrays, {reprlib.repr(list(value))}"
    if isinstance(value, (str, os.PathLike)) and os.path.isfile(value):
        return ": load the file first, for example with numpy.load"
    if getattr(getattr(value, "dtype", None), "kind", "") == "c":
        return _COMPLEX
    return ""


def _wordy(frame: Any) -> list[Any]:
    found = []
    for place, name in enumerate(frame.columns):
        try:
            _real_array(frame.iloc[:, place])
        except (TypeError, ValueError, RuntimeError):
            found.append(name)
    return found


def _words(value: Any) -> str:
    if hasattr(value, "columns") and hasattr(value, "iloc"):
        return f"a table of {value.shape[0]} rows and {value.shape[1]} columns"
    kind, dtype = type(value).__name__, getattr(value, "dtype", None)
    return reprlib.repr(value) if dtype is None else f"{kind} of {dtype}"


@contextmanager
def no_autocast() -> Iterator[None]:
    """Half precision, switched on for a network around us, is not for a solver's differences."""
    with ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
