"""A solve whose latents have units: they are taken off at the door and put on again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from deceptron.core.arrays import as_rows
from deceptron.core.box import Bounds
from deceptron.core.protocols import GaussianPrior
from deceptron.core.solution import Solution
from deceptron.core.units import BarsInUnits, UnitlessForward, Units, unitless_prior
from deceptron.solve.forward import as_forward
from deceptron.solve.snapshot import Snapshot


@dataclass(frozen=True, eq=False)
class Door:
    """Between what was asked of x and the solve for z."""

    units: Units
    bounds: Bounds | None
    x_shape: tuple[int, ...] | None

    @staticmethod
    def of(pair: Any, bounds: Bounds | None) -> Door:
        """Of a pair that has units; ``bounds`` of x, by default its own."""
        return Door(pair.units, pair.bounds if bounds is None else bounds, pair.x_shape)

    def inwards(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Arguments of ``solve`` that speak of x, as they are of z."""
        units, inside = self.units, dict(settings)
        if (forward := as_forward(settings["forward"])) is not None:
            inside["forward"] = UnitlessForward(forward, units, self.bounds)
        if settings["x0"] is not None:
            inside["x0"] = units.reduced(
                as_rows("x0", settings["x0"], shape=self.x_shape, like=units.scale)
            )
        if settings["bounds"] is not None:
            inside["bounds"] = units.reduced_bounds(settings["bounds"])
        if isinstance(settings["prior"], GaussianPrior):
            inside["prior"] = unitless_prior(settings["prior"], units)
        if callable(callback := settings["callback"]):

            def told(number: int, snapshot: Snapshot) -> object:
                x = units.physical(snapshot.x, self.bounds)
                return callback(number, replace(snapshot, x=x))

            inside["callback"] = told
        return inside

    def outwards(self, solution: Solution) -> Solution:
        """The same answers and error bars of x."""
        bars = solution.error_bars
        return replace(
            solution,
            x=self.units.physical(solution.x, self.bounds),
            error_bars=None if bars is None else BarsInUnits(bars, self.units, self.bounds),
        )
