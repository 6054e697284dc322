"""Does an observation look like what the pair was trained on? Round trips and a distance tell.

For observations like the training data, the answer ``x = g(y)`` explains y up to noise, and g
finds it again from ``f(x)``. Where either fails the maps have been taken outside of what they
learned. Maps that have learned little come back from nowhere, though, and data in wrong units that
are next to nothing are explained by an ordinary x. So y itself is compared with the training data,
by their mean and covariance: it may lie too far from the mean, or too close to it to be one of
them. All signs are compared, as logarithms, with their mean and spread on validation data, and the
worst one counts. No shifted data enter the limits.

An answer can be wrong without any trace in the data: structure that the simulator smooths away
below the noise is invisible to every test of this kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from deceptron.core import Bounds, Box, ConfigError, Pair
from deceptron.core.arrays import as_rows, no_autocast, rms, weight_of
from deceptron.core.checks import check_pair
from deceptron.core.pieces import rows_at_a_time
from deceptron.core.scaler import Scaler
from deceptron.core.trust import FALSE_ALARMS, Trust
from deceptron.laws.calibration import Calibration, TrustLimits, calibration_of

_TRIPS = ("round_trip", "latent_round_trip")
# Of the variance of the data along a coordinate, what noise may add to it.
NEXT_TO_NOTHING = 0.01


@no_autocast()
def trust(pair: Pair, y: Any) -> Trust:
    """Whether each observation looks like what the pair was trained on, by two round trips and by
    its distance from the training data.

    Costs one pass of f and two of g a row. ``solution.trust`` is the same for the observations of a
    solve, and fills in missing sensors first; here a row that is not finite is flagged with an
    infinite score.

    Args:
        pair: with a calibration, as ``dc.train`` and ``dc.load`` give it.
        y: observations, one a row, physical units: a tensor or any array.
    """
    return judged(getattr(pair, "unitless", pair), y)


def judged(pair: Pair, y: Any, gappy: Bool[Tensor, " B"] | None = None) -> Trust:
    """``trust`` of rows some of which, ``gappy``, have had missing sensors filled in.

    What was filled in is what is likeliest, closer to the mean than data are: such rows are never
    too close to it.
    """
    limits = calibration_of(pair).trust
    if limits is None:
        raise ConfigError(
            "trust(pair=...) must have been calibrated: see deceptron.train.calibrate"
        )
    found = _signs(pair, y)
    parts = {name: value for name, value in found.items() if name in limits.parts}
    scores, names = _scores(parts, limits), list(parts)
    if gappy is not None and "faint" in names:
        column = names.index("faint")
        scores[:, column] = torch.where(gappy, -torch.inf, scores[:, column])
    score, index = scores.max(1)
    return Trust(score, score > 1, parts, [names[k] for k in index.tolist()])


def fit_trust(
    pair: Pair, y: Float[Tensor, "B *y"], learned: TrustLimits | None = None
) -> TrustLimits:
    """Limits from observations that are to be trusted; 5% of them are flagged.

    ``learned`` are limits of the data that the pair was trained on. If the round trips of most of
    these observations lie beyond them, they stay: what a pair has not learned is not familiar
    because there is a lot of it.
    """
    parts = _signs(pair, y)
    if learned is not None:
        trips = {name: value for name, value in parts.items() if name in _TRIPS}
        if float(_scores(trips, learned).amax(1).median()) > 1:
            return TrustLimits({name: learned.parts[name] for name in trips}, learned.limit)
    found = {}
    for name, value in parts.items():
        logs = _logs(value)
        if len(logs) < 2 or not bool(logs.isfinite().all()):
            raise ConfigError(f"fit_trust(y=...) needs two or more finite rows; {name} is not")
        spread = float(logs.std().clamp_min(1e-3))
        found[name] = (float(logs.mean()), spread)
    worst = _standardised(parts, found).max(1).values.sort().values
    # A new row is above the k-th of n with probability (n + 1 - k) / (n + 1).
    n = len(worst)
    place = math.ceil((1 - FALSE_ALARMS) * (n + 1))
    # One standard deviation at least: rows that are all alike must not make a limit of zero.
    limit = max(1.0, float(worst[min(n, place) - 1]))
    if place > n:
        from scipy.special import stdtrit  # not at the top: it would slow every import

        # No row of so few is that rare. Their own centre and spread flatter them; for a new row of
        # a normal law these are off by as much as Student's t says, each sign having its share.
        rare = float(stdtrit(n - 1, 1 - FALSE_ALARMS / len(found)))
        limit = max(limit, rare * math.sqrt(1 + 1 / n))
    return TrustLimits(found, limit)


def round_trips(pair: Pair, y: Float[Tensor, "B *y"]) -> dict[str, Float[Tensor, " B"]]:
    """RMS of ``f(g(y)) - y``, normalised units, and of ``g(f(x)) - x``, x being g(y) in the box."""
    check_pair(pair)
    y = as_rows("y", y, shape=getattr(pair, "y_shape", None), like=weight_of(pair))
    scaler = getattr(pair, "scaler", None)
    bounds: Bounds | None = getattr(pair, "bounds", None)
    parts: dict[str, list[Tensor]] = {name: [] for name in _TRIPS}
    with torch.no_grad():
        for rows in y.split(rows_at_a_time(y)):
            target = rows if scaler is None else scaler.normalise(rows).to(rows)
            x = into_box(pair.g(target), bounds)
            back = pair.f(x)
            parts["round_trip"].append(rms(back - target))
            parts["latent_round_trip"].append(rms(pair.g(back) - x))
    return {name: torch.cat(values) for name, values in parts.items()}


def distances(
    known: Calibration, y: Float[Tensor, "B *y"], scaler: Scaler
) -> dict[str, Float[Tensor, " B"]]:
    """How far rows lie from the mean of the training data, and how close; none if those are not
    known.

    In the coordinates of their covariance, in units of what data and noise vary by there. How close
    is asked only along those where noise is next to nothing: a row with less noise than the
    training data is not too close. One over the distance and one, which is no larger than one: with
    a coordinate or two to go by, the mean is an ordinary place.
    """
    law, noise = known.observations, known.noise_std
    if law is None or noise is None:
        return {}
    std = scaler.noise(noise, tuple(law.mean.shape)).flatten().to(y.device)
    signal, noisy = law.spectrum.to(y.device), law.basis.variances(std.square())
    seen = noisy < NEXT_TO_NOTHING * signal
    parts: dict[str, list[Tensor]] = {"far": [], "faint": []}
    for rows in y.split(rows_at_a_time(y)):
        off = scaler.normalise(rows).double() - law.mean.to(y.device).double()
        square = law.basis.forward(off.flatten(1)).square() / (signal + noisy)
        parts["far"].append(square.mean(1).sqrt().to(y))
        parts["faint"].append(1 / (1 + square[:, seen].mean(1).sqrt().to(y)))
    if not bool(seen.any()):
        del parts["faint"]
    return {name: torch.cat(values) for name, values in parts.items()}


def _signs(pair: Pair, y: Any) -> dict[str, Float[Tensor, " B"]]:
    rows = as_rows("y", y, shape=getattr(pair, "y_shape", None), like=weight_of(pair))
    scaler = getattr(pair, "scaler", None)
    known = {} if scaler is None else distances(calibration_of(pair), rows, scaler)
    return round_trips(pair, rows) | known


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
