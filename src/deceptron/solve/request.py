"""What was asked of a solve: checked, without units, and cut into the parts that run together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from deceptron.core.arrays import as_rows, real_tensor
from deceptron.core.box import Bounds
from deceptron.core.checks import check_count, check_flags
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.protocols import GaussianPrior
from deceptron.core.solution import Solution
from deceptron.core.units import BarsInUnits, UnitlessForward, unitless_prior
from deceptron.solve.forward import as_forward
from deceptron.solve.known import Known
from deceptron.solve.methods import Method, get_method
from deceptron.solve.noise import noise_rows
from deceptron.solve.snapshot import Callback, Snapshot, progress_callback
from deceptron.solve.starts import given_rows

# Rows, and numbers in them, that are solved together: more of them cost memory and save no time.
# A network keeps some two kilobytes for each number until its gradient has been asked for.
ROWS, NUMBERS = 4096, 2**19


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of ``solve``; ``pair`` is the one whose x has units, where there is such."""

    pair: Any
    y: Any
    method: str | Method = "guarded"
    forward: Any = None
    differentiable: bool | None = None
    surrogate_steps: int = 0
    x0: Any = None
    bounds: Bounds | None = None
    noise_std: Any = None
    prior: GaussianPrior | None = None
    tau: float | None = None
    max_iterations: int | None = None
    tolerance: float | None = None
    relative_tolerance: float | None = None
    gradient_tolerance: float | None = None
    decrease_tolerance: float | None = None
    step_tolerance: float | None = None
    history: bool = True
    callback: Callback | None = None
    progress: bool = False

    @property
    def has_own_rule(self) -> bool:
        """Whether another end than the noise was stated."""
        rules = (self.tolerance, self.relative_tolerance, self.gradient_tolerance)
        return any(rule is not None for rule in rules)

    def checked(self) -> Asked:
        """With rows, a method and a map; raises for what cannot be answered."""
        method, units = get_method(self.method), getattr(self.pair, "units", None)
        asked = self if units is None else self._without_units()
        known = Known.of(asked.pair)
        y = as_rows("y", self.y, shape=known.y_shape, like=known.like).detach()
        if y.ndim == 1 or not y.shape[1:].numel():
            raise ShapeError(
                f"y must have rows of one or more components; got shape {tuple(y.shape)} "
                "(y[None] is one row of them, y[:, None] many rows of one)"
            )
        if self.callback is not None and not callable(self.callback):
            raise ConfigError(f"callback must be a function; got {type(self.callback).__name__}")
        check_flags(
            differentiable=self.differentiable, history=self.history, progress=self.progress
        )
        if self.max_iterations is not None:
            check_count("max_iterations", self.max_iterations, low=0)
        noise_rows(self.noise_std, y, known.scaler)  # one of each row of y, or one for all
        forward = as_forward(asked.forward)
        if check_count("surrogate_steps", self.surrogate_steps, low=0):
            _check_surrogate_steps(self.surrogate_steps, forward, method)
        x0 = asked.x0 if asked.x0 is None else given_rows(asked.x0, method, y, known.x_shape)
        return Asked(
            replace(asked, y=y, method=method, forward=forward, x0=x0), known, method, self
        )

    def _without_units(self) -> Request:
        """The same of z, for the pair that takes z."""
        pair, inside = self.pair, replace(self, pair=self.pair.unitless)
        units, bounds = pair.units, self._bounds_in_units
        if (forward := as_forward(self.forward)) is not None:
            inside = replace(inside, forward=UnitlessForward(forward, units, bounds))
        if self.x0 is not None:
            x0 = as_rows("x0", self.x0, shape=pair.x_shape, like=units.scale)
            inside = replace(inside, x0=units.reduced(x0))
        if self.bounds is not None:
            inside = replace(inside, bounds=units.reduced_bounds(self.bounds))
        if isinstance(self.prior, GaussianPrior):
            inside = replace(inside, prior=unitless_prior(self.prior, units))
        return inside

    @property
    def _bounds_in_units(self) -> Bounds | None:
        return self.pair.bounds if self.bounds is None else self.bounds

    def in_units(self, x: Tensor) -> Tensor:
        """Latents as the caller wants them."""
        units = getattr(self.pair, "units", None)
        return x if units is None else units.physical(x, self._bounds_in_units)

    def answer(self, solution: Solution) -> Solution:
        """Answers and their error bars as the caller wants them."""
        units = getattr(self.pair, "units", None)
        if units is None:
            return solution
        bars = solution.error_bars
        if bars is not None:
            bars = BarsInUnits(bars, units, self._bounds_in_units)
        return replace(solution, x=self.in_units(solution.x), error_bars=bars)


@dataclass(frozen=True, eq=False)
class Asked:
    """A checked request: ``request`` is in latents without units, ``caller`` as it came."""

    request: Request
    known: Known
    method: Method
    caller: Request

    def parts(self) -> Iterator[tuple[Int[Tensor, " k"], Asked]]:
        """Rows that are solved together: few enough, and of one noise where the reverse map
        depends on it.
        """
        asked, rows = self.request, len(self.request.y)
        alike = self.known.rows_alike(asked.pair, asked.noise_std, rows)
        largest = max(asked.y[0].numel(), math.prod(self.known.x_shape or ()))
        together = max(1, min(ROWS, NUMBERS // largest))
        for index in (part for same in alike for part in same.split(together)):
            part = asked if len(index) == rows else self._of_rows(index)
            known = self.known.at_noise(asked.pair, part.noise_std)
            yield index, replace(self, request=part, known=known)

    def _of_rows(self, index: Int[Tensor, " k"]) -> Request:
        """What has a row for each of y's is cut with them."""
        asked = self.request
        noise, x0 = asked.noise_std, asked.x0
        if noise is not None:
            level = real_tensor("noise_std", noise)
            own = level.ndim == asked.y.ndim and len(level) == len(asked.y)
            noise = level[index] if own else noise
        return replace(
            asked, y=asked.y[index], noise_std=noise, x0=None if x0 is None else x0[index]
        )

    def first(self, rows: int) -> Asked:
        """Of the first rows only."""
        index = torch.arange(min(rows, len(self.request.y)))
        return replace(self, request=self._of_rows(index))

    def on_surrogate(self) -> Asked | None:
        """The steps on the surrogate that come first, if some were asked for."""
        steps = self.request.surrogate_steps
        if not steps:
            return None
        alone = replace(
            self.request, forward=None, differentiable=None, max_iterations=steps, history=False
        )
        return replace(self, request=alone)

    def watched(self) -> Watch:
        """Who is told how far the solve is."""
        return Watch(self.caller, len(self.request.y))


class Watch:
    """Passes what happens on to the caller, until that ends the run: it is not asked again then,
    and the rows of the parts that follow end where they start.
    """

    def __init__(self, caller: Request, rows: int) -> None:
        self._caller = caller
        self.ended = False
        self._progress = progress_callback(caller.callback, rows=rows, enabled=caller.progress)
        self._callback: Callback | None = None

    def __enter__(self) -> Watch:
        self._callback = self._progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._progress.__exit__(*error)

    def of(self, rows: Int[Tensor, " k"]) -> Callable[[int, Snapshot], bool] | None:
        """Hears of a part; None: nobody listens."""
        listener = self._callback
        if listener is None:
            return None

        def told(number: int, snapshot: Snapshot) -> bool:
            if not self.ended:
                own = rows.to(snapshot.rows)[snapshot.rows]
                x = self._caller.in_units(snapshot.x)
                self.ended = bool(listener(number, replace(snapshot, rows=own, x=x)))
            return self.ended

        return told


def _check_surrogate_steps(steps: int, forward: Any, method: Method) -> None:
    if forward is None:
        raise ConfigError(
            "surrogate_steps needs forward=...: without one every step is on the surrogate; "
            f"got {steps}"
        )
    if method.direct:
        raise ConfigError(
            f"surrogate_steps has no use in method {method.name!r}, which takes no steps; "
            f"got {steps}"
        )
