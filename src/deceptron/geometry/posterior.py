"""Error bars from the learned gain: two jvps a draw, calibrated once on data with known answers.

A draw is ``x + k (s xi - G (s J xi + eta))``: its covariance is ``k^2 P`` with P the Joseph form of
``noise_aware.py``, which is positive whatever g is, for the prior covariance ``s^2 C``. ``s^2`` is
the pair's ``prior_share``: a family that is far from Gaussian varies less about an answer than C,
its covariance at large, says. k is the product of

- the calibration's ``interval_factor``; both numbers are fitted on validation data;
- ``max(1, misfit)`` of the row, the misfit being its residual over the noise level: where the data
  are not explained, the model that P comes from is wrong by at least that much (the Birge ratio). A
  residual has no limit and an error has: if the truth is one of the family it lies about the
  family's mean, so no bar is widened beyond ``(C_ii + (x_i - mean_i)^2)^(1/2)``.

All rows share the random numbers xi and eta: the bars of a row are the same alone and in a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from deceptron.core import Bounds, ConfigError, Pair, Scaler, ShapeError
from deceptron.core.arrays import rms
from deceptron.core.checks import check_count, check_pair, check_range, check_rows
from deceptron.core.pieces import rows_at_a_time
from deceptron.core.protocols import RowMap
from deceptron.geometry.noise_aware import (
    Covariance,
    gain_errors,
    gap_errors,
    normalised_noise,
)
from deceptron.geometry.trust import into_box
from deceptron.laws.calibration import calibration_of

LEVEL = 0.9
SAMPLES = 32
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
# Rows whose draws are held at a time when only their spread is wanted.
ROWS = 64
# Numbers of double precision that are filled at a time.
FILLED = 2**22


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior:
    """The spread of the answers ``x`` to observations with noise; nothing is drawn until asked.

    Args:
        pair: maps f and g; its ``calibration``, ``bounds`` and ``scaler`` are used if it has them.
            Without the first the next two are 1, and nothing is calibrated.
        x: the answers, one a row.
        prior: covariance of the latents, for example ``problem.prior``.
        noise_std: of the measurements, physical units; with ``noise_rows``, one row for each of x.
        misfit: RMS residual of each row over its noise level, if known.
        forward: replaces ``pair.f`` under J: latents to physical units, for example the simulator.
        bounds: box of the latents, by default the pair's.
        factor: what draws are multiplied by, by default as the pair is calibrated.
        prior_share: part of the prior's covariance that counts, likewise.
    """

    pair: Pair
    x: Float[Tensor, "B *x"]
    prior: Covariance
    noise_std: float | Tensor
    noise_rows: bool = False
    misfit: Float[Tensor, " B"] | None = None
    forward: RowMap | None = None
    bounds: Bounds | None = None
    factor: float | None = None
    prior_share: float | None = None

    def __post_init__(self) -> None:
        check_pair(self.pair)
        check_rows("x", self.x)
        if self.misfit is not None and self.misfit.shape != self.x.shape[:1]:
            raise ShapeError(
                f"misfit must have one entry for each of the {len(self.x)} rows of x; "
                f"got shape {tuple(self.misfit.shape)}"
            )

    @classmethod
    def one_shot(
        cls, pair: Pair, y: Float[Tensor, "B *y"], *, prior: Covariance, noise_std: float | Tensor
    ) -> Posterior:
        """About the answers g(y) in the box, their misfits included; y in physical units."""
        check_rows("y", y)
        scaler = getattr(pair, "scaler", None) or Scaler()
        noise = normalised_noise(pair, noise_std, tuple(y.shape[1:])).to(y)
        level = torch.hypot(noise, noise.new_tensor(calibration_of(pair).surrogate_error))
        answers, misfits = [], []
        with torch.no_grad():
            for rows in y.split(rows_at_a_time(y)):
                target = scaler.normalise(rows).to(y)
                x = into_box(pair.g(target), getattr(pair, "bounds", None))
                answers.append(x)
                misfits.append(rms((pair.f(x) - target) / level))
        return cls(
            pair=pair,
            x=torch.cat(answers),
            prior=prior,
            noise_std=noise_std,
            misfit=torch.cat(misfits),
        )

    def at(self, rows: Int[Tensor, " k"]) -> Posterior:
        """Of these rows; a draw is the same for them as among all."""
        noise = self.noise_std
        return replace(
            self,
            x=self.x[rows],
            noise_std=noise[rows] if self.noise_rows and isinstance(noise, Tensor) else noise,
            misfit=None if self.misfit is None else self.misfit[rows],
        )

    @property
    def scaling(self) -> float:
        """``factor`` as given, else as the pair has it, else 1."""
        if self.factor is not None:
            return self.factor
        return calibration_of(self.pair).interval_factor or 1.0

    @property
    def share(self) -> float:
        """``prior_share`` as given, else as the pair has it, else 1."""
        if self.prior_share is not None:
            return self.prior_share
        return calibration_of(self.pair).prior_share or 1.0

    def sample(
        self, samples: int = SAMPLES, *, generator: Generator | None = None
    ) -> Float[Tensor, "S B *x"]:
        """Draws about each row, clipped to the box."""
        seed = _seed(generator)
        deviations = torch.cat(list(self._deviations(samples, seed)))
        rows = self._rows_with_gaps()
        if len(rows):
            # Of another seed: the two parts have nothing to do with each other.
            deviations[rows] += torch.cat(list(self.at(rows)._gap_deviations(samples, seed + 1)))
        return self._clip(self.x + deviations.transpose(0, 1))

    def std(
        self, samples: int = SAMPLES, *, generator: Generator | None = None
    ) -> Float[Tensor, "B *x"]:
        """Standard deviation of each component, before clipping, from so many draws.

        Without a generator they are always the same, those of ``calibrate`` and ``dc.solve``.
        """
        complete = self.complete_std(samples, generator=generator)
        return torch.hypot(complete, self.gap_std(samples, generator=generator))

    def complete_std(
        self, samples: int = SAMPLES, *, generator: Generator | None = None
    ) -> Float[Tensor, "B *x"]:
        """The part that is there when no sensor is missing, or its value is known exactly."""
        return _std(self._deviations(samples, _seed(generator or Generator().manual_seed(0))))

    def gap_std(
        self, samples: int = SAMPLES, *, generator: Generator | None = None
    ) -> Float[Tensor, "B *x"]:
        """The part of missing sensors: what they show can only be told from the others."""
        found = torch.zeros_like(self.x)
        rows = self._rows_with_gaps()
        if len(rows):
            seed = _seed(generator or Generator().manual_seed(1))
            found[rows] = _std(self.at(rows)._gap_deviations(samples, seed))
        return found

    def interval(
        self,
        level: float = LEVEL,
        *,
        samples: int = SAMPLES,
        generator: Generator | None = None,
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        """Lower and upper ends, component by component, clipped to the box.

        Calibrated at the level 0.9; other levels scale it as a normal law would.
        """
        return self.ends(self.std(samples, generator=generator), level, samples=samples)

    def ends(
        self, std: Float[Tensor, "B *x"], level: float, *, samples: int
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        """Those of ``interval``, given what ``std`` found by so many draws."""
        half = quantile(level, samples) * std
        return self._clip(self.x - half), self._clip(self.x + half)

    def _deviations(self, samples: int, seed: int) -> Iterator[Float[Tensor, "b S *x"]]:
        check_count("samples", samples)
        prior = _Tempered(self.prior, check_range("prior_share", self.share, low=0.0, high=1.0))
        noise = self._noise_without_gaps()
        own = self.noise_rows and len(noise) == len(self.x)
        for first in range(0, len(self.x), ROWS):
            rows = slice(first, first + ROWS)
            x = self.x[rows]
            errors = gain_errors(
                self.pair,
                x,
                prior=prior,
                noise_std=noise[rows] if own else noise,
                probes=samples,
                generator=Generator().manual_seed(seed),
                forward=self.forward,
                common=True,
            )
            errors = errors * self.scaling
            if self.misfit is not None:
                spread = errors.square().mean(1).sqrt()
                misfit = self.misfit[rows].to(x).reshape(-1, *(1,) * (x.ndim - 1))
                wide = widened(spread, misfit * spread, widest(self.prior, x))
                errors = errors * (wide / spread.clamp_min(torch.finfo(x.dtype).tiny))[:, None]
            yield errors

    def _noise_without_gaps(self) -> Tensor:
        """Where the gaps have a part of their own, the other one is that of a complete row."""
        noise, known = torch.as_tensor(self.noise_std), calibration_of(self.pair)
        if known.observations is None or known.noise_std is None:
            return noise
        return torch.where(noise.isinf(), torch.as_tensor(known.noise_std).to(noise), noise)

    def _rows_with_gaps(self) -> Int[Tensor, " k"]:
        noise = torch.as_tensor(self.noise_std)
        if calibration_of(self.pair).observations is None or not bool(noise.isinf().any()):
            return torch.zeros(0, dtype=torch.int64, device=self.x.device)
        if not self.noise_rows:
            return torch.arange(len(self.x), device=self.x.device)
        gaps = noise.isinf().flatten(1)
        # Without any sensor there is no answer to be unsure of.
        some = gaps.any(1) & ~gaps.all(1)
        return some.expand(len(self.x)).nonzero().flatten().to(self.x.device)

    def _gap_deviations(self, samples: int, seed: int) -> Iterator[Float[Tensor, "b S *x"]]:
        observations = calibration_of(self.pair).observations
        assert observations is not None
        noise = torch.as_tensor(self.noise_std)
        own = self.noise_rows and len(noise) == len(self.x)
        # All draws of a row are filled together.
        step = max(1, min(ROWS, FILLED // (samples * noise[:1].numel())))
        for first in range(0, len(self.x), step):
            rows = slice(first, first + step)
            yield gap_errors(
                self.pair,
                self.x[rows],
                observations=observations,
                noise_std=noise[rows] if own else noise,
                probes=samples,
                generator=Generator().manual_seed(seed),
            )

    def _clip(self, x: Tensor) -> Tensor:
        bounds = getattr(self.pair, "bounds", None) if self.bounds is None else self.bounds
        rows = into_box(x.reshape(-1, *self.x.shape[1:]), bounds)
        return rows.reshape(x.shape)


@dataclass(frozen=True)
class _Tempered:
    """``share * C``."""

    prior: Covariance
    share: float

    @property
    def variance(self) -> Tensor:
        return self.share * self.prior.variance

    def sqrt(self, v: Tensor) -> Tensor:
        return self.share**0.5 * self.prior.sqrt(v)


def widest(prior: Covariance, x: Float[Tensor, "B *x"]) -> Float[Tensor, "B *x"]:
    """Root mean square distance of answers from a truth of the family about which nothing else is
    known; without limit where the prior does not say what its mean is.
    """
    mean = getattr(prior, "mean", None)
    if mean is None:
        return torch.full_like(x, torch.inf)
    return torch.hypot(x - mean.to(x), prior.variance.to(x).sqrt())


def widened(
    std: Float[Tensor, "*B"], wide: Float[Tensor, "*B"], most: Float[Tensor, "*B"]
) -> Float[Tensor, "*B"]:
    """Bars made ``wide`` by what they do not explain, never below ``std`` nor, by that, beyond
    ``most``.
    """
    return torch.maximum(std, torch.minimum(wide, most))


def fit_prior_share(
    posterior: Posterior,
    truth: Float[Tensor, "B *x"],
    *,
    samples: int = SAMPLES,
    generator: Generator | None = None,
) -> float:
    """The share among ``SHARES`` under which the errors are likeliest, their scale left open.

    By Jensen's inequality ``mean(log std) + log mean(|e| / std)`` is least, for any law of the
    errors, where std follows their true spread up to a constant; that one is fitted later.
    """
    error = _error(posterior, truth)
    prior_part = replace(posterior, prior_share=1.0, noise_std=0.0).std(
        samples, generator=generator
    )
    noise_part = replace(posterior, prior_share=0.0).std(samples, generator=generator)

    def surprise(share: float) -> float:
        std = torch.hypot(share**0.5 * prior_part, noise_part).double()
        return float(std.log().mean() + (error / std).mean().log())

    return min(SHARES, key=surprise)


def fit_interval_factor(
    posterior: Posterior,
    truth: Float[Tensor, "B *x"],
    *,
    samples: int = SAMPLES,
    generator: Generator | None = None,
) -> float:
    """What to multiply the bars by so that 90% of the components of ``truth`` lie within them.

    Conformal risk control: the components of a row depend on each other, so rows are what is
    counted. The score of a component is what the factor must be for its interval to hold the truth,
    times the quantile that ``interval`` uses: ``|truth - x| / std`` where nothing is widened. The
    ceil(0.9 (N + 1) n)-th smallest of N rows of n components decides. For observations drawn as
    these were, the intervals of a fresh row then hold at least 90% of its components on average,
    for any N from 9 on. It says nothing about other observations.
    """
    half = quantile(LEVEL, samples)
    error = _error(posterior, truth)
    std = replace(posterior, misfit=None).std(samples, generator=generator) / posterior.scaling
    scores = error / std
    if posterior.misfit is not None:
        # Widening brings a bar as far as its limit; beyond, the factor alone must.
        misfit = posterior.misfit.to(std).clamp_min(1.0).reshape(-1, *(1,) * (std.ndim - 1))
        within = error <= half * widest(posterior.prior, posterior.x)
        scores = torch.where(within, scores / misfit, scores)
    factor = conformal(scores) / half
    if not 0 < factor < math.inf:
        raise ConfigError(
            "truth cannot be calibrated against: the 90% quantile of |truth - x| / std must be "
            f"positive and finite; got {factor}"
        )
    return factor


def _error(posterior: Posterior, truth: Tensor) -> Float[Tensor, "B *x"]:
    check_rows("truth", truth, tuple(posterior.x.shape[1:]))
    if len(truth) != len(posterior.x):
        raise ShapeError(f"truth must have as many rows as x, {len(posterior.x)}; got {len(truth)}")
    return (truth - posterior.x).abs()


def conformal(scores: Float[Tensor, "N *x"]) -> float:
    """The ceil(0.9 (N + 1) n)-th smallest score of N rows of n components."""
    # No error without spread is a score of 0, not NaN.
    flat = scores.flatten().nan_to_num(nan=0.0, posinf=torch.inf)
    rank = math.ceil(LEVEL * (len(scores) + 1) * scores[0].numel())
    return float(flat.kthvalue(min(rank, flat.numel())).values)


def _std(parts: Iterator[Float[Tensor, "b S *x"]]) -> Float[Tensor, "B *x"]:
    return torch.cat([part.square().mean(1).sqrt() for part in parts])


def _seed(generator: Generator | None) -> int:
    """Draws are made anew for every piece of the rows: a seed lets them be the same."""
    device = None if generator is None else generator.device
    return int(torch.randint(2**62, (), generator=generator, device=device))


def quantile(level: float, samples: int) -> float:
    """Half-width in standard deviations; Student's, since these come from so many draws."""
    check_range("level", level, low=0.0, high=1.0, open_low=True, open_high=True)
    from scipy.special import stdtrit  # not at the top: it would slow every import of the library

    return float(stdtrit(check_count("samples", samples), 0.5 + level / 2))
