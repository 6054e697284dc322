"""Gaussian summaries of the latent families: what a regularised solver may assume before data.

No family here is Gaussian (they are clipped, stretched or squashed), so a prior is its mean and
covariance. ``LowRankPrior`` is estimated from samples; ``SpectralPrior`` serves stationary
families on the torus, where the covariance is diagonal in Fourier space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from deceptron.core.bases import leading
from deceptron.core.checks import check_count, check_rows
from deceptron.core.errors import ConfigError
from deceptron.problems.fields import BLOCK, draw_in_blocks, spectrum_variance

# Directions the family never takes keep this share of the mean variance: the covariance stays
# invertible, and a solver may still leave the span of the samples a little.
FLOOR = 1e-6
# Components beyond which principal directions are found at random: at 16384 the full decomposition
# of the samples takes minutes and gigabytes.
LARGEST_DENSE = 2048


class Prior(ABC):
    """N(mean, C), acting on rows of any dtype and device.

    Attributes:
        mean: of the latents.
        kind: what the covariance C rests on, in words.
    """

    mean: Float[Tensor, "*x"]
    kind: str

    def apply(self, v: Float[Tensor, "B *x"]) -> Float[Tensor, "B *x"]:
        """``C v``."""
        return self._power(check_rows("v", v, tuple(self.mean.shape)), 1.0)

    def sqrt(self, v: Float[Tensor, "B *x"]) -> Float[Tensor, "B *x"]:
        """``C^(1/2) v`` with the symmetric root, where x has no units."""
        return self._power(check_rows("v", v, tuple(self.mean.shape)), 0.5)

    def solve(self, v: Float[Tensor, "B *x"]) -> Float[Tensor, "B *x"]:
        """``C^-1 v``."""
        return self._power(check_rows("v", v, tuple(self.mean.shape)), -1.0)

    def whiten(self, v: Float[Tensor, "B *x"]) -> Float[Tensor, "B *x"]:
        """``C^(-1/2) v``."""
        return self._power(check_rows("v", v, tuple(self.mean.shape)), -0.5)

    def sample(
        self, count: int, *, generator: Generator, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "count *x"]:
        """Draw from N(mean, C); a row does not depend on the rows after it."""
        check_count("count", count)
        shape = tuple(self.mean.shape)

        def draw(block: Generator) -> Tensor:
            white = torch.randn(BLOCK, *shape, dtype=torch.float64, generator=block)
            return self.mean.cpu() + self.sqrt(white)

        rows = draw_in_blocks(count, generator, draw)
        return rows.to(dtype or torch.get_default_dtype())

    @property
    @abstractmethod
    def variance(self) -> Float[Tensor, "*x"]:
        """Diagonal of C: the variance of each component."""

    @abstractmethod
    def _power(self, v: Tensor, power: float) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class LowRankPrior(Prior):
    """``C = U diag(variances) U' + floor (I - U U')``, the columns of U orthonormal.

    Attributes:
        basis: U, a column for each principal direction.
        variances: along them.
        floor: the variance of every other direction.
    """

    mean: Float[Tensor, "*x"]
    basis: Float[Tensor, "n r"]
    variances: Float[Tensor, " r"]
    floor: float
    kind: str = "low rank + isotropic rest, estimated from samples"

    @classmethod
    def estimate(cls, samples: Float[Tensor, "S *x"], *, rank: int = 256) -> LowRankPrior:
        """Principal directions of ``samples``; the rest of the variance is spread evenly."""
        check_rows("samples", samples)
        if samples.shape[0] < 2:
            raise ConfigError("samples must have at least 2 rows to estimate a covariance; got 1")
        rows = samples.to(torch.float64).flatten(1)
        count, n = rows.shape
        mean = rows.mean(0)
        centred = rows - mean
        centred /= (count - 1) ** 0.5
        rank = min(rank, n, count - 1)
        total = centred.square().sum()
        if n <= LARGEST_DENSE:
            _, values, vectors = torch.linalg.svd(centred, full_matrices=False)
            variances, vectors = values[:rank].square(), vectors[:rank].T.contiguous()
        else:
            variances, vectors = leading(centred, rank)
        rest = float(total - variances.sum()) / max(n - rank, 1)
        floor = max(rest, FLOOR * float(total) / n)
        if floor <= 0:
            raise ConfigError("samples must differ from each other; all rows are equal")
        return cls(
            mean.reshape(samples.shape[1:]),
            vectors,
            variances.clamp_min(floor),
            floor,
        )

    @property
    def variance(self) -> Float[Tensor, "*x"]:
        """Diagonal of C: the variance of each component."""
        inside = self.basis.square() @ (self.variances - self.floor)
        return (self.floor + inside).reshape(self.mean.shape)

    def _power(self, v: Tensor, power: float) -> Tensor:
        # In float64: for negative powers two terms of size floor**power cancel inside the span.
        basis, variances = self.basis.to(v.device), self.variances.to(v.device)
        flat = v.flatten(1).to(basis.dtype)
        base = self.floor**power
        inside = (flat @ basis) * (variances**power - base)
        return (base * flat + inside @ basis.mT).reshape(v.shape).to(v.dtype)


@dataclass(frozen=True, eq=False)
class PriorInUnits(Prior):
    """``C = S C_z S``: estimated without units, so that the small ones are not lost in the floor.

    Attributes:
        without: the prior of latents without units.
        scale: S, the units.
    """

    mean: Float[Tensor, "*x"]
    without: Prior
    scale: Float[Tensor, "*x"]

    @property
    def kind(self) -> str:  # type: ignore[override]
        """What the covariance rests on, in words."""
        return f"{self.without.kind}, without units"

    @property
    def variance(self) -> Float[Tensor, "*x"]:
        """Diagonal of C: the variance of each component."""
        return self.without.variance * self.scale.square()

    def _power(self, v: Tensor, power: float) -> Tensor:
        # S C S, S C^(1/2), and their inverses S^-1 C^-1 S^-1, C^(-1/2) S^-1.
        s = self.scale.to(v)
        if power > 0:
            return s * self.without._power(s * v if power == 1 else v, power)
        found = self.without._power(v / s, power)
        return found / s if power == -1 else found


@dataclass(frozen=True, eq=False)
class SpectralPrior(Prior):
    """Stationary on the torus: ``C = F^-1 diag(spectrum) F`` over the last two axes.

    Attributes:
        spectrum: the power of each wavenumber, in the layout of ``torch.fft.rfft2``.
    """

    mean: Float[Tensor, "*x"]
    spectrum: Float[Tensor, "n half"]
    kind: str = "stationary on the torus, spectrum estimated from samples"

    @classmethod
    def estimate(cls, samples: Float[Tensor, "S *x"]) -> SpectralPrior:
        """One constant mean and one power per wavenumber: every translate counts as a sample."""
        check_rows("samples", samples)
        rows = samples.to(torch.float64)
        mean = rows.mean()
        modes = torch.fft.rfft2(rows - mean, norm="ortho")
        power = modes.abs().square().flatten(0, -3).mean(0)
        # Every mode stays invertible.
        power = power.clamp_min(FLOOR * float(spectrum_variance(power)))
        return cls(mean.expand(samples.shape[1:]).clone(), power)

    @property
    def variance(self) -> Float[Tensor, "*x"]:
        """Diagonal of C: the variance of each component, the same for all."""
        return spectrum_variance(self.spectrum).expand(self.mean.shape)

    def _power(self, v: Tensor, power: float) -> Tensor:
        gain = self.spectrum.to(v) ** power
        return torch.fft.irfft2(torch.fft.rfft2(v) * gain, s=v.shape[-2:])
