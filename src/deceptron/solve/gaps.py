"""A better start for rows with missing sensors: what those would have shown, by the surrogate.

A start is what the reverse map makes of a row whose gaps are filled by the covariance of the data
(``core/filling.py``). That is all one can do in a line, and too little where data are nonlinear or
few sensors are left. If such a start does not explain the sensors that are there, the gaps are
filled by f(x), with x the most plausible latent of the family given those sensors. The reverse map
then turns the full row into an answer, as it always does: it knows more of the family than its
covariance. All of it is passes through f, none through a simulator.

The linear estimate knows no more than covariances. With these filled it is the best linear estimate
from the sensors that are left, E[x | seen] = E[E[x | all] | seen], and stays where it is.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.bases import DiagonalGaussian
from deceptron.laws.noise import noise_limit
from deceptron.solve.loop import Loop
from deceptron.solve.methods import gauss_newton
from deceptron.solve.model import KINDS, Model, Tally
from deceptron.solve.noise import objective_of
from deceptron.solve.plan import Plan
from deceptron.solve.stopping import Stopping

# Rows that lack a smaller share of their sensors are left as they are.
LEAST_SHARE = 0.05
# Gauss-Newton steps on the surrogate, products in each, and the share of the objective that a step
# must gain to go on.
STEPS, PRODUCTS, ACCURACY, PROGRESS = 6, 60, 0.03, 0.01


def with_gaps_filled(plan: Plan, model: Model) -> Plan:
    """The plan with better starts where there are any; ``model`` is charged for them."""
    calibration, noise = plan.known.calibration, plan.believed_noise
    family, observed = calibration.family, plan.objective.observed
    if observed is None or family is None or noise is None:
        return plan
    if plan.linear_start and calibration.observations is not None:
        return plan
    missing = observed == 0
    share = missing.double().mean(1)
    rows = ((share >= LEAST_SHARE) & (share < 1)).nonzero().flatten()
    if len(rows) == 0:
        return plan
    residual = _over_noise(plan, plan.start[rows], rows)
    # Here f is the pair's own.
    kind_of = {kind: kind if plan.on_surrogate else "surrogate" for kind in ("f", "jvp", "vjp")}
    model.at(rows).charge(kind_of["f"])
    left = residual > noise_limit(plan.objective.count[rows])
    rows, residual = rows[left], residual[left]
    if len(rows) == 0:
        return plan
    part = model.at(rows)
    latents, cost = _most_plausible(plan, family, rows)
    for kind, counted in kind_of.items():
        part.charge(counted, cost[:, KINDS.index(kind)])
    part.charge(kind_of["f"], 2)
    start = part.g(torch.where(missing[rows], _predicted(plan, latents), plan.target[rows]))
    if plan.box is not None:
        start = plan.box.project(start)
    better = _over_noise(plan, start, rows) < residual
    starts = plan.start.clone()
    starts[rows[better]] = start[better]
    return replace(plan, start=starts)


def _most_plausible(
    plan: Plan, family: DiagonalGaussian, rows: Int[Tensor, " k"]
) -> tuple[Float[Tensor, "k n"], Int[Tensor, "k kinds"]]:
    """Of the family, given the sensors that are left, and what that cost."""
    target, noise = plan.target[rows], plan.believed_noise
    assert plan.objective.observed is not None
    assert noise is not None
    missing = plan.objective.observed[rows] == 0
    objective = objective_of(
        target,
        missing,
        noise if len(noise) == 1 else noise[rows],
        plan.known.calibration.surrogate_error,
        tau=None,
        prior=family,
        x_shape=plan.x_shape,
    )
    method = gauss_newton(cg_steps=PRODUCTS, cg_tolerance=ACCURACY)
    outcome = Loop(
        Model(
            plan.known.f,
            None,
            x_shape=plan.x_shape,
            y_shape=plan.y_shape,
            tally=Tally(len(rows), target.device),
            objective=objective,
        ),
        descent=method.descent(plan.start.shape[1]),
        search=method.search,
        stopping=Stopping(
            gradient_tolerance=0.0,
            decrease_tolerance=PROGRESS,
            step_tolerance=PROGRESS,
            progress=PROGRESS,
        ),
        max_iterations=STEPS,
        box=plan.box,
        recorder=None,
        callback=None,
    ).run(plan.start[rows], target)
    return outcome.x, outcome.cost


def _predicted(plan: Plan, x: Float[Tensor, "k n"]) -> Float[Tensor, "k m"]:
    return plan.known.f(x.reshape(-1, *plan.x_shape)).detach().flatten(1)


def _over_noise(
    plan: Plan, x: Float[Tensor, "k n"], rows: Int[Tensor, " k"]
) -> Float[Tensor, " k"]:
    """On the surrogate, whose own error counts as noise."""
    objective, noise = plan.objective.at(rows), plan.believed_noise
    assert noise is not None
    own = noise if len(noise) == 1 else noise[rows]
    error = torch.as_tensor(plan.known.calibration.surrogate_error).to(own)
    r = objective.difference(_predicted(plan, x), plan.target[rows])
    whitened = r / torch.hypot(torch.where(own.isinf(), 1.0, own), error).to(r)
    return (whitened.square().sum(1) / objective.count).sqrt()
