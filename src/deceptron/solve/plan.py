"""One run, resolved once: all that the loop and the error bars need, flat and normalised.

This is the only place where physical units become the normalised ones of the pair's maps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.box import Bounds, Box
from deceptron.core.errors import ConfigError
from deceptron.core.protocols import GaussianPrior, RowMap
from deceptron.core.solution import Solution
from deceptron.laws.beliefs import Beliefs
from deceptron.solve.descents.posterior import Posterior
from deceptron.solve.direct import answered
from deceptron.solve.forward import Normalised, is_opaque, values_of
from deceptron.solve.known import Known
from deceptron.solve.loop import Loop
from deceptron.solve.methods import Method, believing, by_values
from deceptron.solve.model import Model, Tally
from deceptron.solve.noise import missing_in, noise_rows, objective_of
from deceptron.solve.objective import LeastSquares
from deceptron.solve.outcome import Outcome
from deceptron.solve.recorder import Recorder
from deceptron.solve.request import Asked, Request
from deceptron.solve.snapshot import Callback
from deceptron.solve.starts import Start, start_rows
from deceptron.solve.stopping import Stopping, stationarity


@dataclass(frozen=True, eq=False)
class Plan:
    """What is to be solved. ``target`` is finite where it was observed and 0 elsewhere.

    Attributes:
        known: what the pair knows.
        method: with the descent and the search that suit what is known.
        y: the observations in physical units, as they came.
        f, g: the forward map of the objective and the reverse map, normalised units.
        surrogate: lends its derivatives where f has none.
        target, start: flat rows.
        start_cost: evaluations that the start took, by kind.
        no_data: rows without any observation; None if every row has all of them.
        box, objective: of flat rows.
        noise: of the measurements, normalised units, flat; one row or one a row. None: not known.
        noise_told: whether the caller stated it.
        believed_noise: that noise, or the pair's own where the method does without: what error bars
            and ``solution.over_noise`` are made with.
        on_surrogate: whether f is the pair's own.
        linear_start: whether rows start at the linear estimate.
        beliefs: what rows may be, where the method uses it.
        stopping, max_iterations: when a row is done.
    """

    known: Known
    method: Method
    y: Float[Tensor, "B *y"]
    f: RowMap
    g: RowMap | None
    surrogate: RowMap | None
    target: Float[Tensor, "B m"]
    start: Float[Tensor, "B n"]
    start_cost: dict[str, int | Int[Tensor, " B"]]
    no_data: Bool[Tensor, " B"] | None
    x_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    box: Box | None
    bounds: Bounds | None
    objective: LeastSquares
    noise: Float[Tensor, "#B m"] | None
    noise_told: bool
    believed_noise: Float[Tensor, "#B m"] | None
    on_surrogate: bool
    linear_start: bool
    prior: GaussianPrior | None
    beliefs: Beliefs | None
    stopping: Stopping
    max_iterations: int

    def model(self) -> Model:
        """Its maps and objective, the cost of its start charged."""
        model = Model(
            self.f,
            self.g,
            x_shape=self.x_shape,
            y_shape=self.y_shape,
            tally=Tally(len(self.target), self.target.device),
            objective=self.objective,
            surrogate=self.surrogate,
        )
        for kind, spent in self.start_cost.items():
            model.charge(kind, spent)
        return model

    @property
    def table_noise(self) -> Float[Tensor, " m"]:
        """What the tables of the laws were made for, normalised units."""
        own = noise_rows(self.known.calibration.noise_std, self.y, self.known.scaler)
        assert own is not None
        return own[0]

    def posterior(self) -> Posterior:
        """The descent of rows that are answered by their laws."""
        assert self.beliefs is not None
        return Posterior(
            self.beliefs,
            self.beliefs.odds(on_surrogate=self.on_surrogate),
            self.known.calibration.observations,
            self.table_noise,
            told=self.noise_told,
            reverse_price=self.method.reverse_price,
        )

    def recorder(self) -> Recorder:
        """Of every pass."""
        rules = () if self.method.direct else self.method.descent(self.start.shape[1]).rules
        return Recorder(self.start, rules=rules)

    def run(
        self,
        model: Model,
        start: Float[Tensor, "B n"],
        target: Float[Tensor, "B m"],
        recorder: Recorder | None = None,
        callback: Callback | None = None,
    ) -> Outcome:
        """Rows from ``start``."""
        if self.method.direct:
            return answered(model, self.stopping, start, target, callback)
        return Loop(
            model,
            descent=self.method.descent(start.shape[1]),
            search=self.method.search,
            stopping=self.stopping,
            max_iterations=self.max_iterations,
            box=self.box,
            recorder=recorder,
            callback=callback,
        ).run(start, target)


def prepare(asked: Asked, before: Solution | None = None) -> Plan:
    """Bring what was asked to flat normalised rows, from where an earlier stage has left them."""
    request, known, method = asked.request, asked.known, asked.method
    y = request.y.clone() if request.y.is_inference() else request.y
    if method.needs_reverse and known.g is None:
        raise ConfigError(f"method {method.name!r} needs a pair with f and g; got a bare callable")
    prior, forward = request.prior, request.forward
    if prior is not None and not isinstance(prior, GaussianPrior):
        raise ConfigError(
            "prior must have mean, apply and solve, as problem.prior has; "
            f"got {type(prior).__name__}"
        )
    opaque = is_opaque(forward, request.differentiable, known.g is not None, method)
    noise_std = request.noise_std
    if noise_std is None and method.assumes_noise and not request.has_own_rule:
        noise_std = known.calibration.noise_std
    noise = noise_rows(noise_std, y, known.scaler)
    target = known.scaler.normalise(y).to(y.dtype).flatten(1)
    missing = missing_in(target, noise)
    own_noise = noise_rows(known.calibration.noise_std, y, known.scaler)
    believed = own_noise if noise is None else noise
    y_shape = tuple(y.shape[1:])
    x0 = request.x0 if before is None else before.x
    begun = start_rows(known, method, target, missing, believed, y_shape, x0, prior)
    x_shape = tuple(begun.x.shape[1:])
    bounds = known.bounds if request.bounds is None else request.bounds
    box = None if bounds is None else Box.parse(bounds, x_shape, begun.x)
    start = begun.x.reshape(len(begun.x), -1)
    corrects = method.corrects and prior is None and noise is not None and own_noise is not None
    corrects = corrects and x0 is None and not request.has_own_rule
    beliefs = known.calibration.beliefs if corrects else None
    linear_start = known.starts_at_linear_estimate(method, x0)
    objective = _objective(asked, target, missing, noise, believed, x_shape)
    no_data = None
    if missing is not None:
        no_data = missing.all(1)
        target = torch.where(missing, 0.0, target).masked_fill_(no_data[:, None], torch.nan)
    simulator = None
    if forward is not None:
        called = values_of(forward) if opaque else forward
        simulator = Normalised(called, known.scaler, y.dtype, y_shape)
    plan = Plan(
        known=known,
        method=method,
        y=y,
        f=simulator or known.f,
        # Where the linear estimate is the better start, it has the better directions too.
        g=known.wiener if corrects and linear_start else known.g,
        surrogate=known.f if opaque else None,
        target=target,
        start=start if box is None else box.project(start),
        start_cost=_spent(begun, before, on_surrogate=forward is None),
        no_data=no_data,
        x_shape=x_shape,
        y_shape=y_shape,
        box=box,
        bounds=bounds,
        objective=objective,
        noise=noise,
        noise_told=request.noise_std is not None,
        believed_noise=believed,
        on_surrogate=forward is None,
        linear_start=linear_start,
        prior=prior,
        beliefs=beliefs,
        stopping=Stopping(),
        max_iterations=0,
    )
    if beliefs is not None:
        method = believing(method, plan.posterior())
    elif opaque:
        method = by_values(method)
    limit = method.max_iterations if request.max_iterations is None else request.max_iterations
    return replace(
        plan, method=method, stopping=_stopping(request, plan, method), max_iterations=limit
    )


def _objective(
    asked: Asked,
    target: Float[Tensor, "B m"],
    missing: Bool[Tensor, "B m"] | None,
    noise: Float[Tensor, "#B m"] | None,
    believed: Float[Tensor, "#B m"] | None,
    x_shape: tuple[int, ...],
) -> LeastSquares:
    """What the rows minimise, and what their residuals are called explained by."""
    request = asked.request
    error = asked.known.calibration.surrogate_error if request.forward is None else 0.0
    objective = objective_of(
        target,
        missing,
        noise,
        asked.method.surrogate_margin * error,
        tau=request.tau,
        prior=request.prior,
        x_shape=x_shape,
    )
    if believed is None:
        return objective
    seen = 1.0 if objective.observed is None else objective.observed
    total = torch.hypot(believed, torch.as_tensor(error).to(believed))
    return replace(
        objective, precision=(seen / believed).to(target), certainty=(seen / total).to(target)
    )


def _spent(
    begun: Start, before: Solution | None, *, on_surrogate: bool
) -> dict[str, int | Int[Tensor, " B"]]:
    """What it took to come to the start."""
    spent: dict[str, Any] = {"g": begun.g, "f" if on_surrogate else "surrogate": begun.f}
    if before is not None:
        spent["g"] = begun.g + before.cost.g
        spent["surrogate"] = before.cost.forward
    return spent


def _stopping(request: Request, plan: Plan, method: Method) -> Stopping:
    noise_is_an_end = plan.noise is not None and plan.prior is None
    return Stopping(
        tolerance=request.tolerance,
        relative_tolerance=request.relative_tolerance,
        discrepancy=plan.objective.tau is not None and plan.beliefs is None,
        progress=method.progress if noise_is_an_end else None,
        **stationarity(
            method,
            plan.y.dtype,
            request.gradient_tolerance,
            request.decrease_tolerance,
            request.step_tolerance,
        ),
    )
