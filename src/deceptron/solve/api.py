"""The public entry: check what was asked, bring it to flat normalised rows, run, report back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from deceptron.core.box import Bounds, Box
from deceptron.core.checks import check_count, check_range, check_rows
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.protocols import GaussianPrior, Pair, RowMap
from deceptron.core.scaler import Scaler
from deceptron.core.solution import Cost, Solution
from deceptron.core.status import Reason
from deceptron.solve.afterwards import informed
from deceptron.solve.evaluation import evaluation_mode
from deceptron.solve.loop import Callback, Loop, Outcome
from deceptron.solve.methods import Method, by_values, get_method
from deceptron.solve.model import Model, Tally
from deceptron.solve.objective import LeastSquares, Posterior
from deceptron.solve.progress import progress_callback
from deceptron.solve.recorder import Recorder
from deceptron.solve.stopping import Stopping

# Of the standard normal distribution.
QUANTILE_99 = 2.326


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
            start; 0 switches the rule off. The default is the square root of the precision of
            y's dtype, and off for the published D-IPG, which does not seek a stationary point.
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
    opaque = _is_opaque(forward, differentiable, pair, chosen)
    started = time.perf_counter()
    warm = None
    if check_count("surrogate_steps", surrogate_steps, low=0):
        if forward is None:
            raise ConfigError(
                "surrogate_steps needs forward=...: without one every step is on the surrogate; "
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
            history=False,
        )
        x0 = warm.x
    if opaque:
        chosen = by_values(chosen)
    own_rule = tolerance is not None or relative_tolerance is not None
    if noise_std is None and chosen.assumes_noise and not own_rule:
        noise_std = getattr(pair, "noise_std", None)
    surrogate_error = 0.0 if forward is not None else getattr(pair, "surrogate_error", 0.0)
    noise = _noise(scaler, noise_std, y_shape)
    stopping = Stopping(
        tolerance=tolerance,
        relative_tolerance=relative_tolerance,
        discrepancy=None
        if noise is None or (prior is not None and tau is None)
        else _discrepancy(noise, chosen.surrogate_margin * surrogate_error, tau),
        gradient_tolerance=_gradient_rule(chosen, gradient_tolerance, y.dtype),
        progress=None if noise is None or prior is not None else chosen.progress,
    )
    limit = chosen.max_iterations if max_iterations is None else max_iterations
    check_count("max_iterations", limit, low=0)

    maps = (pair, f, g, forward, getattr(pair, "wiener", None))
    with torch.inference_mode(False), torch.no_grad(), evaluation_mode(*maps):
        target = y.detach().clone()
        if scaler is not None:
            target = scaler.normalise(target).to(y.dtype)
        if forward is not None:
            if opaque:
                forward = _opaque(forward)
            forward = _normalised(forward, scaler or Scaler(), y.dtype)
        start = _start(pair, chosen, target, x0, g, prior)
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
        objective = _objective(noise, surrogate_error, prior, x_shape, target)
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


def _noise(
    scaler: Scaler | None, noise_std: float | Tensor | None, y_shape: tuple[int, ...]
) -> Tensor | None:
    """Standard deviation of the noise, normalised units, one row of y."""
    if noise_std is None:
        return None
    level = torch.as_tensor(noise_std)
    if not bool(((level >= 0) & level.isfinite()).all()):
        raise ConfigError(f"noise_std must be finite and >= 0; got {noise_std}")
    try:
        return (scaler or Scaler()).noise(noise_std, y_shape)
    except RuntimeError:
        raise ShapeError(
            f"noise_std must broadcast to one row of y, shape {y_shape}; "
            f"got shape {tuple(level.shape)}"
        ) from None


def _discrepancy(noise: Tensor, surrogate_error: float, tau: float | None) -> float:
    """The residual at which what is left may be noise, or the surrogate's fault.

    The mean of independent squares s_i^2 chi^2_1 has a relative standard deviation of
    sqrt(2 sum s^4) / sum s^2, and its root half of that.
    """
    if tau is None:
        variance = noise.double().square()
        total = variance.sum().clamp_min(torch.finfo(torch.float64).tiny)
        tau = 1 + 0.5 * QUANTILE_99 * float((2 * variance.square().sum()).sqrt() / total)
    return math.hypot(tau * _rms(noise), tau * surrogate_error)


def _rms(row: Tensor) -> float:
    return float(row.square().mean().sqrt())


def _objective(
    noise: Tensor | None,
    surrogate_error: float,
    prior: GaussianPrior | None,
    x_shape: tuple[int, ...],
    like: Tensor,
) -> LeastSquares:
    """With a prior, what f cannot explain weighs it against the data."""
    if noise is not None:
        noise = torch.hypot(noise, torch.as_tensor(surrogate_error).to(noise))
    level = None if noise is None else _rms(noise)
    if prior is None:
        return LeastSquares(level)
    _check_prior(prior, x_shape)
    if noise is None or level is None or not bool((noise > 0).all()):
        raise ConfigError("prior needs noise_std > 0: the noise weighs the prior against the data")
    return Posterior(level, (level / noise).to(like).reshape(-1), prior, x_shape)


def _check_prior(prior: GaussianPrior | None, x_shape: tuple[int, ...]) -> None:
    if prior is not None and tuple(prior.mean.shape) != x_shape:
        raise ShapeError(
            f"prior.mean must have the shape of one row of x, {x_shape}; "
            f"got {tuple(prior.mean.shape)}"
        )


def _gradient_rule(method: Method, asked: float | None, dtype: torch.dtype) -> float | None:
    rule = method.gradient_tolerance if asked is None else asked
    if rule is None:
        return float(torch.finfo(dtype).eps ** 0.5)
    return rule if rule != 0 else None


def _normalised(forward: RowMap, scaler: Scaler, dtype: torch.dtype) -> RowMap:
    return lambda x: scaler.normalise(forward(x)).to(dtype)


def _is_opaque(
    forward: RowMap | None, differentiable: bool | None, pair: object, method: Method
) -> bool:
    """Whether only values of ``forward`` can be had; a problem's simulator says so itself."""
    if differentiable is None:
        differentiable = getattr(getattr(forward, "__self__", None), "differentiable", True)
    if differentiable:
        return False
    if forward is None:
        raise ConfigError("differentiable=False is about forward=..., which is not given")
    if not isinstance(pair, Pair) and not method.direct:
        raise ConfigError(
            "differentiable=False needs a pair whose f lends its derivatives; got a bare callable"
        )
    return True


def _opaque(forward: Callable[[Tensor], Any]) -> RowMap:
    """Plain values in, rows of any array type out."""
    return lambda x: torch.as_tensor(forward(x.detach())).to(x)


def _start(
    pair: object,
    method: Method,
    target: Tensor,
    x0: Tensor | None,
    g: RowMap | None,
    prior: GaussianPrior | None,
) -> Tensor:
    """Rows to start from, in x's own shape."""
    if x0 is not None:
        if method.direct:
            raise ConfigError(f"x0 has no use in method {method.name!r}; leave it out")
        check_rows("x0", x0, dtype=target.dtype, device=target.device)
        if len(x0) != len(target):
            raise ShapeError(f"x0 must have as many rows as y, {len(target)}; got {len(x0)}")
        return x0.detach().clone()
    if method.start == "wiener":
        estimate = getattr(pair, "wiener", None)
        if estimate is None:
            raise ConfigError(
                "method 'wiener' needs a pair that carries its ridge estimate: "
                "pair.wiener = dc.maps.Wiener.fit(x, y, noise_std=...)"
            )
        return _reverse_rows("wiener", estimate, target)
    if method.start == "reverse" and g is not None:
        return _reverse_rows("g", g, target)
    if method.start == "finite reverse" and g is not None:
        estimate = _reverse_rows("g", g, target)
        _check_prior(prior, tuple(estimate.shape[1:]))
        finite = estimate.flatten(1).isfinite().all(1)
        cold = torch.zeros_like(estimate) if prior is None else prior.mean.to(estimate)
        return torch.where(finite.reshape(-1, *(1,) * (estimate.ndim - 1)), estimate, cold)
    if prior is not None:
        _check_prior(prior, getattr(pair, "x_shape", None) or tuple(prior.mean.shape))
        return prior.mean.to(target).expand(len(target), *prior.mean.shape).clone()
    x_shape = getattr(pair, "x_shape", None)
    if x_shape is None:
        if g is None:
            raise ConfigError("x0 is required when f is a bare callable: its shape is unknown")
        x_shape = tuple(_reverse_rows("g", g, target[:1]).shape[1:])
    return target.new_zeros(len(target), *x_shape)


def _reverse_rows(name: str, reverse: RowMap, target: Tensor) -> Tensor:
    x = reverse(target)
    if not isinstance(x, Tensor) or x.ndim == 0 or len(x) != len(target):
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ShapeError(f"{name} must return one row of x for each row of y; it returned {got}")
    return x.detach()
