"""Transforms to waves and back along a long axis, by FFT; ``core/bases.py`` says which waves.

Rows are ``(before, length, after)``, real and of double precision; the axis in the middle turns.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

Field = Float[Tensor, "p n q"]


def to_waves(kind: str, v: Field) -> Field:
    """Coefficients of orthonormal waves."""
    n = v.shape[1]
    if kind == "cosine":
        # The even samples, then the odd ones backwards: their transform has the cosines in it.
        v = torch.cat([v[:, 0::2], v[:, 1::2].flip(1)], 1)
        turned = torch.fft.fft(v, dim=1) * _quarter_turns(v).conj()
        return turned.real * _cosine_lengths(v)
    if kind == "sine":
        return _sines(v)
    turned = torch.fft.rfft(v, dim=1) * math.sqrt(2 / n)
    # 0, then cosine and sine of 1, 2, ...; the sine of the highest frequency of an even n is none.
    pairs = torch.stack([turned.real, -turned.imag], 2).flatten(1, 2)
    found = torch.cat([pairs[:, :1], pairs[:, 2 : n + 1]], 1)
    return found * _fourier_lengths(v)


def from_waves(kind: str, c: Field) -> Field:
    """The inverse."""
    n = c.shape[1]
    if kind == "cosine":
        c = c / _cosine_lengths(c)
        mirrored = torch.cat([torch.zeros_like(c[:, :1]), c[:, 1:].flip(1)], 1)
        turned = torch.complex(c, -mirrored) * _quarter_turns(c)
        v = torch.fft.ifft(turned, dim=1).real
        half = (n + 1) // 2
        found = torch.empty_like(c)
        found[:, 0::2], found[:, 1::2] = v[:, :half], v[:, half:].flip(1)
        return found
    if kind == "sine":
        return _sines(c)
    c = c / _fourier_lengths(c)
    zero = torch.zeros_like(c[:, :1])
    pairs = torch.cat([c[:, :1], zero, c[:, 1:], *([zero] if n % 2 == 0 else [])], 1)
    real, imaginary = pairs.unflatten(1, (-1, 2)).unbind(2)
    return torch.fft.irfft(torch.complex(real, -imaginary) * math.sqrt(n / 2), n=n, dim=1)


def _sines(v: Field) -> Field:
    """Its own inverse: the imaginary part of a transform of v and, after it, v mirrored."""
    n = v.shape[1]
    zero = torch.zeros_like(v[:, :1])
    odd = torch.cat([zero, v, zero, -v.flip(1)], 1)
    return -torch.fft.rfft(odd, dim=1).imag[:, 1 : n + 1] * math.sqrt(0.5 / (n + 1))


def _quarter_turns(v: Field) -> Tensor:
    n = v.shape[1]
    angle = math.pi / (2 * n) * torch.arange(n, dtype=v.dtype, device=v.device)
    return torch.polar(torch.ones_like(angle), angle)[:, None]


def _cosine_lengths(v: Field) -> Tensor:
    """Of the waves: the constant one is shorter."""
    n = v.shape[1]
    lengths = v.new_full((n, 1), math.sqrt(2 / n))
    lengths[0] *= math.sqrt(0.5)
    return lengths


def _fourier_lengths(v: Field) -> Tensor:
    """Those of the constant and, of an even n, of the highest frequency, over the others'."""
    n = v.shape[1]
    lengths = v.new_ones(n, 1)
    lengths[0] = math.sqrt(0.5)
    if n % 2 == 0:
        lengths[-1] = math.sqrt(0.5)
    return lengths
