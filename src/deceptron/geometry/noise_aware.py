"""The reverse map as a regularised inverse: what its gain leaves of prior directions under noise.

With ``J = J_f(x)``, ``G = J_g(f(x))``, latents of covariance C and measurement noise of covariance
S, a latent displacement xi seen through noise eta comes back with the error ::

    e = xi - G (J xi + eta),   cov(e) = P = (I - G J) C (I - G J)' + G S G'

P (the Joseph form) is positive for any G. Its trace is least for ``G* = C J' (J C J' + S)^-1``, the
gain of regularised Gauss-Newton, where it is that of the posterior covariance. C = I, S = 0 gives
the published penalty. Noise is stated in physical units, as for ``dc.solve``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import ConfigError, Pair, Scaler, ShapeError
from deceptron.core.bases import DiagonalGaussian
from deceptron.core.checks import check_count, check_pair, check_rows
from deceptron.core.differentiate import jacobian_of_row, jvp
from deceptron.core.filling import filled
from deceptron.core.pieces import rows_at_a_time
from deceptron.core.protocols import RowMap
from deceptron.core.units import UnitlessCovariance, UnitlessForward
from deceptron.geometry.jcp import draw_probes

# Columns of a Jacobian that are made at a time.
CHUNK = 256
# To which gaps of draws are filled: bars need no more.
GAP_TOLERANCE = 0.01


@runtime_checkable
class Covariance(Protocol):
    """What is asked of a prior here; ``problem.prior`` has it."""

    @property
    def variance(self) -> Float[Tensor, "*x"]:
        """Diagonal of C."""
        ...

    def sqrt(self, v: Float[Tensor, "B *x"]) -> Float[Tensor, "B *x"]:
        """``C^(1/2) v``."""
        ...


def noise_aware_rjcp(
    pair: Pair,
    x: Float[Tensor, "B *x"],
    *,
    prior: Covariance,
    noise_std: float | Tensor,
    probes: int = 4,
    generator: torch.Generator | None = None,
    forward: RowMap | None = None,
) -> Float[Tensor, " B"]:
    """``E |G (J xi + eta) - xi|^2 / E |xi|^2`` for each row, without a graph; g = 0 scores 1.

    ``forward`` replaces ``pair.f`` under J: latents to physical units, for example the simulator.
    """
    if (units := getattr(pair, "units", None)) is not None:
        pair, x = pair.unitless, units.reduced(x)  # type: ignore[attr-defined]
        prior = UnitlessCovariance(prior, units)  # type: ignore[arg-type]
        forward = None if forward is None else UnitlessForward(forward, units, None)
    errors = gain_errors(
        pair,
        x,
        prior=prior,
        noise_std=noise_std,
        probes=probes,
        generator=generator,
        forward=forward,
    )
    return errors.flatten(1).square().mean(1) / prior.variance.mean().to(x)


def gain_errors(
    pair: Pair,
    x: Float[Tensor, "B *x"],
    *,
    prior: Covariance,
    noise_std: float | Tensor,
    probes: int,
    generator: torch.Generator | None = None,
    forward: RowMap | None = None,
    common: bool = False,
) -> Float[Tensor, "B k *x"]:
    """Draws of ``e = xi - G (J xi + eta)``, of covariance P; two jvps each, no graph.

    With ``common`` all rows have the same xi and eta, so that a row does not depend on its place.
    The noise may have a row for each of x; where it is infinite nothing is seen.
    """
    f = _forward(pair, x, forward)
    check_count("probes", probes)
    with torch.no_grad():
        y_shape = tuple(f(x[:1]).shape[1:])
        noise = normalised_noise(pair, noise_std, y_shape).to(x)
        xi, eta = _draw(x, prior, noise, probes, generator, common=common)
        points = x.repeat_interleave(probes, dim=0)
        most = rows_at_a_time(xi, eta)
        parts = zip(*(t.split(most) for t in (points, xi, eta)), strict=True)
        errors = [some - _gain(pair, f, rows, some, white) for rows, some, white in parts]
    return torch.cat(errors).reshape(len(x), probes, *x.shape[1:])


def gap_errors(
    pair: Pair,
    x: Float[Tensor, "B *x"],
    *,
    observations: DiagonalGaussian,
    noise_std: float | Tensor,
    probes: int,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "B k *x"]:
    """Draws of what filled gaps cost: ``G (v - v^)``, v data of the family (normalised units) and
    v^ the same as the other sensors tell it. The noise is infinite at a gap.
    """
    with torch.no_grad():
        y = pair.f(x)
        noise = normalised_noise(pair, noise_std, tuple(y.shape[1:])).to(y.device)
        noise = noise.expand(len(x), *noise.shape[1:]).flatten(1)
        white = draw_probes(
            x.new_empty(1, 2 * noise.shape[1]), probes=probes, kind="normal", generator=generator
        )[0]
        seen, eta = white.double().chunk(2, dim=1)
        seen = observations.sqrt(seen.reshape(probes, *y.shape[1:])).flatten(1).repeat(len(x), 1)
        noise = noise.repeat_interleave(probes, dim=0)
        missing = noise.isinf()
        told = seen + torch.where(missing, 0.0, noise) * eta.repeat(len(x), 1)
        centred = replace(observations, mean=torch.zeros_like(observations.mean))
        off = seen - filled(centred, told, missing, noise, tolerance=GAP_TOLERANCE)
        off = torch.where(missing, off, 0.0).to(y).reshape(-1, *y.shape[1:])
        points = y.repeat_interleave(probes, dim=0)
        most = rows_at_a_time(points)
        pieces = zip(points.split(most), off.split(most), strict=True)
        errors = torch.cat([jvp(pair.g, point, gap)[1] for point, gap in pieces])
    return errors.reshape(len(x), probes, *x.shape[1:])


def optimal_gain(
    pair: Pair,
    x: Float[Tensor, "B *x"],
    *,
    prior: Covariance,
    noise_std: float | Tensor,
    forward: RowMap | None = None,
) -> Float[Tensor, "B n m"]:
    """``G* = C J' (J C J' + S)^-1`` of each row, dense and in float64: n jvps a row.

    It acts on flat normalised measurements. The noise must be positive.
    """
    f = _forward(pair, x, forward)
    n = x[0].numel()
    identity = torch.eye(n, dtype=torch.float64, device=x.device)
    root = prior.sqrt(identity.reshape(n, *x.shape[1:])).reshape(n, n)
    with torch.no_grad():
        y_shape = tuple(f(x[:1]).shape[1:])
    noise = normalised_noise(pair, noise_std, y_shape).double().flatten()
    if not bool((noise > 0).all()):
        raise ConfigError(f"noise_std must be > 0 for an optimal gain; got {noise_std}")
    gains = []
    for row in x.split(1):
        # With A = S^(-1/2) J C^(1/2), G* = C^(1/2) (A'A + I)^-1 A' S^(-1/2).
        whitened = (jacobian_of_row(f, row, CHUNK) / noise[:, None]) @ root
        factor = torch.linalg.cholesky(whitened.T @ whitened + identity)
        gains.append(root @ torch.cholesky_solve(whitened.T, factor) / noise)
    return torch.stack(gains)


def gain_distance(
    pair: Pair,
    x: Float[Tensor, "B *x"],
    *,
    prior: Covariance,
    noise_std: float | Tensor,
    probes: int = 16,
    generator: torch.Generator | None = None,
    forward: RowMap | None = None,
    best: Float[Tensor, "B n m"] | None = None,
) -> Float[Tensor, " B"]:
    """How far the learned gain is from the best one, ``E |(G - G*) v|^2 / E |G* v|^2``.

    ``v = J xi + eta`` is what a displacement drawn from the prior looks like through noise. Zero
    is perfect, g = 0 scores 1. Forms the Jacobian of each row: for studies, not for streams.
    ``best`` is what ``optimal_gain`` returned, for those who compare many g with one f.
    """
    f = _forward(pair, x, forward)
    if best is None:
        best = optimal_gain(pair, x, prior=prior, noise_std=noise_std, forward=forward)
    distances = []
    with torch.no_grad():
        y_shape = tuple(f(x[:1]).shape[1:])
        noise = normalised_noise(pair, noise_std, y_shape).to(x)
        xi, eta = _draw(x, prior, noise, probes, generator)
        draws = zip(x.split(1), xi.split(probes), eta.split(probes), best, strict=True)
        for row, some, white, gain in draws:
            points = row.repeat_interleave(probes, dim=0)
            y, pushed = jvp(f, points, some)
            seen = pushed + white
            _, learned = jvp(pair.g, y, seen)
            wanted = seen.flatten(1).double() @ gain.T
            error = (learned.flatten(1).double() - wanted).square().sum()
            distances.append(error / wanted.square().sum())
    return torch.stack(distances).to(x)


def normalised_noise(
    pair: object, noise_std: float | Tensor, y_shape: tuple[int, ...]
) -> Float[Tensor, "#B *y"]:
    """The noise in the units that the pair's maps work in: one row for all of y, or one each."""
    level = torch.as_tensor(noise_std, dtype=torch.float64)
    if not bool((level >= 0).all()):
        raise ConfigError(f"noise_std must be >= 0; got {noise_std}")
    scaler = getattr(pair, "scaler", None) or Scaler()
    try:
        if level.ndim > len(y_shape):
            return level.to(scaler.scale.device).broadcast_to(-1, *y_shape) / scaler.scale
        return scaler.noise(level, y_shape)[None]
    except RuntimeError:
        raise ShapeError(
            f"noise_std must broadcast to one row of y, shape {y_shape}; got {tuple(level.shape)}"
        ) from None


def _forward(pair: Pair, x: Tensor, forward: RowMap | None) -> RowMap:
    check_pair(pair)
    check_rows("x", x)
    if forward is None:
        return pair.f
    scaler = getattr(pair, "scaler", None) or Scaler()
    return lambda rows: scaler.normalise(forward(rows)).to(rows)


def _draw(
    x: Tensor,
    prior: Covariance,
    noise: Tensor,
    probes: int,
    generator: torch.Generator | None,
    *,
    common: bool = False,
) -> tuple[Float[Tensor, "Bk *x"], Float[Tensor, "Bk *y"]]:
    """Displacements and noise of each row side by side: appended rows leave the others alone."""
    n, m = x[0].numel(), noise[0].numel()
    both = x.new_empty(1 if common else len(x), n + m)
    white = draw_probes(both, probes=probes, kind="normal", generator=generator).flatten(0, 1)
    xi = prior.sqrt(white[:, :n].reshape(-1, *x.shape[1:]))
    eta = white[:, n:].reshape(-1, *noise.shape[1:])
    if common:
        xi, eta = (part.repeat(len(x), *(1,) * (part.ndim - 1)) for part in (xi, eta))
    if len(noise) > 1:
        noise = noise.repeat_interleave(probes, dim=0)
    # Where nothing is seen the product with zero is NaN, which _gain leaves out.
    return xi, noise * eta


def _gain(pair: Pair, f: RowMap, x: Tensor, xi: Tensor, eta: Tensor) -> Tensor:
    """``G (J xi + eta)``."""
    y, pushed = jvp(f, x, xi)
    seen = pushed + eta
    recovered, gained = jvp(pair.g, y, torch.where(seen.isfinite(), seen, 0.0))
    if recovered.shape != x.shape:
        raise ShapeError(
            f"pair.g must return rows of x's shape {tuple(x.shape[1:])}; "
            f"got {tuple(recovered.shape[1:])}"
        )
    return gained
