"""The public entry: check what was asked, bring it to flat normalised rows, run, report back."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from deceptron.core.arrays import as_rows, no_autocast, real_tensor
from deceptron.core.box import Bounds
from deceptron.core.checks import check_count, check_flags
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.protocols import GaussianPrior, Pair, RowMap
from deceptron.core.solution import Solution
from deceptron.solve.afterwards import solution_of
from deceptron.solve.direct import answered
from deceptron.solve.failures import with_failures_begun_again
from deceptron.solve.forward import Normalised, as_forward, judged_together
from deceptron.solve.gaps import with_gaps_filled
from deceptron.solve.loop import Loop
from deceptron.solve.methods import Method, believing, by_values, get_method
from deceptron.solve.model import Model
from deceptron.solve.noise import noise_rows
from deceptron.solve.outcome import Outcome
from deceptron.solve.recorder import Recorder
from deceptron.solve.snapshot import Callback, Snapshot, progress_callback
from deceptron.solve.starts import given_rows
from deceptron.solve.stopping import Stopping, stationarity
from deceptron.solve.task import Known, posterior_of, prepare
from deceptron.solve.units import Door

# Rows, and numbers in them, that are solved together: more of them cost memory and save no time.
# A network keeps some two kilobytes for each number until its gradient has been asked for.
ROWS, NUMBERS = 4096, 2**19


def solve(
    pair: Pair | RowMap,
    y: Any,
    *,
    method: str | Method = "guarded",
    forward: Any = None,
    differentiable: bool | None = None,
    surrogate_steps: int = 0,
    x0: Tensor | None = None,
    bounds: Bounds | None = None,
    noise_std: Any = None,
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
    """Find, for each row of ``y``, a latent x whose prediction explains it::

        solution = dc.solve(pair, y, forward=problem)  # on the true simulator
        solution.x, solution.std, solution.trust

    The default, ``guarded``, starts at g(y), the network's answer, and keeps it where it explains
    the data to the noise. Elsewhere it adds the most plausible correction that makes it fit.
    Other methods minimise ``0.5 * mean(((f(x) - y) / s)**2)`` within the bounds, in the pair's
    normalised units, s = 1 where no noise is known; with a ``prior``, the negative log posterior.
    Rows never influence each other: N rows together give what N solves give.

    Args:
        pair: anything with ``f`` and ``g``; the classical methods also take a bare callable f.
            Its ``scaler``, ``bounds`` and ``calibration``, if it has them, are used.
        y: observations, one per row, in physical units; any array. NaN is a missing sensor.
        method: a name (see ``dc.methods.METHODS``) or a ``Method`` with your own settings.
        forward: replaces ``pair.f`` in the objective, for example by the true simulator. Takes
            latents, returns physical units. A problem stands for its simulator.
        differentiable: False if ``forward`` gives values only: NumPy code, an external program. It
            is then called with plain tensors, may return any array, and is never differentiated:
            images of directions are differences of its values, and what derivatives a method needs
            are those of the pair's f. By default True, or what the simulator says of itself.
        surrogate_steps: with ``forward``, take up to this many steps on the pair's f first. They
            are counted apart, as ``cost.surrogate``.
        x0: where to start; the default is the method's (guarded: g(y); most others: zero),
            projected on the bounds.
        bounds: ``(low, high)``, numbers or tensors that broadcast to one row of x; by default
            those of the pair.
        noise_std: standard deviation of the noise in y, physical units: a number, one row of y,
            ``(B, 1, ...)`` with one for each row, or the shape of y; infinite is a missing sensor.
            Residuals are then divided by it, and rows stop once they are down to it (the
            discrepancy principle). A pair that was trained for a range of noise levels is used at
            that of each row, to 2%. Without it the guarded method assumes the noise of training,
            unless another stopping rule is given, and estimates whether data are noisier.
        prior: mean and covariance of the latents to regularise by, for example
            ``problem.prior``; needs ``noise_std``. Methods that start at zero then start at the
            mean, and inner solvers are preconditioned by the covariance.
        tau: a row stops at tau times the noise level, by default the 99% quantile of pure noise:
            1.2 for 64 components, 1.05 for 1000. With a prior, which makes the answer unique, the
            rule is on only if tau is given.
        max_iterations: steps a row may take; the default is the method's.
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

    Returns:
        Solution: the answers. A row that fails raises nothing; its ``status`` says how it ended.
    """
    settings = {name: value for name, value in locals().items() if name not in ("pair", "y")}
    chosen = get_method(method)
    if getattr(pair, "units", None) is not None:
        door = Door.of(pair, bounds)
        return door.outwards(solve(pair.unitless, y, **door.inwards(settings)))  # type: ignore[union-attr]
    known = Known.of(pair)
    y = as_rows("y", y, shape=known.y_shape, like=known.like).detach()
    if y.ndim == 1 or not y.shape[1:].numel():
        raise ShapeError(
            f"y must have rows of one or more components; got shape {tuple(y.shape)} "
            "(y[None] is one row of them, y[:, None] many rows of one)"
        )
    if callback is not None and not callable(callback):
        raise ConfigError(f"callback must be a function; got {type(callback).__name__}")
    check_flags(differentiable=differentiable, history=history, progress=progress)
    if max_iterations is not None:
        check_count("max_iterations", max_iterations, low=0)
    noise_rows(noise_std, y, known.scaler)  # there must be one of each row of y, or one for all
    alike = known.rows_alike(pair, noise_std, len(y))
    largest = max(y[0].numel(), math.prod(known.x_shape or ()))
    together = max(1, min(ROWS, NUMBERS // largest))
    parts = [part for rows in alike for part in rows.split(together)]
    if len(parts) > 1:
        if x0 is not None:
            settings["x0"] = given_rows(x0, chosen, y, known.x_shape)
        return _in_parts(pair, y, parts, settings)
    known = known.at_noise(pair, noise_std)
    simulator = as_forward(forward)
    rules: dict[str, Any] = {"tolerance": tolerance, "relative_tolerance": relative_tolerance}
    own_rule = any(rule is not None for rule in (*rules.values(), gradient_tolerance))
    started = time.perf_counter()
    warm = None
    if check_count("surrogate_steps", surrogate_steps, low=0):
        _check_surrogate_steps(surrogate_steps, simulator, chosen)
        alone = {"forward": None, "differentiable": None, "callback": None, "progress": False}
        first = {"surrogate_steps": 0, "max_iterations": surrogate_steps, "history": False}
        warm = solve(pair, y, **{**settings, **alone, **first})
        x0 = warm.x
    with torch.inference_mode(False), torch.no_grad(), no_autocast():
        task = prepare(
            known,
            y.clone() if y.is_inference() else y,
            chosen,
            forward=simulator,
            differentiable=differentiable,
            x0=x0,
            bounds=bounds,
            noise_std=noise_std,
            prior=prior,
            tau=tau,
            own_rule=own_rule,
        )
        if task.beliefs is not None:
            chosen = believing(chosen, posterior_of(task, chosen.reverse_price))
        elif task.surrogate is not None:
            chosen = by_values(chosen)
        limit = max_iterations
        if limit is None:
            limit = chosen.max_iterations
        stopping = Stopping(
            discrepancy=task.objective.tau is not None and task.beliefs is None,
            **stationarity(chosen, y.dtype, gradient_tolerance, decrease_tolerance, step_tolerance),
            progress=chosen.progress if task.noise is not None and prior is None else None,
            **rules,
        )
        model = task.model()
        for kind, spent in task.start_cost.items():
            model.charge(kind, spent)
        if warm is not None:
            model.charge("g", warm.cost.g)
            model.charge("surrogate", warm.cost.forward)
        if task.beliefs is not None:
            task = with_gaps_filled(task, model)
        descent = chosen.descent(task.start.shape[1])

        def run(
            model: Model,
            start: Tensor,
            target: Tensor,
            recorder: Recorder | None = None,
            callback: Callback | None = None,
        ) -> Outcome:
            return Loop(
                model,
                descent=descent,
                search=chosen.search,
                stopping=stopping,
                max_iterations=limit,
                box=task.box,
                recorder=recorder,
                callback=callback,
            ).run(start, target)

        recorder = None
        if history:
            recorder = Recorder(task.start, rules=() if chosen.direct else descent.rules)
        ended = False
        with progress_callback(callback, rows=len(y), enabled=progress) as watched:

            def told(number: int, snapshot: Snapshot) -> bool:
                nonlocal ended
                ended = watched is not None and bool(watched(number, snapshot))
                return ended

            listener = watched and told
            if chosen.direct:
                outcome = answered(model, stopping, task.start, task.target, listener)
            else:
                outcome = run(model, task.start, task.target, recorder, listener)
        if task.beliefs is not None:
            if not ended:
                task, outcome = with_failures_begun_again(task, outcome, run, recorder)
    if isinstance(task.f, Normalised):
        task.f.witness.raise_if_silent()
    seconds = time.perf_counter() - started
    return solution_of(task, outcome, recorder, chosen.name, seconds)


def _in_parts(
    pair: Pair | RowMap, y: Tensor, parts: list[Int[Tensor, " k"]], settings: dict[str, Any]
) -> Solution:
    """Solve the rows of each part; what has a row for each of y's is cut with them.

    A callback that ends the run in one part is not asked again, and the rows of the parts that
    follow end where they start.
    """
    noise_std, x0 = settings["noise_std"], settings["x0"]
    cut: dict[str, Tensor] = {} if x0 is None else {"x0": x0}
    if noise_std is not None:
        noise = real_tensor("noise_std", noise_std)
        if noise.ndim == y.ndim and len(noise) == len(y):
            cut["noise_std"] = noise
    solutions: list[Solution] = []
    ended = False
    with progress_callback(
        settings["callback"], rows=len(y), enabled=settings["progress"]
    ) as watched:

        def told(rows: Tensor, number: int, snapshot: Snapshot) -> bool:
            nonlocal ended
            if not ended and watched is not None:
                own = replace(snapshot, rows=rows.to(snapshot.rows)[snapshot.rows])
                ended = bool(watched(number, own))
            return ended

        with judged_together() as witness:
            for rows in parts:
                here: dict[str, Any] = {name: array[rows] for name, array in cut.items()}
                here |= {"callback": watched and partial(told, rows), "progress": False}
                if ended:
                    here["surrogate_steps"] = 0
                solutions.append(solve(pair, y[rows], **{**settings, **here}))
    witness.raise_if_silent()
    return Solution.joined(solutions)[torch.cat(parts).argsort()]


def _check_surrogate_steps(steps: int, forward: RowMap | None, method: Method) -> None:
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
