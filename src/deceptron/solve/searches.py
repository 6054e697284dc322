"""Armijo backtracking, Wolfe bracketing and adaptive damping, each row on its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from deceptron.core.checks import check_count, check_range
from deceptron.solve.model import Model, Point
from deceptron.solve.protocols import SearchState, Step
from deceptron.solve.rows import dot

# Of a step without derivatives, after which a row gives up.
MOST_HALVINGS = 4

_check_share = partial(check_range, low=0, high=1, open_low=True, open_high=True)


def _round_off(misfit: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """How far two evaluations of the same misfit may differ."""
    return 4 * torch.finfo(misfit.dtype).eps * misfit


@dataclass(frozen=True)
class Armijo:
    """Accept a step p if phi(x + p) <= phi(x) + c <grad, p>; else shrink it and try again.

    Attributes:
        initial_scale: of the first trial.
        sufficient_decrease: c.
        shrink: factor on the scale after a rejection.
        max_backtracks: rejections after which a row gives up.
        require_descent: also reject a step with <grad, p> >= 0, and forgive a rise within the
            round-off of the misfit, so that a row can reach its gradient tolerance. Algorithm 1 of
            the paper does neither: it may raise the misfit where the learned step does not descend.
        carry: start the next search at twice the scale that was last accepted, which a method
            without a natural scale (gradient descent) needs.
    """

    initial_scale: float = 1.0
    sufficient_decrease: float = 1e-4
    shrink: float = 0.5
    max_backtracks: int = 8
    require_descent: bool = True
    carry: bool = False

    needs_trial_gradient = False

    def __post_init__(self) -> None:
        check_range("Armijo(initial_scale=...)", self.initial_scale, low=0, open_low=True)
        _check_share("Armijo(sufficient_decrease=...)", self.sufficient_decrease)
        _check_share("Armijo(shrink=...)", self.shrink)
        check_count("Armijo(max_backtracks=...)", self.max_backtracks, low=0)

    def start(self, model: Model, point: Point) -> SearchState:
        """Scale ``initial_scale``, no trials yet."""
        return self._fresh(point.misfit)

    def _fresh(self, like: Float[Tensor, " B"]) -> SearchState:
        return SearchState(torch.full_like(like, self.initial_scale), None)

    def judge(
        self, point: Point, trial: Point, step: Step, state: SearchState
    ) -> tuple[Bool[Tensor, " B"], SearchState, Bool[Tensor, " B"]]:
        """Sufficient decrease along the projected step."""
        allowed = torch.add(point.misfit, step.slope, alpha=self.sufficient_decrease)
        if self.require_descent:
            accept = (trial.misfit <= allowed + _round_off(point.misfit)) & (step.slope < 0)
        else:
            accept = trial.misfit <= allowed
        if bool(accept.all()):  # the common case, and the cheap one
            if self.carry:
                state = SearchState(2 * state.scale, None)
            elif state.trials is not None:
                state = self._fresh(point.misfit)
            return accept, state, ~accept
        restart = 2 * state.scale if self.carry else self.initial_scale
        scale = torch.where(accept, restart, self.shrink * state.scale)
        trials = state.rejections
        give_up = ~accept & (trials >= self.max_backtracks)
        return accept, SearchState(scale, torch.where(accept, 0, trials + 1)), give_up


@dataclass(frozen=True)
class Decrease:
    """Accept any decrease beyond round-off; else halve the scale. Asks for no derivative."""

    needs_trial_gradient = False

    def start(self, model: Model, point: Point) -> SearchState:
        """Full step, no trials yet."""
        return SearchState(torch.ones_like(point.misfit), None)

    def judge(
        self, point: Point, trial: Point, step: Step, state: SearchState
    ) -> tuple[Bool[Tensor, " B"], SearchState, Bool[Tensor, " B"]]:
        """Compare the misfits."""
        accept = trial.misfit < point.misfit - _round_off(point.misfit)
        trials = state.rejections
        give_up = ~accept & (trials >= MOST_HALVINGS)
        scale = torch.where(accept, 1.0, 0.5 * state.scale)
        return accept, SearchState(scale, torch.where(accept, 0, trials + 1)), give_up


@dataclass(frozen=True)
class WolfeState(SearchState):
    """The bracket: ``low`` satisfies Armijo; ``high``, if finite, does not."""

    low: Float[Tensor, " B"]
    high: Float[Tensor, " B"]


@dataclass(frozen=True)
class Wolfe:
    """Weak Wolfe conditions by bracketing; they keep s'y > 0 for quasi-Newton updates.

    A step that the bounds have bent is accepted on sufficient decrease alone, because the slope
    along the unprojected direction says nothing there.

    Attributes:
        sufficient_decrease: share of the slope that a step must gain.
        curvature: share of the slope that may be left at its end.
        expand: factor on a step that is too short.
        patience: trials after which sufficient decrease is enough.
        max_trials: trials after which a row gives up.
    """

    sufficient_decrease: float = 1e-4
    curvature: float = 0.9
    expand: float = 10.0
    patience: int = 12
    max_trials: int = 30

    needs_trial_gradient = True

    def __post_init__(self) -> None:
        c1, c2 = self.sufficient_decrease, self.curvature
        _check_share("Wolfe(curvature=...)", c2)
        _check_share("Wolfe(sufficient_decrease=...)", c1, high=c2)
        check_range("Wolfe(expand=...)", self.expand, low=2)
        check_count("Wolfe(patience=...)", self.patience)
        check_count("Wolfe(max_trials=...)", self.max_trials)

    def start(self, model: Model, point: Point) -> WolfeState:
        """Full step, empty bracket."""
        return _fresh_bracket(point.misfit)

    def judge(
        self, point: Point, trial: Point, step: Step, state: WolfeState
    ) -> tuple[Bool[Tensor, " B"], WolfeState, Bool[Tensor, " B"]]:
        """Shorten where Armijo fails, lengthen where the slope is still steep, else accept."""
        allowed = point.misfit + self.sufficient_decrease * step.slope + _round_off(point.misfit)
        enough = (trial.misfit <= allowed) & (step.slope < 0)
        flat = dot(trial.gradient, step.p) >= self.curvature * step.slope
        trials = state.rejections
        accept = enough & (flat | step.bent | (trials >= self.patience))

        low = torch.where(enough, state.scale, state.low)
        high = torch.where(enough, state.high, state.scale)
        scale = self._next_scale(point, trial, step, state.scale, enough, low, high)
        onward = WolfeState(scale, trials + 1, low, high)
        give_up = ~accept & (trials + 1 >= self.max_trials)
        return accept, _fresh_bracket(scale).where(accept, onward), give_up

    def _next_scale(
        self,
        point: Point,
        trial: Point,
        step: Step,
        scale: Float[Tensor, " B"],
        enough: Bool[Tensor, " B"],
        low: Float[Tensor, " B"],
        high: Float[Tensor, " B"],
    ) -> Float[Tensor, " B"]:
        """Where a quadratic through what is known has its minimum, kept well inside the bracket."""
        rise = trial.misfit - point.misfit
        secant = step.slope / (step.slope - dot(trial.gradient, step.p))
        parabola = step.slope / (2 * (step.slope - rise))
        guess = scale * torch.where(enough, secant, parabola)
        inside = high.isfinite()
        width = torch.where(inside, high - low, 0.0)
        nearest = torch.where(inside, low + 0.1 * width, 2 * low)
        farthest = torch.where(inside, low + 0.9 * width, self.expand * low)
        middle = torch.where(inside, low + 0.5 * width, self.expand * low)
        guess = torch.where(guess.isfinite() & (guess > 0), guess, middle)
        return guess.clamp(nearest, farthest)


def _fresh_bracket(like: Float[Tensor, " B"]) -> WolfeState:
    one = torch.ones_like(like)
    trials = torch.zeros_like(like, dtype=torch.int64)
    return WolfeState(one, trials, torch.zeros_like(one), torch.full_like(one, math.inf))


@dataclass(frozen=True)
class AdaptiveDamping:
    """Levenberg-Marquardt damping by the gain ratio, actual over predicted decrease (Nielsen).

    The scale is the damping. The first rejection doubles it, the next multiplies by 4, by 8, ...

    Attributes:
        relative_start: the first damping in units of ``|w J|^2``, estimated by the Rayleigh
            quotient along the steepest descent in the objective's metric (once a solve).
        accept_ratio: least gain ratio of a step that is taken.
        fastest_ease: least factor on the damping after a good step. Nielsen has 1/3; less lets a
            nearly linear problem reach the undamped step sooner.
        max_rejections: rejections after which a row gives up.
    """

    relative_start: float = 1e-3
    accept_ratio: float = 1e-4
    fastest_ease: float = 0.03
    max_rejections: int = 30

    needs_trial_gradient = False

    def __post_init__(self) -> None:
        check_range(
            "AdaptiveDamping(relative_start=...)", self.relative_start, low=0, open_low=True
        )
        check_range(
            "AdaptiveDamping(accept_ratio=...)", self.accept_ratio, low=0, high=1, open_high=True
        )
        check_range(
            "AdaptiveDamping(fastest_ease=...)", self.fastest_ease, low=0, high=1, open_low=True
        )
        check_count("AdaptiveDamping(max_rejections=...)", self.max_rejections)

    def start(self, model: Model, point: Point) -> SearchState:
        """First damping from the size of J along the gradient."""
        direction = model.objective.precondition(point.gradient)
        length = dot(point.gradient, direction).sqrt()
        direction = direction / length.clamp_min(torch.finfo(length.dtype).tiny)[:, None]
        model.charge("jvp")
        q = model.objective.weigh(model.linearise(point.x).jvp(direction))
        rayleigh = dot(q, q)
        usable = rayleigh.isfinite() & (rayleigh > 0)
        damping = self.relative_start * torch.where(usable, rayleigh, 1.0)
        return SearchState(damping.clamp_min(torch.finfo(damping.dtype).tiny), None)

    def judge(
        self, point: Point, trial: Point, step: Step, state: SearchState
    ) -> tuple[Bool[Tensor, " B"], SearchState, Bool[Tensor, " B"]]:
        """Accept on a positive gain; damp less after good steps, ever faster after bad ones."""
        predicted = step.proposal.predicted
        assert predicted is not None, "adaptive damping needs a descent that predicts its decrease"
        if step.x is not step.proposal.x:
            # The prediction is for the step before projection. Where the box bent it, use the bound
            # that the undamped model attains: a decrease of half the slope.
            predicted = torch.where(step.bent, -0.5 * step.slope, predicted)
        noise = _round_off(point.misfit)
        actual = point.misfit - trial.misfit
        # Below round-off the ratio is noise over noise; then trust the model.
        unseen = torch.maximum(actual.abs(), predicted) <= noise
        gain = (actual / predicted).masked_fill_(unseen, 1.0)
        accept = (gain > self.accept_ratio) & (predicted > 0)
        ease = (1 - (2 * gain - 1) ** 3).clamp(self.fastest_ease, 2.0)
        if state.trials is not None:
            # Not by more than a third where a little less damping has just failed.
            ease = torch.where(state.trials == 0, ease, ease.clamp_min(1 / 3))
        scale, trials = state.scale * ease, None
        give_up = ~accept
        if not bool(accept.all()):
            rejections = state.rejections
            scale = torch.where(accept, scale, torch.ldexp(state.scale, rejections + 1))
            give_up = give_up & (rejections >= self.max_rejections)
            trials = torch.where(accept, 0, rejections + 1)
        # A damping of exactly zero could never grow again, nor an infinite one shrink.
        limits = torch.finfo(scale.dtype)
        return accept, SearchState(scale.clamp(limits.tiny, limits.max), trials), give_up
