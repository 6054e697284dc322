"""Closed-form linear maps small enough to ship: principal components, or one gain per wavenumber.

A dense ridge gain between fields of 32 x 32 holds a million numbers. Both maps here also return
their input as they see it without noise, which is what a network behind them wants to look at.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import ShapeError
from deceptron.core.bases import leading
from deceptron.core.checks import check_count
from deceptron.maps.network import Network, check_pairs, check_shape, register

# Relative jitter that keeps covariances of noise-free data invertible.
_JITTER = 1e-7
# Of the RMS noise, where a component has none.
_LEAST_SHARE = 1e-3
# Components up to which the whole covariance is decomposed.
_LARGEST_DENSE = 2048


class LinearPart(Network):
    """``estimate(x)`` returns the linear prediction and the denoised input; rows alone to call.

    ``ratio``, a number for each row or one for all, is the noise over that of the fit: what is
    kept suffices for the best estimate at any other noise.
    """

    @abstractmethod
    def estimate(
        self, x: Tensor, ratio: Float[Tensor, " #B"] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Prediction of the output and of the noise-free input, in their shapes."""

    def forward(self, x: Float[Tensor, "B *n"]) -> Float[Tensor, "B *m"]:
        """The prediction alone."""
        self.check_rows(x)
        return self.estimate(x)[0]


@register("low-rank")
class LowRank(LinearPart):
    """Ridge regression on the ``rank`` principal components of the noise-weighted input.

    With ``z = V' (x - mean) / weight``, of variances s without noise and s + l with it (``weight``
    is the noise over its RMS, l the square of that), the prediction is
    ``mean_out + gain (z / sqrt(s + l))`` and the denoised input
    ``mean + weight V (s / (s + l) z)``. Made by ``LowRank.fit``.
    """

    mean_in: Tensor
    mean_out: Tensor
    basis: Tensor
    weight: Tensor
    variance: Tensor
    noise: Tensor
    gain: Tensor

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], rank: int) -> None:
        super().__init__()
        self.in_shape = check_shape("LowRank(in_shape=...)", in_shape)
        self.out_shape = check_shape("LowRank(out_shape=...)", out_shape)
        self.rank = check_count("LowRank(rank=...)", rank)
        n, m = math.prod(self.in_shape), math.prod(self.out_shape)
        self.register_buffer("mean_in", torch.zeros(n))
        self.register_buffer("mean_out", torch.zeros(m))
        self.register_buffer("weight", torch.ones(n))
        self.register_buffer("basis", torch.zeros(n, rank))
        self.register_buffer("variance", torch.ones(rank))
        self.register_buffer("noise", torch.ones(()))
        self.register_buffer("gain", torch.zeros(m, rank))

    @classmethod
    def fit(
        cls,
        x: Float[Tensor, "N *n"],
        y: Float[Tensor, "N *m"],
        *,
        noise_std: float | Tensor = 0.0,
        rank: int = 64,
    ) -> LowRank:
        """Predict ``y`` from ``x`` seen with this noise (a number, or one for each component)."""
        check_pairs(cls.__name__, x, y)
        a, b = (rows.flatten(1).to(torch.float64, copy=True) for rows in (x, y))
        rank = min(check_count("rank", rank), a.shape[1], len(a))
        noise = torch.as_tensor(noise_std, dtype=a.dtype, device=a.device)
        noise = noise.broadcast_to(x.shape[1:]).reshape(-1)
        # Without noise every component counts alike; beside noisy ones an exact one counts much.
        exact = not bool((noise > 0).any())
        noise = torch.where(noise > 0, noise, _LEAST_SHARE * noise.square().mean().sqrt())
        weight = torch.ones_like(noise) if exact else noise / noise.square().mean().sqrt()
        mean_in, mean_out = a.mean(0), b.mean(0)
        # In place: at 128 x 128 each copy is a few hundred megabytes.
        a.sub_(mean_in).div_(weight)
        b.sub_(mean_out)
        if a.shape[1] <= _LARGEST_DENSE:
            variance, basis = torch.linalg.eigh(a.T @ a / len(a))
            variance, basis = variance[-rank:].flip(0).clamp_min(0), basis[:, -rank:].flip(1)
        else:
            variance, basis = leading(a, rank)
            variance = variance / len(a)
        level = noise.square().mean() if not exact else variance[0] * _JITTER
        level = level.clamp_min(torch.finfo(x.dtype).tiny)
        part = cls(x.shape[1:], y.shape[1:], rank).to(dtype=x.dtype, device=x.device)
        part.mean_in.copy_(mean_in)
        part.mean_out.copy_(mean_out)
        part.weight.copy_(weight)
        part.basis.copy_(basis)
        part.variance.copy_(variance)
        part.noise.copy_(level)
        part.gain.copy_((b.T @ (a @ basis) / len(a)) / (variance + level).sqrt())
        return part

    def signal_share(self, ratio: Float[Tensor, " #B"] | None = None) -> Float[Tensor, "*B rank"]:
        """Share of signal in the variance of each component."""
        return self.variance / self._total(ratio)

    def coefficients(
        self, x: Tensor, ratio: Float[Tensor, " #B"] | None = None
    ) -> Float[Tensor, "B rank"]:
        """Principal components of the noisy input, each of unit variance."""
        z = ((x.reshape(len(x), -1) - self.mean_in) / self.weight) @ self.basis
        return z / self._total(ratio).sqrt()

    def estimate(
        self, x: Tensor, ratio: Float[Tensor, " #B"] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Prediction of the output and of the noise-free input, in their shapes."""
        z, total = self.coefficients(x, ratio), self._total(ratio)
        # The gain is for components of unit variance at the noise of the fit.
        gained = z if ratio is None else z * (self._total() / total).sqrt()
        y = torch.addmm(self.mean_out, gained, self.gain.T)
        shrunk = z * self.signal_share(ratio) * total.sqrt()
        clean = self.mean_in + self.weight * (shrunk @ self.basis.T)
        return y.reshape(len(x), *self.out_shape), clean.reshape(x.shape)

    def _total(self, ratio: Float[Tensor, " #B"] | None = None) -> Float[Tensor, "*B rank"]:
        """Variance of each component, noise included."""
        if ratio is None:
            return self.variance + self.noise
        return self.variance + self.noise * ratio.square().unsqueeze(-1)


@register("spectral-gain")
class SpectralGain(LinearPart):
    """Ridge regression for stationary fields on a periodic grid: a small matrix per wavenumber.

    Shapes are ``(channels, *grid)``. The means are one number a channel, so the map commutes with
    translations. Made by ``SpectralGain.fit``.
    """

    mean_in: Tensor
    mean_out: Tensor
    gain: Tensor
    filter: Tensor

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int]) -> None:
        super().__init__()
        self.in_shape = check_shape("SpectralGain(in_shape=...)", in_shape)
        self.out_shape = check_shape("SpectralGain(out_shape=...)", out_shape)
        self.grid = self.in_shape[1:]
        if not self.grid or self.out_shape[1:] != self.grid:
            raise ShapeError(
                "SpectralGain(in_shape=..., out_shape=...) must be (channels, *grid) on one grid; "
                f"got {self.in_shape} and {self.out_shape}"
            )
        n, m = self.in_shape[0], self.out_shape[0]
        ones = (1,) * len(self.grid)
        modes = (*self.grid[:-1], self.grid[-1] // 2 + 1)
        self.register_buffer("mean_in", torch.zeros(n, *ones))
        self.register_buffer("mean_out", torch.zeros(m, *ones))
        # Complex numbers as pairs: safetensors and .to(dtype) treat them like all others.
        self.register_buffer("gain", torch.zeros(*modes, m, n, 2))
        self.register_buffer("filter", torch.zeros(*modes, n, n, 2))

    @classmethod
    def fit(
        cls,
        x: Float[Tensor, "N *n"],
        y: Float[Tensor, "N *m"],
        *,
        noise_std: float | Tensor = 0.0,
    ) -> SpectralGain:
        """Predict ``y`` from ``x`` seen with white noise of this size (its mean square counts)."""
        check_pairs(cls.__name__, x, y)
        part = cls(x.shape[1:], y.shape[1:]).to(dtype=x.dtype, device=x.device)
        axes = tuple(range(2, x.ndim))
        a, b = x.double(), y.double()
        mean_in, mean_out = a.mean((0, *axes)), b.mean((0, *axes))
        part.mean_in.copy_(mean_in.reshape(part.mean_in.shape))
        part.mean_out.copy_(mean_out.reshape(part.mean_out.shape))
        a = torch.fft.rfftn(a - part.mean_in.double(), dim=axes, norm="ortho").movedim(1, -1)
        b = torch.fft.rfftn(b - part.mean_out.double(), dim=axes, norm="ortho").movedim(1, -1)
        covariance = torch.einsum("r...i,r...j->...ij", a, a.conj()) / len(a)
        cross = torch.einsum("r...i,r...j->...ij", b, a.conj()) / len(a)
        trace = covariance.diagonal(dim1=-2, dim2=-1).real.sum(-1).max()
        noise = torch.as_tensor(noise_std, dtype=torch.float64, device=x.device)
        level = torch.maximum(noise.square().mean(), trace * _JITTER**2)
        identity = torch.eye(x.shape[1], dtype=a.dtype, device=x.device)
        inverse = torch.linalg.inv(covariance + level * identity)
        part.gain.copy_(torch.view_as_real(cross @ inverse))
        part.filter.copy_(torch.view_as_real(covariance @ inverse))
        return part

    def estimate(
        self, x: Tensor, ratio: Float[Tensor, " #B"] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Prediction of the output and of the noise-free input, in their shapes."""
        axes = tuple(range(-len(self.grid), 0))
        modes = torch.fft.rfftn(x - self.mean_in, dim=axes).movedim(1, -1).unsqueeze(-1)
        if ratio is not None:
            # With F = C (C + l)^-1 kept, (C + l) (C + r^2 l)^-1 = (I + (r^2 - 1) (I - F))^-1.
            kept = torch.view_as_complex(self.filter)
            identity = torch.eye(len(self.mean_in), dtype=kept.dtype, device=kept.device)
            more = (ratio.square() - 1).reshape(-1, *(1,) * kept.ndim)
            modes = torch.linalg.solve(identity + more * (identity - kept), modes)

        def apply(matrix: Tensor) -> Tensor:
            product = (torch.view_as_complex(matrix) @ modes).squeeze(-1).movedim(-1, 1)
            return torch.fft.irfftn(product, s=self.grid, dim=axes)

        return self.mean_out + apply(self.gain), self.mean_in + apply(self.filter)
