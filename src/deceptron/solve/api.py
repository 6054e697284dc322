"""The public entry: what was asked, resolved part by part, run, and reported back."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from deceptron.core.arrays import no_autocast
from deceptron.core.box import Bounds
from deceptron.core.protocols import GaussianPrior, Pair, RowMap
from deceptron.core.solution import Solution
from deceptron.solve.afterwards import solution_of
from deceptron.solve.failures import with_failures_begun_again, with_less_plausible_left
from deceptron.solve.forward import judged_together
from deceptron.solve.gaps import with_gaps_filled
from deceptron.solve.methods import Method
from deceptron.solve.plan import prepare
from deceptron.solve.request import Asked, Request
from deceptron.solve.snapshot import Callback


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

    The default, ``guarded``, starts at g(y), the network's answer. From how well that explains the
    data, and how well the training family does, it keeps it, corrects it by what is most
    plausible, or answers by what the family makes of the data.
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
    asked = Request(
        pair,
        y,
        method=method,
        forward=forward,
        differentiable=differentiable,
        surrogate_steps=surrogate_steps,
        x0=x0,
        bounds=bounds,
        noise_std=noise_std,
        prior=prior,
        tau=tau,
        max_iterations=max_iterations,
        tolerance=tolerance,
        relative_tolerance=relative_tolerance,
        gradient_tolerance=gradient_tolerance,
        decrease_tolerance=decrease_tolerance,
        step_tolerance=step_tolerance,
        history=history,
        callback=callback,
        progress=progress,
    ).checked()
    order: list[Tensor] = []
    solutions: list[Solution] = []
    with asked.watched() as watch, judged_together() as witness:
        for rows, part in asked.parts():
            warm = part.on_surrogate()
            first = None if warm is None or watch.ended else _carried_out(warm)
            order.append(rows)
            solutions.append(_carried_out(part, first, watch.of(rows)))
    witness.raise_if_silent()
    whole = solutions[0]
    if len(solutions) > 1:
        whole = Solution.joined(solutions)[torch.cat(order).argsort()]
    return asked.caller.answer(whole)


def _carried_out(
    asked: Asked, before: Solution | None = None, listener: Callback | None = None
) -> Solution:
    """Rows that run together, from where an earlier stage has left them."""
    started = time.perf_counter()
    with torch.inference_mode(False), torch.no_grad(), no_autocast():
        plan = prepare(asked, before)
        model = plan.model()
        if plan.beliefs is not None:
            plan = with_gaps_filled(plan, model)
        recorder = plan.recorder() if asked.request.history else None
        outcome = plan.run(model, plan.start, plan.target, recorder, listener)
        if plan.beliefs is not None:
            plan, outcome = with_failures_begun_again(plan, outcome, recorder)
            outcome = with_less_plausible_left(plan, outcome)
    seconds = time.perf_counter() - started + (0.0 if before is None else before.seconds)
    return solution_of(plan, outcome, recorder, asked.method.name, seconds)
