"""The learned pair that every solve is given: two maps, their units, their box and their names."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from deceptron.core import Bounds, Box, ConfigError, Scaler, ShapeError, html
from deceptron.core.arrays import real_tensor
from deceptron.core.box import sides
from deceptron.core.units import Units
from deceptron.laws.calibration import Calibration
from deceptron.maps.layouts import regridded
from deceptron.maps.network import check_shape
from deceptron.maps.regrid import regrid

# Of the noise levels that g is asked for, to a doubling: 2% each, hardly a difference to g, so that
# rows of about the same noise can share one.
LEVELS = 32


class Deceptron(nn.Module):
    """A forward surrogate ``pair.f(x)`` and a reverse map ``pair.g(y)``, any two modules.

    Both work in normalised measurement space, and, where the components of x have different units,
    with latents without units (``units``). ``dc.solve`` and all else that takes a pair and x
    translate.

    Attributes:
        f: the surrogate, latents to normalised measurements.
        g: the reverse map, normalised measurements to latents.
        scaler: leads from physical units to normalised ones; by default they are the same.
        units: of x, where f and g work without: ``pair.f(pair.units.reduced(x))``; None: they take
            x as it is.
        wiener: a linear estimate that the ``"wiener"`` method uses, or None.
        calibration: what the pair knows about itself: its noise, its errors, plausible corrections.
        x_shape: of one latent, if known; maps that know theirs (``in_shape``) state it.
        y_shape: of one observation, likewise.
        name: of its problem.
        provenance: any JSON worth keeping with the weights, which nothing reads back.
    """

    f: nn.Module
    g: nn.Module
    scaler: Scaler
    units: Units | None
    wiener: nn.Module | None
    calibration: Calibration

    def __init__(
        self,
        forward: nn.Module,
        reverse: nn.Module,
        *,
        scaler: Scaler | None = None,
        units: Units | None = None,
        bounds: Bounds | None = None,
        x_shape: Sequence[int] | None = None,
        y_shape: Sequence[int] | None = None,
        name: str | None = None,
        wiener: nn.Module | None = None,
        calibration: Calibration | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.f = _module("forward", forward)
        self.g = _module("reverse", reverse)
        if scaler is not None and not isinstance(scaler, Scaler):
            raise ConfigError(
                f"Deceptron(scaler=...) must be a Scaler; got {type(scaler).__name__}"
            )
        self.scaler = Scaler() if scaler is None else scaler
        if units is not None and not isinstance(units, Units):
            raise ConfigError(f"Deceptron(units=...) must be Units; got {type(units).__name__}")
        self.units = units
        self.wiener = None if wiener is None else _module("wiener", wiener)
        self.calibration = Calibration() if calibration is None else calibration
        of_x = (forward, "in_shape"), (reverse, "out_shape"), (wiener, "out_shape")
        of_y = (forward, "out_shape"), (reverse, "in_shape"), (wiener, "in_shape")
        self.x_shape = _agreed("x_shape", x_shape, of_x)
        self.y_shape = _agreed("y_shape", y_shape, of_y)
        self.name = name
        self.provenance = dict(provenance or {})
        self._set_bounds(bounds)

    @property
    def bounds(self) -> Bounds | None:
        """``(low, high)`` of the latents; tensors follow ``pair.to(...)``."""
        if self._low is None or self._high is None:
            return None
        return self._low, self._high

    @property
    def surrogate_error(self) -> float:
        """RMS error of f on validation rows, normalised units; 0 if it does not know.

        A solve on the surrogate cannot and should not fit data more closely than that.
        """
        return self.calibration.surrogate_error

    @property
    def noise_std(self) -> float | Tensor | None:
        """Noise of the observations it was trained for, physical units; None if it does not know.

        The guarded solver stops there unless it is told another noise.
        """
        return self.calibration.noise_std

    @property
    def verdict(self) -> str:
        """How accurate the surrogate is, and whether ``dc.solve`` needs ``forward=``, in words."""
        return self.calibration.verdict(self.noise_level)

    @property
    def noise_level(self) -> float | None:
        """Of the noise it was trained for, normalised units, as one number.

        The sensors that see most decide: one that shows nothing but its noise hides no error.
        """
        if self.noise_std is None or self.y_shape is None:
            return None
        noise = self.scaler.noise(self.noise_std, self.y_shape)
        return float(noise.double().pow(-2).mean().rsqrt())

    def at_noise(self, noise_std: float | Tensor) -> Deceptron:
        """This pair, its weights shared, with g for noise of this size (physical units).

        That is the pair itself unless g was trained for a range of noise levels; outside of the
        range g is the nearest it knows.
        """
        bind, levels = getattr(self.g, "at_noise", None), self.g_levels(noise_std)
        if bind is None or levels is None:
            return self
        if bool((levels != levels[0]).any()):
            raise ConfigError(
                "at_noise takes noise of one level, since a pair has one g; got rows of noise from "
                f"{float(levels.min()):.3g} to {float(levels.max()):.3g}, normalised units"
            )
        return self.replaced(reverse=bind(float(levels[0])))

    def replaced(self, **changes: Any) -> Deceptron:
        """This pair, its weights shared, with other arguments of the constructor."""
        names = ["scaler", "units", "bounds", "x_shape", "y_shape", "name", "wiener"]
        names += ["calibration", "provenance"]
        own: dict[str, Any] = {"forward": self.f, "reverse": self.g}
        own |= {name: getattr(self, name) for name in names}
        return Deceptron(**{**own, **changes})

    @property
    def unitless(self) -> Deceptron:
        """This pair, its weights shared, with bounds for latents as f and g take them."""
        if self.units is None:
            return self
        bounds = None if self.bounds is None else self.units.reduced_bounds(self.bounds)
        return self.with_units(None, bounds)

    def with_units(self, units: Units | None, bounds: Bounds | None) -> Deceptron:
        """This pair, its weights shared, for latents in these units, within these bounds."""
        own = None if units is None else copy.deepcopy(units).to(self.scaler.scale.device)
        made = self.replaced(units=own, bounds=bounds)
        made.training = self.training  # alone: the maps are those of this pair, and as they were
        return made

    def g_levels(self, noise_std: float | Tensor) -> Float[Tensor, " #B"] | None:
        """The level of noise for which each row of y gets its g; None if g is the same for all.

        It is the RMS over the sensors that there are, normalised units, rounded in steps from the
        noise that the pair was trained for.

        Args:
            noise_std: as ``dc.solve`` takes it; a row for each of y, or one for all.
        """
        if self.y_shape is None or getattr(self.g, "noise_range", None) is None:
            return None
        noise = real_tensor("noise_std", noise_std).detach().double()
        if not bool((noise >= 0).all()):
            raise ConfigError(f"noise_std must be >= 0; got {float(noise.min()):g}")
        try:
            rows = noise.to(self.scaler.scale.device) / self.scaler.scale.double()
            rows = rows.broadcast_to(*rows.shape[: -len(self.y_shape)], *self.y_shape)
        except RuntimeError:
            raise ShapeError(
                f"noise_std must broadcast to one row of y, shape {self.y_shape}; "
                f"got {tuple(noise.shape)}"
            ) from None
        rows = rows.reshape(-1, math.prod(self.y_shape))
        there = rows.isfinite()
        square = torch.where(there, rows, 0.0).square().sum(1) / there.sum(1)
        # Without any sensor: as loud as can be.
        level = square.sqrt().nan_to_num(nan=torch.inf, posinf=torch.inf)
        usual = 1.0
        if self.noise_std is not None:
            usual = self.scaler.noise_level(self.noise_std, self.y_shape) or usual
        return usual * torch.exp2(((level / usual).log2() * LEVELS).round() / LEVELS)

    def at_grid(
        self,
        grid: int | Sequence[int],
        *,
        latents: str | None = None,
        observations: str | None = None,
    ) -> Deceptron:
        """This pair at work on another grid, its weights shared and untrained::

            problem = dc.problems.get("darcy-2d", grid=128)
            pair = dc.recalibrate(dc.load("darcy-2d").at_grid(128), problem)
            solution = dc.solve(pair, y, forward=problem)

        Its maps are asked on their own grid: fields are restricted to it and answers prolonged from
        it, by waves that respect the boundary where they are known (exact for fields that the
        coarser grid carries), by polynomials otherwise. What only the finer grid shows is left to
        the solver with ``forward=``. Error bars and corrections are of the old grid and do not come
        along: ``dc.recalibrate`` finds them from a few hundred simulations. The noise does, as the
        standard deviation of a sensor, and so do the limits of ``dc.trust``: rows that the pair
        fails on are flagged.

        Args:
            grid: points of each axis of x, or one number for each axis.
            latents: where the points of x lie, a key of ``deceptron.maps.LAYOUTS``. Known for the
                library's problems; else taken from the waves that x was calibrated in, which must
                be a field ``(channels, *grid)``.
            observations: the same of y, or ``"fixed"`` where y does not change with the grid. By
                default y follows if it is on the grid of x.
        """
        if self.x_shape is not None and regridded(self.x_shape, grid) == self.x_shape:
            return self
        changes = regrid(self, grid, latents, observations)
        return self.replaced(**changes).train(self.training)

    def forward(self, x: Float[Tensor, "B *x"]) -> Float[Tensor, "B *y"]:
        """The forward surrogate, ``pair.f(x)``."""
        y: Tensor = self.f(x)
        return y

    def __repr__(self) -> str:
        """What it is in a few lines; ``pair.f`` and ``pair.g`` show their layers."""
        facts = "\n".join(f"  {name}: {value}" for name, value in self._facts().items())
        return f"Deceptron pair {self.name or 'without a name'}\n{facts}"

    def _repr_html_(self) -> str:
        """For notebooks: what it is and what it is good for."""
        return html.facts(f"Deceptron pair {self.name or 'without a name'}", self._facts())

    def _facts(self) -> dict[str, str]:
        noise, known = self.noise_std, self.calibration
        return {
            "latent x": html.shape(self.x_shape),
            **({} if self.units is None else {"units of x": f"{_range(self.units.scale)}"}),
            "observation y": html.shape(self.y_shape),
            "surrogate f": _described(self.f),
            "reverse map g": _described(self.g),
            "noise": "not known" if noise is None else html.number(noise),
            "error bars": "calibrated" if known.interval_factor else "not calibrated",
            "trust": "calibrated" if known.trust else "not calibrated",
            "verdict": self.verdict,
        }

    def _set_bounds(self, bounds: Bounds | None) -> None:
        self._low: float | Tensor | None = None
        self._high: float | Tensor | None = None
        if bounds is None:
            return
        bounds = sides(bounds)
        like = torch.empty(0, dtype=torch.float64)
        Box.parse(bounds, self.x_shape or _common_shape(bounds), like)
        for name, side in zip(("_low", "_high"), bounds, strict=True):
            if isinstance(side, Tensor):
                delattr(self, name)
                self.register_buffer(name, side.detach().clone())
            else:
                setattr(self, name, side)


def _module(argument: str, value: object) -> nn.Module:
    if not isinstance(value, nn.Module):
        raise ConfigError(
            f"Deceptron({argument}=...) must be an nn.Module; got {type(value).__name__}. "
            "For plain functions, any object with methods f and g is a pair that dc.solve takes"
        )
    return value


def _agreed(
    argument: str, given: Sequence[int] | None, maps: Sequence[tuple[nn.Module | None, str]]
) -> tuple[int, ...] | None:
    shape = None if given is None else check_shape(f"Deceptron({argument}=...)", given)
    for module, attribute in maps:
        stated = getattr(module, attribute, None)
        if not isinstance(stated, (tuple, list)):
            continue
        if shape is None:
            shape = tuple(stated)
        elif tuple(stated) != shape:
            raise ShapeError(
                f"Deceptron({argument}=...) must agree with its maps: "
                f"{type(module).__name__}.{attribute} is {tuple(stated)}; got {shape}"
            )
    return shape


def _common_shape(bounds: Bounds) -> tuple[int, ...]:
    shapes = [side.shape for side in bounds if isinstance(side, Tensor)]
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        raise ShapeError(
            f"bounds must have shapes that fit each other; got {[tuple(s) for s in shapes]}"
        ) from None


def _range(scale: Tensor) -> str:
    low, high = float(scale.min()), float(scale.max())
    return f"its parts vary by {low:.2g} to {high:.2g}; f and g take it without units"


def _described(map: nn.Module) -> str:
    size = sum(parameter.numel() for parameter in map.parameters())
    return f"{type(map).__name__}, {size:,} parameters"
