"""Orthonormal coordinates of latents in which covariances are diagonal: waves on a grid, or the
principal directions of a family.

Everything here is float64: the spectra it meets span ten decades.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.constants import constant
from deceptron.core.fast_waves import from_waves, to_waves

# An axis with fewer points is a list of components, not a grid.
SHORTEST_AXIS = 8
# Nothing in a spectrum counts as smaller than this share of its largest entry.
FLOOR = 1e-9
WAVES = ("sine", "cosine", "fourier")
# Longer axes are transformed by FFT: some hundred points are as fast by a matrix.
LONG = 256
# Directions beyond those asked for that make a randomised range finder sure of them.
OVERSAMPLING = 32


class Basis(Protocol):
    """An orthonormal change of coordinates on flat rows."""

    def forward(self, v: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
        """Coefficients of rows."""
        ...

    def back(self, c: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
        """Rows of coefficients."""
        ...

    def diagonal(self, spectra: Float[Tensor, "k n"]) -> Float[Tensor, "k n"]:
        """Diagonals of the covariances that have these variances in the basis."""
        ...

    def variances(self, noise: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Of the coefficients, where components vary independently by these variances."""
        ...


@dataclass(frozen=True, eq=False)
class GridBasis:
    """Products of waves, one kind an axis: sine (zero at the ends), cosine (flat there) or Fourier
    (periodic); an axis that is no grid, ``"none"``, keeps its components.
    """

    shape: tuple[int, ...]
    kinds: tuple[str, ...]

    @classmethod
    def fit(cls, rows: Float[Tensor, "N *x"]) -> GridBasis | None:
        """The waves in which samples are most concentrated; None if no axis is a grid.

        For each axis on its own: a Gaussian that is diagonal in a basis gives the samples the
        likelihood ``-0.5 sum(log variance)``, up to a constant that all orthonormal bases share.
        """
        shape = tuple(rows.shape[1:])
        if max(shape, default=0) < SHORTEST_AXIS:
            return None
        centred = rows.double() - rows.double().mean(0)
        kinds = []
        for axis, length in enumerate(shape):
            if length < SHORTEST_AXIS:
                kinds.append("none")
                continue
            lines = centred.movedim(axis + 1, -1).reshape(-1, length)

            def spread(kind: str, lines: Tensor = lines, length: int = length) -> float:
                power = (lines @ _waves(kind, length)[0].to(lines).T).square().mean(0)
                return float(power.clamp_min(FLOOR * float(power.max())).log().sum())

            kinds.append(min(WAVES, key=spread))
        return cls(shape, tuple(kinds))

    @cached_property
    def wavenumbers(self) -> Float[Tensor, " n"]:
        """Half wavelengths across the grid, as a length over the axes."""
        square = torch.zeros(self.shape, dtype=torch.float64)
        for axis, (kind, length) in enumerate(zip(self.kinds, self.shape, strict=True)):
            square = square + on_axis(_waves(kind, length)[1].square(), axis, len(self.shape))
        return square.sqrt().flatten()

    def forward(self, v: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
        """Coefficients of rows."""
        return self._turn(v, 1)

    def back(self, c: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
        """Rows of coefficients."""
        return self._turn(c, 0)

    def diagonal(self, spectra: Float[Tensor, "k n"]) -> Float[Tensor, "k n"]:
        """Diagonals of the covariances that have these variances: sums over squares of waves."""
        return self._turn(spectra, 0, squared=True)

    def variances(self, noise: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Of the coefficients, where components vary independently by these variances: a wave takes
        the mean along its axis, as its square nearly is everywhere.
        """
        rows = noise.double().reshape(self.shape)
        axes = [axis for axis, kind in enumerate(self.kinds) if kind != "none"]
        return rows.mean(axes, keepdim=True).expand(self.shape).flatten()

    def _turn(self, v: Tensor, contracted: int, *, squared: bool = False) -> Tensor:
        turned, after = v.double(), v.shape[-1]
        for kind, length in zip(self.kinds, self.shape, strict=True):
            after //= length
            if length > LONG and kind in WAVES and not squared:
                along = to_waves if contracted else from_waves
                turned = along(kind, turned.reshape(-1, length, after))
                continue
            waves = _waves(kind, length, turned.device)[0]
            waves = waves if contracted else waves.mT
            waves = waves.square() if squared else waves
            # A view with the axis second, so that no axis has to be moved. With nothing behind it
            # that is one product of matrices.
            if after == 1:
                turned = turned.reshape(-1, length) @ waves.mT
            else:
                turned = turned.reshape(-1, length, after)
                turned = waves.expand(len(turned), -1, -1) @ turned
        return turned.reshape(v.shape)


@dataclass(frozen=True, eq=False)
class EigenBasis:
    """Principal directions, rows of ``vectors``, completed to a basis in no particular order."""

    vectors: Float[Tensor, "k n"]

    @cached_property
    def _kept(self) -> dict[torch.device, Tensor]:
        """No field: what was worked out does not change what a basis is (``core/identity.py``)."""
        return {}

    def _complete(self, device: torch.device) -> Float[Tensor, "n n"]:
        if device not in self._kept:
            # What is kept must be of use to those who differentiate, too.
            with torch.inference_mode(False):
                k, n = self.vectors.shape
                vectors = self.vectors.double().T
                if k < n:
                    # The columns that QR adds span the complement of the first k.
                    full = torch.linalg.qr(vectors, mode="complete").Q
                    vectors = torch.cat([vectors, full[:, k:]], 1)
                self._kept[device] = vectors.to(device)
        return self._kept[device]

    def forward(self, v: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
        """Coefficients of rows."""
        return v.double() @ self._complete(v.device)

    def back(self, c: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
        """Rows of coefficients."""
        return c.double() @ self._complete(c.device).T

    def diagonal(self, spectra: Float[Tensor, "k n"]) -> Float[Tensor, "k n"]:
        """Diagonals of the covariances that have these variances."""
        return spectra.double() @ self._complete(spectra.device).square().T

    def variances(self, noise: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Of the coefficients, where components vary independently by these variances."""
        return noise.double() @ self._complete(noise.device).square()


@dataclass(frozen=True, eq=False)
class DiagonalGaussian:
    """N(mean, C) with C diagonal in a basis; a prior as ``dc.solve`` and error bars want it."""

    mean: Float[Tensor, "*x"]
    basis: Basis
    spectrum: Float[Tensor, " n"]

    def apply(self, v: Float[Tensor, "B *x"]) -> Float[Tensor, "B *x"]:
        """``C v``."""
        return self._power(v, 1.0)

    def sqrt(self, v: Float[Tensor, "B *x"]) -> Float[Tensor, "B *x"]:
        """``C^(1/2) v``."""
        return self._power(v, 0.5)

    def solve(self, v: Float[Tensor, "B *x"]) -> Float[Tensor, "B *x"]:
        """``C^-1 v``."""
        return self._power(v, -1.0)

    def log_likelihood(self, rows: Float[Tensor, "B *x"]) -> float:
        """Of these rows, their mean, up to a constant that all such laws share."""
        off = rows.flatten(1).double() - self.mean.to(rows.device).double().flatten()
        spectrum = self.spectrum.to(rows.device)
        square = (self.basis.forward(off).square() / spectrum).sum(1).mean()
        return -0.5 * float(square + spectrum.log().sum())

    @cached_property
    def variance(self) -> Float[Tensor, "*x"]:
        """Diagonal of C."""
        return self.basis.diagonal(self.spectrum[None])[0].reshape(self.mean.shape)

    def _power(self, v: Tensor, power: float) -> Tensor:
        c = self.basis.forward(v.reshape(len(v), -1)) * self.spectrum.to(v.device) ** power
        return self.basis.back(c).reshape(v.shape).to(v.dtype)


def on_axis(values: Float[Tensor, " n"], axis: int, axes: int) -> Float[Tensor, "..."]:
    """A vector laid along one of so many axes, to be broadcast over the others."""
    return values.reshape([-1 if place == axis else 1 for place in range(axes)])


def principal(rows: Float[Tensor, "N n"], kept: int) -> tuple[EigenBasis, Float[Tensor, " n"]]:
    """The ``kept`` principal directions of samples and the variances in their basis, the same in
    all directions beyond.
    """
    n = rows.shape[1]
    values, vectors = torch.linalg.eigh(torch.cov(rows.double().T).reshape(n, n))
    values, vectors = values.flip(0), vectors.flip(1)
    kept = min(kept, n)
    rest = values[kept:].mean() if kept < n else values[-1]
    spectrum = torch.cat([values[:kept], rest.expand(n - kept)])
    return EigenBasis(vectors[:, :kept].T.contiguous()), spectrum.clamp_min(
        FLOOR * float(spectrum[0])
    )


def leading(
    rows: Float[Tensor, "N n"], rank: int
) -> tuple[Float[Tensor, " r"], Float[Tensor, "n r"]]:
    """The largest eigenvalues of ``rows' rows`` and their vectors, without forming it.

    By a randomised range finder with two power iterations, seeded: the same rows give the same.
    """
    with torch.random.fork_rng(devices=[rows.device] if rows.device.type == "cuda" else []):
        torch.manual_seed(0)
        width = min(rank + OVERSAMPLING, *rows.shape)
        _, values, vectors = torch.svd_lowrank(rows, q=width, niter=2)
    return values[:rank].square(), vectors[:, :rank].contiguous()


@constant
def _waves(
    kind: str, length: int, device: torch.device | None = None
) -> tuple[Float[Tensor, "k n"], Float[Tensor, " k"]]:
    """Orthonormal waves as rows, and how many half wavelengths each has on the axis."""
    waves, halves = _made(kind, length)
    return waves.to(device=device), halves.to(device=device)


def _made(kind: str, length: int) -> tuple[Tensor, Tensor]:
    i = torch.arange(length, dtype=torch.float64)
    if kind == "none":
        return torch.eye(length, dtype=torch.float64), torch.zeros(length, dtype=torch.float64)
    if kind == "sine":
        waves = torch.sin(math.pi * (i + 1) * (i + 1)[:, None] / (length + 1))
        return waves * math.sqrt(2 / (length + 1)), i + 1
    if kind == "cosine":
        waves = torch.cos(math.pi * (i + 0.5) * i[:, None] / length) * math.sqrt(2 / length)
        waves[0] *= math.sqrt(0.5)
        return waves, i
    frequency = (i + 1) // 2  # 0, 1, 1, 2, 2, ...: cosine and sine of each
    angle = 2 * math.pi * frequency[:, None] * i / length
    waves = torch.where((i % 2 == 1)[:, None] | (i == 0)[:, None], angle.cos(), angle.sin())
    return waves / torch.linalg.vector_norm(waves, dim=1, keepdim=True), 2 * frequency


def as_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    """Kinds read from a file, checked."""
    known = (*WAVES, "none")
    if not all(kind in known for kind in kinds):
        raise ValueError(f"kinds of waves must be among {known}; got {list(kinds)}")
    return tuple(kinds)
