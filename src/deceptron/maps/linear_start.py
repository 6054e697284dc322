"""A network that starts as the best linear map and learns only what that leaves over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core import ShapeError
from deceptron.maps.linear_part import LinearPart, LowRank
from deceptron.maps.network import Network, build, register


@register("linear-start")
class LinearStart(Network):
    """``linear(x) + scale * body(features)``; a body that starts at zero starts at ``linear``.

    For fields the features are x, its denoised self, the linear prediction, the denoised self's
    differences along every axis and (unless ``periodic``) the coordinates; for a body that takes
    vectors, the principal components of x. ``linear`` and ``body`` are networks, or their kind
    and config as a checkpoint holds them. ``LinearStart.fit_scales`` sets the units.
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
    ) -> None:
        super().__init__()
        self.linear = cast(LinearPart, _network(linear))
        self.body = _network(body)
        self.periodic = periodic
        self.in_shape, self.out_shape = self.linear.in_shape, self.linear.out_shape
        self._fields = len(self.body.in_shape) > 1
        count = self.body.in_shape[0]
        wanted = self.feature_count(self.linear, periodic=periodic, fields=self._fields)
        if count != wanted:
            raise ShapeError(f"LinearStart(body=...) must take {wanted} features; it takes {count}")
        if not self._fields and not isinstance(self.linear, LowRank):
            raise ShapeError("LinearStart(body=...) that takes vectors needs a LowRank linear part")
        ones = (1,) * (len(self.body.in_shape) - 1)
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("feature_mean", torch.zeros(count, *ones))
        self.register_buffer("feature_scale", torch.ones(count, *ones))

    @staticmethod
    def feature_count(linear: LinearPart, *, periodic: bool, fields: bool = True) -> int:
        """How many channels (or, for vectors, components) the body is given."""
        if not fields:
            return cast(LowRank, linear).rank
        axes = len(linear.in_shape) - 1
        return (2 + axes) * linear.in_shape[0] + linear.out_shape[0] + (0 if periodic else axes)

    @torch.no_grad()
    def fit_scales(self, x: Float[Tensor, "N *n"], y: Float[Tensor, "N *m"]) -> LinearStart:
        """Unit variance for the features of fields, and for what the linear part leaves of y."""
        features, base = self._features(x)
        if self._fields:
            axes = tuple(a for a in range(features.ndim) if a != 1)
            spread, mean = torch.std_mean(features, dim=axes, keepdim=True)
            self.feature_mean.copy_(mean[0])
            self.feature_scale.copy_(spread[0].clamp_min(1e-6))
        self.scale.copy_((y - base).square().mean().sqrt().clamp_min(1e-6))
        return self

    def forward(self, x: Float[Tensor, "B *n"]) -> Float[Tensor, "B *m"]:
        """The linear prediction and its correction."""
        self.check_rows(x)
        features, base = self._features(x)
        correction = self.body((features - self.feature_mean) / self.feature_scale)
        return base + self.scale * correction.reshape(base.shape)

    def config(self) -> dict[str, Any]:
        """Constructor arguments, as JSON values."""
        parts = {"linear": self.linear, "body": self.body}
        described = {k: {"kind": n.kind, "config": n.config()} for k, n in parts.items()}
        return {**described, "periodic": self.periodic}

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        base, clean = self.linear.estimate(x)
        if not self._fields:
            part = cast(LowRank, self.linear)
            # Components that are mostly noise come in small: a network cannot learn from them.
            return part.coefficients(x) * part.signal_share, base
        parts = [x, clean, base, *_differences(clean, circular=self.periodic)]
        if not self.periodic:
            parts += _coordinates(x)
        return torch.cat(parts, dim=1), base


def _network(part: Network | Mapping[str, Any]) -> Network:
    return part if isinstance(part, Network) else build(part["kind"], part["config"])


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
        along = [1] * x.ndim
        along[axis] = -1
        found.append(points.reshape(along).expand(shape))
    return found
