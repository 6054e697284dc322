"""The public entry: check what was asked, bring it to flat normalised rows, run, report back."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from deceptron.core.box import Bounds, Box
from deceptron.core.checks import check_count, check_range, check_rows
from deceptron.core.errors import ConfigError
from deceptron.core.protocols import GaussianPrior, Pair, RowMap
from deceptron.core.scaler import Scaler
from deceptron.core.solution import Cost, Solution
from deceptron.core.status import Reason
from deceptron.solve.afterwards import informed
from deceptron.solve.evaluation import evaluation_mode
from deceptron.solve.forward import is_opaque, normalised, values_of
from deceptron.solve.loop import Callback, Loop, Outcome
from deceptron.solve.methods import Method, by_values, get_method
from deceptron.solve.model import Model, Tally
from deceptron.solve.noise import discrepancy, noise_row, objective_of
from deceptron.solve.progress import progress_callback
from deceptron.solve.recorder import Recorder
from deceptron.solve.starts import start_rows
from deceptron.solve.stopping import Stopping, stationarity


def solve(
    pair: Pair | RowMap,
    y: Tensor,
    *,
    method: str | Method = "guarded",
    forward: RowMap | None = None,
    differentiable: bool | None = None,
    surrogate_steps: int = 0,
    x0: Tensor | None = None,
    bounds: Bounds | None = None,
    noise_std: float | Tensor | None = None,
    prior: GaussianPrior | None = None,
    tau: float | None = None,
    max_iterations: int | None = None,
    tolerance: float | None = None,
    relative_tolerance: float | None = None,
    gradient_tolerance: float | None = None,
    decrease_tolerance: float | None = None,
    step_tolerance: float | None = None,
    history: bool = True,
    callback: Callback | None = None,
    progress: bool = False,
) -> Solution:
    """Find, for each row of ``y``, a latent x whose prediction explains it.

    Minimises ``0.5 * mean((f(x) - y)**2)`` per row over the box, in the pair's normalised
    measurement units; with a ``prior``, the negative log posterior in the same units. Rows never
    influence each other: N rows together give what N solves give.

    Args:
        pair: anything with ``f`` and ``g``; the classical methods also take a bare callable f.
            Its ``scaler`` and ``bounds``, if it has them, are used.
        y: observations, one per row, in physical units.
        method: a name (see ``dc.methods.METHODS``) or a ``Method`` with your own settings.
        forward: replaces ``pair.f`` in the objective, for example by the true simulator. Takes
            latents, returns physical units.
        differentiable: False if ``forward`` gives values only: NumPy code, an external program. It
            is then called with plain tensors, may return any array, and is never differentiated.
            Guarded combines trial evaluations along directions that g and the pair's f suggest;
            other methods take the derivatives of the pair's f. Either way a row never ends worse
            than it began, but need not end at a stationary point. By default True, or what the
            problem says whose ``simulate`` it is.
        surrogate_steps: with ``forward``, take up to so many steps on the pair's f first. Its
            evaluations are counted apart, as ``cost.surrogate``.
        x0: where to start; the default is the method's (guarded: g(y); most others: zero),
            projected on the bounds.
        bounds: ``(low, high)``, numbers or tensors that broadcast to one row of x; by default
            those of the pair.
        noise_std: standard deviation of the noise in y, physical units. Rows stop once their
            residual is at most ``tau`` times the noise level (the discrepancy principle), which
            includes the surrogate's own error when the pair knows it and ``forward`` is not given.
            A pair that was trained for a range of noise levels is used at this one.
            The guarded method takes that of the pair if neither noise nor tolerance is given.
        tau: by default what 99% of pure noise stays below: 1.2 for 64 components, 1.05 for 1000.
            With a prior there is an answer to converge to, so the rule is on only if tau is given.
        prior: mean and covariance of the latents, for example ``problem.prior``; needs
            ``noise_std``. Residuals then count each component by its noise, methods that start at
            zero start at the mean, and inner solvers are preconditioned by the covariance. The
            solution then has error bars: ``std``, ``interval()``, ``posterior()``.
        max_iterations: accepted steps a row may take; the default is the method's.
        tolerance: stop at this RMS residual, normalised units.
        relative_tolerance: stop at this fraction of the residual at the start.
        gradient_tolerance: stop when the projected gradient has fallen to this fraction of its
            start; 0 switches the rule off, and either replaces the defaults of the next two. For
            the methods that do not have those the default is the square root of the precision of
            y's dtype, and off for the published D-IPG, which does not seek a stationary point.
        decrease_tolerance: gd, gn, lm and l-bfgs stop when a step lowers the objective by at most
            this share of it and their local model has no more to offer; by default the precision
            to the power 2/3. Below round-off they stop whatever this says.
        step_tolerance: they also stop when the step to the minimum of their local model is at most
            this share of x; the default is the same.
        history: keep per-iteration records (memory: rows times iterations).
        callback: called as ``callback(pass_number, snapshot)`` after the first evaluation and
            after each pass, in which every live row makes one trial; a true value ends the run.
        progress: show a progress bar (rows done).
    """
    chosen = get_method(method)
    y = check_rows("y", y)
    if noise_std is not None and hasattr(pair, "at_noise"):
        pair = pair.at_noise(noise_std)
    f, g = _maps(pair, chosen)
    if prior is not None and not isinstance(prior, GaussianPrior):
        raise ConfigError(
            "prior must have mean, apply and solve, as problem.prior has; "
            f"got {type(prior).__name__}"
        )
    scaler = _scaler(pair)
    _check_precision(pair, y)
    y_shape = tuple(y.shape[1:])
    if tau is not None:
        check_range("tau", tau, low=0, open_low=True)
    opaque = is_opaque(forward, differentiable, pair, chosen)
    started = time.perf_counter()
    warm = None
    if check_count("surrogate_steps", surrogate_steps, low=0):
        if forward is None:
            raise ConfigError(
                "surrogate_steps needs forward=...: without one every step is on the surrogate; "
                f"got {surrogate_steps}"
            )
        if chosen.direct:
            raise ConfigError(
                f"surrogate_steps has no use in method {chosen.name!r}, which takes no steps; "
                f"got {surrogate_steps}"
            )
        warm = solve(
            pair,
            y,
            method=chosen,
            x0=x0,
            bounds=bounds,
            noise_std=noise_std,
            prior=prior,
            tau=tau,
            max_iterations=surrogate_steps,
            tolerance=tolerance,
            relative_tolerance=relative_tolerance,
            gradient_tolerance=gradient_tolerance,
            decrease_tolerance=decrease_tolerance,
            step_tolerance=step_tolerance,
            history=False,
        )
        x0 = warm.x
    if opaque:
        chosen = by_values(chosen)
    own_rule = tolerance is not None or relative_tolerance is not None
    if noise_std is None and chosen.assumes_noise and not own_rule:
        noise_std = getattr(pair, "noise_std", None)
    surrogate_error = 0.0 if forward is not None else getattr(pair, "surrogate_error", 0.0)
    noise = noise_row(scaler, noise_std, y_shape)
    stopping = Stopping(
        tolerance=tolerance,
        relative_tolerance=relative_tolerance,
        discrepancy=None
        if noise is None or (prior is not None and tau is None)
        else discrepancy(noise, chosen.surrogate_margin * surrogate_error, tau),
        **stationarity(chosen, y.dtype, gradient_tolerance, decrease_tolerance, step_tolerance),
        progress=None if noise is None or prior is not None else chosen.progress,
    )
    limit = chosen.max_iterations if max_iterations is None else max_iterations
    check_count("max_iterations", limit, low=0)

    others = (getattr(pair, name, None) for name in ("wiener", "shrinkage"))
    maps = (pair, f, g, forward, *others)
    with torch.inference_mode(False), torch.no_grad(), evaluation_mode(*maps):
        target = y.detach().clone()
        if scaler is not None:
            target = scaler.normalise(target).to(y.dtype)
        if forward is not None:
            if opaque:
                forward = values_of(forward)
            forward = normalised(forward, scaler or Scaler(), y.dtype)
        start = start_rows(pair, chosen, target, x0, g, prior)
        x_shape = tuple(start.shape[1:])
        box = None
        if bounds is None:
            bounds = getattr(pair, "bounds", None)
        if bounds is not None:
            box = Box.parse(bounds, x_shape, start)
        x_flat = start.reshape(len(start), -1)
        if box is not None:
            x_flat = box.project(x_flat)

        tally = Tally(len(y), y.device)
        objective = objective_of(noise, surrogate_error, prior, x_shape, target)
        model = Model(
            forward or f,
            g,
            x_shape=x_shape,
            y_shape=y_shape,
            tally=tally,
            objective=objective,
            surrogate=f if opaque else None,
        )
        if chosen.start in ("reverse", "finite reverse") and x0 is None:
            model.charge("g")
        if warm is not None:
            for kind, spent in (("g", warm.cost.g), ("surrogate", warm.cost.forward)):
                model.charge(kind, spent)
        descent = chosen.descent(x_flat.shape[1])
        shrink = _flat_shrinkage(pair, x_shape) if chosen.shrinks else None
        recorder = None
        if history:
            recorder = Recorder(x_flat, components=y[0].numel(), rules=descent.rules)
        with progress_callback(callback, rows=len(y), enabled=progress) as watched:
            outcome = Loop(
                model,
                descent=descent,
                search=chosen.search,
                stopping=stopping,
                max_iterations=0 if chosen.direct else limit,
                direct=chosen.direct,
                box=box,
                recorder=recorder,
                callback=watched,
                shrink=shrink if forward is not None and prior is None else None,
            ).run(x_flat, target.reshape(len(y), -1))
    seconds = time.perf_counter() - started
    solution = _solution(outcome, x_shape, target[0].numel(), recorder, chosen.name, seconds)
    return informed(
        solution,
        pair,
        y,
        prior=prior,
        noise_std=noise_std,
        level=objective.level,
        bounds=bounds,
    )


def _solution(
    outcome: Outcome,
    x_shape: tuple[int, ...],
    components: int,
    recorder: Recorder | None,
    method: str,
    seconds: float,
) -> Solution:
    status_of = torch.tensor([reason.status for reason in Reason], device=outcome.reason.device)
    residual, first = ((fit * (2 / components)).sqrt() for fit in (outcome.fit, outcome.first_fit))
    return Solution(
        x=outcome.x.reshape(-1, *x_shape),
        status=status_of[outcome.reason],
        reason=outcome.reason,
        iterations=outcome.iterations,
        residual=residual,
        relative_residual=torch.where(first == 0, 0.0, residual / first),
        loss=outcome.misfit / components,
        cost=Cost(**outcome.cost),
        shrunk=outcome.shrunk,
        method=method,
        seconds=seconds,
        record=None if recorder is None else recorder.history,
    )


def _maps(pair: Pair | RowMap, method: Method) -> tuple[RowMap, RowMap | None]:
    if isinstance(pair, Pair):
        return pair.f, pair.g
    if not callable(pair):
        raise ConfigError(f"pair must have f and g or be callable; got {type(pair).__name__}")
    if method.needs_reverse:
        raise ConfigError(f"method {method.name!r} needs a pair with f and g; got a bare callable")
    return pair, None


def _scaler(pair: object) -> Scaler | None:
    scaler = getattr(pair, "scaler", None)
    return None if scaler is None or scaler.is_identity else scaler


def _check_precision(pair: object, y: Tensor) -> None:
    """A float64 y through float32 weights would fail deep inside a layer, with a worse message."""
    if not isinstance(pair, nn.Module):
        return
    for parameter in pair.parameters():
        if parameter.is_floating_point():
            check_rows("y", y, dtype=parameter.dtype, device=parameter.device)
            return


def _flat_shrinkage(pair: object, x_shape: tuple[int, ...]) -> RowMap | None:
    shrinkage = getattr(pair, "shrinkage", None)
    if shrinkage is None:
        return None
    return lambda x: shrinkage(x.reshape(-1, *x_shape)).reshape(x.shape)
