"""Sensors that do not agree with all others of their row."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from deceptron.core.arrays import as_rows, no_autocast
from deceptron.core.bases import DiagonalGaussian
from deceptron.core.checks import check_range
from deceptron.core.errors import ConfigError
from deceptron.core.filling import surprise
from deceptron.core.protocols import Pair
from deceptron.solve.known import Known
from deceptron.solve.noise import noise_rows

# Rows, and numbers in them, that are looked at together: torch sorts no more than 2**24.
ROWS, NUMBERS = 256, 2**22
# What so many of the sensors of a row stay below, and what that is of normal ones.
ORDINARY, NORMAL = 0.95, 1.96
# Share of the largest distance of a row from which on sensors are left out together, so many that
# no more passes than this are needed.
ALIKE, PASSES = 0.7, 8


@no_autocast()
def outliers(
    pair: Pair, y: Any, *, noise_std: Any = None, limit: float = 6.0, most: float = 0.05
) -> Bool[Tensor, "B *y"]:
    """Which sensors of each row are wrong, as far as the other sensors can tell::

        y = y.clone()
        y[dc.outliers(pair, y)] = float("nan")
        solution = dc.solve(pair, y, forward=problem)

    Each sensor is predicted from all others of its row, by the covariance of the training data. The
    worst beyond the limit count as wrong, and the others are looked at again without them. No
    simulation and no network is asked.

    A row of which more than a few sensors disagree is left alone: it is unlike the training data as
    a whole, which ``dc.trust`` tells, and its sensors may be right. In a row that is noisier than
    stated, wrong sensors must stand out from that noise.

    Args:
        pair: with a calibration, as ``dc.train`` and ``dc.load`` give it.
        y: observations, one a row, physical units; NaN is a missing sensor.
        noise_std: as ``dc.solve`` takes it; by default that of training.
        limit: distance from the prediction, in standard deviations of it.
        most: share of the sensors of a row that may be wrong, at least one.

    Returns:
        A mask of the shape of y.
    """
    check_range("limit", limit, low=0.0, open_low=True)
    check_range("most", most, low=0.0, high=1.0)
    known = Known.of(pair)
    family, usual = known.calibration.observations, known.calibration.noise_std
    if family is None or usual is None:
        raise ConfigError(
            "outliers needs a calibrated pair, as dc.train, dc.recalibrate and dc.load give it"
        )
    y = as_rows("y", y, shape=known.y_shape, like=known.like).detach()
    noise = noise_rows(usual if noise_std is None else noise_std, y, known.scaler)
    if noise is None:
        raise ConfigError("outliers(noise_std=...) must be > 0; got 0")
    target = known.scaler.normalise(y).to(y).flatten(1)
    found = target.isinf()
    target = torch.where(found, torch.nan, target)
    allowed = max(1, int(most * target.shape[1]))
    together = max(1, min(ROWS, NUMBERS // target.shape[1]))
    for rows in torch.arange(len(y), device=y.device).split(together):
        own = noise if len(noise) == 1 else noise[rows]
        found[rows] |= _wrong(family, target[rows], own, limit, allowed)
    return found.reshape(y.shape)


def _wrong(
    family: DiagonalGaussian,
    target: Float[Tensor, "B m"],
    noise: Float[Tensor, "#B m"],
    limit: float,
    allowed: int,
) -> Bool[Tensor, "B m"]:
    missing = target.isnan() | noise.isinf()
    found, far = torch.zeros_like(missing), torch.zeros_like(target, dtype=torch.float64)
    usual, together = far[:, 0].clone(), max(1, allowed // PASSES)
    rows = torch.arange(len(target), device=target.device)
    while len(rows):
        own = noise if len(noise) == 1 else noise[rows]
        without = missing[rows] | found[rows]
        distance = surprise(family, target[rows], without, own).abs()
        ordinary = torch.where(without, torch.nan, distance).nanquantile(ORDINARY, dim=1)
        usual[rows] = ordinary.nan_to_num(0.0) / NORMAL
        # A few about as far as the worst go with it; what is nearer may be so because of it.
        worst = distance.topk(together, dim=1).values
        least = torch.maximum(ALIKE * worst[:, :1], worst[:, -1:]).clamp_min(limit)
        beyond = (distance >= least) & (distance > limit)
        far[rows] = torch.where(beyond, distance, far[rows])
        found[rows] |= beyond
        going = beyond.any(1)
        too_many = found[rows].sum(1) > allowed
        found[rows[too_many]] = False
        rows = rows[going & ~too_many]
    # Noisier than stated, or full of steps that no covariance foresees: a row has its own unit.
    return found & (far > limit * usual.clamp_min(1.0)[:, None])
