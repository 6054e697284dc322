"""How wide the error bars of answers that are left at their start must be, by validation rows."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from deceptron.geometry import Posterior, fit_interval_factor, fit_prior_share
from deceptron.geometry.bars import Maps
from deceptron.laws.calibration import Calibration
from deceptron.maps import Deceptron

# A quarter of the rows chooses the prior's share, the others the factor.
SHARE_OF_ROWS, SHARE_SAMPLES = 0.25, 8


def fit_start_bars(pair: Deceptron, x: Tensor, y: Tensor) -> Calibration:
    """Bars about g(y) in the box, and about the linear estimate where answers start there."""
    known = pair.calibration
    if known.family is None or known.noise_std is None:
        return known
    share, factor = _fit_bars(pair, x, y)
    found = replace(known, prior_share=share, interval_factor=factor)
    if known.start == "wiener" and pair.wiener is not None:
        linear = Maps(pair.f, pair.wiener, pair.scaler, pair.bounds, known)
        share, factor = _fit_bars(linear, x, y)
        found = replace(found, linear_share=share, linear_factor=factor)
    return found


def _fit_bars(pair: Deceptron | Maps, x: Tensor, y: Tensor) -> tuple[float, float]:
    """The prior's share and the factor of bars about ``pair.g(y)``."""
    family, noise_std = pair.calibration.family, pair.calibration.noise_std
    assert family is not None
    assert noise_std is not None
    few = max(1, int(SHARE_OF_ROWS * len(x)))

    def bars(rows: slice) -> Posterior:
        return Posterior.one_shot(pair, y[rows], prior=family, noise_std=noise_std)

    first, others = slice(None, few), slice(few, None)
    share = fit_prior_share(bars(first), x[first], samples=SHARE_SAMPLES)
    factor = fit_interval_factor(replace(bars(others), prior_share=share), x[others])
    return share, factor
