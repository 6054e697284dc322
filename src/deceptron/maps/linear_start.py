"""A network that starts as the best linear map and learns only what that leaves over."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import ConfigError, ShapeError
from deceptron.core.bases import on_axis
from deceptron.core.checks import check_range
from deceptron.maps.linear_part import LinearPart, LowRank
from deceptron.maps.network import Network, as_network, register

# Share of the spread of the data below which what varies is round-off.
_ROUND_OFF = 1e-6


@register("linear-start")
class LinearStart(Network):
    """``linear(x) + scale * body(features)``; a body that starts at zero starts at ``linear``.

    For fields the features are x, its denoised self, the linear prediction, the denoised self's
    differences along every axis and (unless ``periodic``) the coordinates; for a body that takes
    vectors, the principal components of x. ``linear`` and ``body`` are networks, or their kind
    and config as a checkpoint holds them. ``LinearStart.fit_scales`` sets the units.

    With ``noise_range = (low, high)`` the map is conditioned on the noise of its input: the linear
    part is the best one at that noise, and the body is given its logarithm as one more feature.
    The range is in units of ``noise_level``, the RMS noise of the fit; ``noise_ratio`` in the same
    units is what rows are taken to have when nothing is said.
    """

    scale: Tensor
    feature_mean: Tensor
    feature_scale: Tensor

    def __init__(
        self,
        linear: LinearPart | Mapping[str, Any],
        body: Network | Mapping[str, Any],
        *,
        periodic: bool = False,
        noise_range: Sequence[float] | None = None,
        noise_level: float = 1.0,
        noise_ratio: float = 1.0,
    ) -> None:
        super().__init__()
        self.noise_range = None if noise_range is None else check_noise_range(noise_range)
        if self.noise_range is not None:
            check_range("LinearStart(noise_level=...)", noise_level, low=0.0, open_low=True)
        self.noise_level, self.noise_ratio = noise_level, noise_ratio
        self.linear = cast(LinearPart, as_network(linear))
        self.body = as_network(body)
        self.periodic = periodic
        self.in_shape, self.out_shape = self.linear.in_shape, self.linear.out_shape
        self._fields = len(self.body.in_shape) > 1
        count = self.feature_count(self.linear, periodic=periodic, fields=self._fields)
        wanted, given = count + (self.noise_range is not None), self.body.in_shape[0]
        if given != wanted:
            raise ShapeError(f"LinearStart(body=...) must take {wanted} features; it takes {given}")
        if not self._fields and not isinstance(self.linear, LowRank):
            raise ShapeError("LinearStart(body=...) that takes vectors needs a LowRank linear part")
        ones = (1,) * (len(self.body.in_shape) - 1)
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("feature_mean", torch.zeros(count, *ones))
        self.register_buffer("feature_scale", torch.ones(count, *ones))

    @staticmethod
    def feature_count(linear: LinearPart, *, periodic: bool, fields: bool = True) -> int:
        """How many channels (or, for vectors, components) the body is given beside the noise."""
        if not fields:
            return cast(LowRank, linear).rank
        axes = len(linear.in_shape) - 1
        return (2 + axes) * linear.in_shape[0] + linear.out_shape[0] + (0 if periodic else axes)

    @torch.no_grad()
    def fit_scales(self, x: Float[Tensor, "N *n"], y: Float[Tensor, "N *m"]) -> LinearStart:
        """Unit variance for the features of fields, and for what the linear part leaves of y."""
        features, base = self._features(x, self._ratio(x, None))
        if self._fields:
            axes = tuple(a for a in range(features.ndim) if a != 1)
            spread, mean = torch.std_mean(features, dim=axes, keepdim=True)
            self.feature_mean.copy_(mean[0])
            # In the order of the features: x, x, y, differences of x, coordinates.
            own, out = _spread(x, axes), _spread(y, axes)
            units = torch.cat([own, own, out, *[own] * (x.ndim - 2)])
            units = torch.cat([units, units.new_ones(len(spread[0]) - len(units))])
            least = _ROUND_OFF * units.reshape(spread[0].shape)
            self.feature_scale.copy_(spread[0].maximum(least))
        least = _ROUND_OFF * _spread(y - y.mean(0), tuple(range(y.ndim)))
        self.scale.copy_((y - base).square().mean().sqrt().maximum(least))
        return self

    def forward(
        self, x: Float[Tensor, "B *n"], noise_ratio: Float[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B *m"]:
        """The linear prediction and its correction."""
        self.check_rows(x)
        ratio = self._ratio(x, noise_ratio)
        features, base = self._features(x, ratio)
        features = (features - self.feature_mean) / self.feature_scale
        if ratio is not None:
            features = torch.cat([features, self._noise_feature(ratio, features)], dim=1)
        return base + self.scale * self.body(features).reshape(base.shape)

    def at_noise(self, level: float) -> LinearStart:
        """This map, its weights shared, for inputs of this RMS noise; the nearest in its range."""
        if self.noise_range is None:
            return self
        low, high = self.noise_range
        bound = copy.copy(self)
        bound.noise_ratio = min(max(level / self.noise_level, low), high)
        return bound

    def _ratio(self, x: Tensor, given: Tensor | None) -> Float[Tensor, " #B"] | None:
        if self.noise_range is None:
            return None
        return x.new_full((1,), self.noise_ratio) if given is None else given

    def _noise_feature(self, ratio: Tensor, like: Tensor) -> Tensor:
        """Its logarithm, -1 to 1 over the range, constant over a row."""
        assert self.noise_range is not None
        low, high = (math.log(side) for side in self.noise_range)
        level = (2 * ratio.log() - low - high) / (high - low)
        shape = (len(like), 1, *like.shape[2:])
        return level.reshape(-1, *(1,) * (like.ndim - 1)).expand(shape)

    def _features(self, x: Tensor, ratio: Tensor | None) -> tuple[Tensor, Tensor]:
        base, clean = self.linear.estimate(x, ratio)
        if not self._fields:
            part = cast(LowRank, self.linear)
            # Components that are mostly noise come in small: a network cannot learn from them.
            return part.coefficients(x, ratio) * part.signal_share(ratio), base
        parts = [x, clean, base, *_differences(clean, circular=self.periodic)]
        if not self.periodic:
            parts += _coordinates(x)
        return torch.cat(parts, dim=1), base


def check_noise_range(given: object) -> tuple[float, float]:
    """``(low, high)`` in units of the training noise, which must lie between them."""
    sides = tuple(given) if isinstance(given, (tuple, list)) else ()
    numbers = all(isinstance(side, (int, float)) for side in sides)
    if len(sides) != 2 or not numbers or not 0 < sides[0] <= 1 <= sides[1] < math.inf:
        raise ConfigError(
            f"noise_range must be (low, high) with 0 < low <= 1 <= high; got {given!r}"
        )
    if sides[0] == sides[1]:
        raise ConfigError(f"noise_range must hold more than one level; got {given!r}")
    return float(sides[0]), float(sides[1])


def _spread(rows: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Standard deviation over these axes; 1 of what does not vary."""
    spread = rows.std(axes, correction=0)
    return torch.where(spread > 0, spread, 1.0)


def _differences(h: Tensor, *, circular: bool) -> list[Tensor]:
    """Half the difference of both neighbours along every axis."""
    found = []
    for axis in range(2, h.ndim):
        n = h.shape[axis]
        first, last = h.narrow(axis, 0, 1), h.narrow(axis, n - 1, 1)
        ends = (last, first) if circular else (first, last)
        before = torch.cat([ends[0], h.narrow(axis, 0, n - 1)], dim=axis)
        after = torch.cat([h.narrow(axis, 1, n - 1), ends[1]], dim=axis)
        found.append(0.5 * (after - before))
    return found


def _coordinates(x: Tensor) -> list[Tensor]:
    shape = (len(x), 1, *x.shape[2:])
    found = []
    for axis in range(2, x.ndim):
        points = torch.linspace(-1, 1, x.shape[axis], dtype=x.dtype, device=x.device)
        found.append(on_axis(points, axis, x.ndim).expand(shape))
    return found
