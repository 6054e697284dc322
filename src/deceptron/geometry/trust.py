"""Does an observation look like what the pair was trained on? Two round trips tell.

For observations like the training data, the answer ``x = g(y)`` explains y up to noise, and g
finds it again from ``f(x)``. Where either fails the maps have been taken outside of what they
learned. Both are compared, as logarithms, with their mean and spread on validation data, and the
worse one counts. No shifted data enter the limits.

An answer can be wrong without any trace in the data: structure that the simulator smooths away
below the noise is invisible to every test of this kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import Bounds, Box, ConfigError, Pair
from deceptron.core.arrays import as_rows, weight_of
from deceptron.core.calibration import TrustLimits, calibration_of
from deceptron.core.checks import check_pair
from deceptron.core.pieces import rows_at_a_time
from deceptron.core.trust import FALSE_ALARMS, SIGNS, Trust


def trust(pair: Pair, y: Any) -> Trust:
    """Whether each observation looks like what the pair was trained on, by two round trips.

    Costs one pass of f and two of g a row. ``solution.trust`` is the same for the observations of a
    solve, and fills in missing sensors first; here a row that is not finite is flagged with an
    infinite score.

    Args:
        pair: with a calibration, as ``dc.train`` and ``dc.load`` give it.
        y: observations, one a row, physical units: a tensor or any array.
    """
    limits = calibration_of(pair).trust
    if limits is None:
        raise ConfigError(
            "trust(pair=...) must have been calibrated: see deceptron.train.calibrate"
        )
    parts = round_trips(pair, y)
    score, index = _scores(parts, limits).max(1)
    names = list(parts)
    return Trust(score, score > 1, parts, [names[k] for k in index.tolist()])


def fit_trust(
    pair: Pair, y: Float[Tensor, "B *y"], learned: TrustLimits | None = None
) -> TrustLimits:
    """Limits from observations that are to be trusted; 5% of them are flagged.

    ``learned`` are limits of the data that the pair was trained on. If most of these observations
    lie beyond them, they stay: what a pair has not learned is not familiar because there is a lot
    of it.
    """
    parts = round_trips(pair, y)
    if learned is not None and float(_scores(parts, learned).amax(1).median()) > 1:
        return learned
    found = {}
    for name, value in parts.items():
        logs = _logs(value)
        if len(logs) < 2 or not bool(logs.isfinite().all()):
            raise ConfigError(f"fit_trust(y=...) needs two or more finite rows; {name} is not")
        spread = float(logs.std().clamp_min(1e-3))
        found[name] = (float(logs.mean()), spread)
    worst = _standardised(parts, found).max(1).values
    # One standard deviation at least: rows that are all alike must not make a limit of zero.
    return TrustLimits(found, max(1.0, float(worst.quantile(1 - FALSE_ALARMS))))


def round_trips(pair: Pair, y: Float[Tensor, "B *y"]) -> dict[str, Float[Tensor, " B"]]:
    """RMS of ``f(g(y)) - y``, normalised units, and of ``g(f(x)) - x``, x being g(y) in the box."""
    check_pair(pair)
    y = as_rows("y", y, shape=getattr(pair, "y_shape", None), like=weight_of(pair))
    scaler = getattr(pair, "scaler", None)
    bounds: Bounds | None = getattr(pair, "bounds", None)
    parts: dict[str, list[Tensor]] = {name: [] for name in SIGNS}
    with torch.no_grad():
        for rows in y.split(rows_at_a_time(y)):
            target = rows if scaler is None else scaler.normalise(rows).to(rows)
            x = into_box(pair.g(target), bounds)
            back = pair.f(x)
            parts["round_trip"].append(_rms(back - target))
            parts["latent_round_trip"].append(_rms(pair.g(back) - x))
    return {name: torch.cat(values) for name, values in parts.items()}


def into_box(x: Float[Tensor, "B *x"], bounds: Bounds | None) -> Float[Tensor, "B *x"]:
    """Rows clipped to the bounds, if there are any."""
    if bounds is None:
        return x
    return Box.parse(bounds, tuple(x.shape[1:]), x).project(x.flatten(1)).reshape(x.shape)


def _scores(parts: Mapping[str, Tensor], limits: TrustLimits) -> Float[Tensor, "B parts"]:
    z = _standardised(parts, limits.parts) / limits.limit
    return torch.where(z.isfinite(), z, torch.inf)


def _standardised(
    parts: Mapping[str, Tensor], limits: Mapping[str, tuple[float, float]]
) -> Float[Tensor, "B parts"]:
    columns = [(_logs(value) - limits[name][0]) / limits[name][1] for name, value in parts.items()]
    return torch.stack(columns, dim=1)


def _logs(value: Tensor) -> Tensor:
    # A map that is exact misses by round-off, or by nothing.
    return value.clamp_min(torch.finfo(value.dtype).eps).log()


def _rms(rows: Tensor) -> Tensor:
    return rows.flatten(1).square().mean(1).sqrt()
