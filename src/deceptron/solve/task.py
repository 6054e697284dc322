"""One solve, checked and gathered: all that the loop and the error bars need, flat and normalised.

This is the only place where a pair is asked what it knows, and where physical units become the
normalised ones of its maps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.arrays import weight_of
from deceptron.core.box import Bounds, Box
from deceptron.core.errors import ConfigError
from deceptron.core.protocols import GaussianPrior, Pair, RowMap
from deceptron.core.scaler import Scaler
from deceptron.laws.beliefs import Beliefs
from deceptron.laws.calibration import Calibration, calibration_of
from deceptron.solve.descents.posterior import Posterior
from deceptron.solve.evaluation import in_evaluation
from deceptron.solve.forward import Normalised, is_opaque, values_of
from deceptron.solve.methods import Method
from deceptron.solve.model import Model, Tally
from deceptron.solve.noise import missing_in, noise_rows, objective_of
from deceptron.solve.objective import LeastSquares
from deceptron.solve.starts import start_rows

_UNSCALED = Scaler()


@dataclass(frozen=True, eq=False)
class Known:
    """What a pair says about itself, asked once; a bare callable is an f that knows nothing.

    ``trained_g`` is its g whatever the noise that this solve was told: its limits of trust are of
    that one.
    """

    f: RowMap
    g: RowMap | None
    trained_g: RowMap | None
    scaler: Scaler
    bounds: Bounds | None
    x_shape: tuple[int, ...] | None
    y_shape: tuple[int, ...] | None
    wiener: RowMap | None
    calibration: Calibration
    like: Tensor | None

    @staticmethod
    def of(pair: Pair | RowMap) -> Known:
        """What ``pair`` has of it."""
        f: RowMap | None = getattr(pair, "f", None)
        g: RowMap | None = getattr(pair, "g", None)
        if f is None or g is None:
            f, g = (pair if callable(pair) else None), None
        if f is None:
            instead = ": dc.load(...) gives a pair" if isinstance(pair, (str, PathLike)) else ""
            if hasattr(pair, "simulate"):
                instead = ": dc.train(problem) gives a pair, and the classical methods take "
                instead += "problem.simulate"
            raise ConfigError(
                f"pair must have f and g or be callable; got {type(pair).__name__}{instead}"
            )
        return Known(
            f=in_evaluation(f),
            g=in_evaluation(g),
            trained_g=g,
            scaler=in_evaluation(getattr(pair, "scaler", None) or _UNSCALED),
            bounds=getattr(pair, "bounds", None),
            x_shape=getattr(pair, "x_shape", None),
            y_shape=getattr(pair, "y_shape", None),
            wiener=in_evaluation(getattr(pair, "wiener", None)),
            calibration=calibration_of(pair),
            like=weight_of(pair),
        )

    def starts_at_linear_estimate(self, method: Method, x0: Tensor | None) -> bool:
        """Asked for by name, or by a calibration that found it the better start."""
        if method.start == "finite reverse":
            return x0 is None and self.wiener is not None and self.calibration.start == "wiener"
        return method.start == "wiener"

    def rows_alike(
        self, pair: Pair | RowMap, noise_std: object, rows: int
    ) -> list[Int[Tensor, " k"]]:
        """The rows of y for which the pair has the same g at this noise."""
        everyone = torch.arange(rows)
        levels_of = getattr(pair, "g_levels", None)
        if noise_std is None or levels_of is None or self.g is None:
            return [everyone]
        levels = levels_of(noise_std)
        if levels is None or len(levels) == 1:
            return [everyone]
        levels = levels.cpu()
        return [everyone[levels == level] for level in levels.unique()]

    def at_noise(self, pair: Pair | RowMap, noise_std: object) -> Known:
        """With the g that the pair has for this noise, which is the same for all rows."""
        bind = getattr(pair, "at_noise", None)
        if noise_std is None or bind is None or self.g is None:
            return self
        return replace(self, g=in_evaluation(bind(noise_std).g))


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be solved. ``target`` is finite where it was observed and 0 elsewhere.

    Attributes:
        known: what the pair knows.
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
    """

    known: Known
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

    def model(self) -> Model:
        """Its maps and objective, nothing charged yet."""
        return Model(
            self.f,
            self.g,
            x_shape=self.x_shape,
            y_shape=self.y_shape,
            tally=Tally(len(self.target), self.target.device),
            objective=self.objective,
            surrogate=self.surrogate,
        )

    @property
    def table_noise(self) -> Float[Tensor, " m"]:
        """What the tables of the laws were made for, normalised units."""
        own = noise_rows(self.known.calibration.noise_std, self.y, self.known.scaler)
        assert own is not None
        return own[0]


def prepare(
    known: Known,
    y: Float[Tensor, "B *y"],
    method: Method,
    *,
    forward: RowMap | None = None,
    differentiable: bool | None = None,
    x0: Tensor | None = None,
    bounds: Bounds | None = None,
    noise_std: object = None,
    prior: GaussianPrior | None = None,
    tau: float | None = None,
    own_rule: bool = False,
) -> Task:
    """Check what was asked and bring it to flat normalised rows; ``own_rule`` says that the caller
    has stated another end than the noise.
    """
    if method.needs_reverse and known.g is None:
        raise ConfigError(f"method {method.name!r} needs a pair with f and g; got a bare callable")
    if prior is not None and not isinstance(prior, GaussianPrior):
        raise ConfigError(
            "prior must have mean, apply and solve, as problem.prior has; "
            f"got {type(prior).__name__}"
        )
    opaque = is_opaque(forward, differentiable, known.g is not None, method)
    told = noise_std is not None
    if not told and method.assumes_noise and not own_rule:
        noise_std = known.calibration.noise_std
    noise = noise_rows(noise_std, y, known.scaler)
    believed = noise
    if believed is None:
        believed = noise_rows(known.calibration.noise_std, y, known.scaler)
    on_surrogate = forward is None
    error = known.calibration.surrogate_error if on_surrogate else 0.0
    y_shape = tuple(y.shape[1:])
    target = known.scaler.normalise(y).to(y.dtype).flatten(1)
    missing = missing_in(target, noise)
    begun = start_rows(known, method, target, missing, believed, y_shape, x0, prior)
    start = begun.x
    x_shape = tuple(start.shape[1:])
    bounds = known.bounds if bounds is None else bounds
    box = None if bounds is None else Box.parse(bounds, x_shape, start)
    flat = start.reshape(len(start), -1)
    objective = objective_of(
        target,
        missing,
        noise,
        method.surrogate_margin * error,
        tau=tau,
        prior=prior,
        x_shape=x_shape,
    )
    if believed is not None:
        seen = 1.0 if objective.observed is None else objective.observed
        total = torch.hypot(believed, torch.as_tensor(error).to(believed))
        objective = replace(
            objective,
            precision=(seen / believed).to(target),
            certainty=(seen / total).to(target),
        )
    simulator = None
    if forward is not None:
        simulator = Normalised(
            values_of(forward) if opaque else forward, known.scaler, y.dtype, y_shape
        )
    corrects = method.corrects and prior is None and noise is not None and not own_rule
    corrects = corrects and known.calibration.noise_std is not None and x0 is None
    linear_start = known.starts_at_linear_estimate(method, x0)
    no_data = None
    if missing is not None:
        no_data = missing.all(1)
        target = torch.where(missing, 0.0, target).masked_fill_(no_data[:, None], torch.nan)
    return Task(
        known=known,
        y=y,
        f=simulator or known.f,
        # Where the linear estimate is the better start, it has the better directions too.
        g=known.wiener if corrects and linear_start else known.g,
        surrogate=known.f if opaque else None,
        target=target,
        start=flat if box is None else box.project(flat),
        start_cost={"g": begun.g, "f" if on_surrogate else "surrogate": begun.f},
        no_data=no_data,
        x_shape=x_shape,
        y_shape=y_shape,
        box=box,
        bounds=bounds,
        objective=objective,
        noise=noise,
        noise_told=told,
        believed_noise=believed,
        on_surrogate=on_surrogate,
        linear_start=linear_start,
        prior=prior,
        beliefs=known.calibration.beliefs if corrects else None,
    )


def posterior_of(task: Task, reverse_price: float = 0.0) -> Posterior:
    """The descent of a task whose rows are answered by their laws."""
    assert task.beliefs is not None
    return Posterior(
        task.beliefs,
        task.beliefs.odds(on_surrogate=task.on_surrogate),
        task.known.calibration.observations,
        task.table_noise,
        told=task.noise_told,
        reverse_price=reverse_price,
    )
