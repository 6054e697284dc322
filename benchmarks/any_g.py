"""Guarded with any g: as stationary as Gauss-Newton with a useless one, as cheap with a good one.

Two tables, float64, on the surrogates of the seven pairs that ship. *Any g*: g with random weights,
g = 0 and g that is NaN on some rows. Every solve starts at zero and no noise is stated, so rows go
on until their projected gradient has fallen. Gauss-Newton truncates its inner solves as guarded
does, does not look at g, and ends after 40 steps: it would not come to rest on three of the seven.
*The price of the guard*: with the trained g, evaluations of guarded over those of the unguarded
tangent form, both from g(y) to the level of noise and surrogate error: on the rows that both bring
there, and on all rows, where the tangent form pays for those on which it fails.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor

import deceptron as dc
from benchmarks.common import publish
from deceptron.core.protocols import RowMap
from deceptron.maps import Deceptron

ROWS = 2
PRICE_ROWS = 48
TAU = 1.1
SEED = 7
FALL = 1e4
ITERATIONS = 20_000
ITERATIONS_OF_NEWTON = 40


@dataclass(frozen=True)
class Plain:
    """f of a pair with another g, in normalised units; what else the pair knows is forgotten."""

    f: RowMap
    g: RowMap


def main() -> None:
    any_g()
    price_of_the_guard()


def any_g() -> None:
    """How far the projected gradient falls."""
    rows = []
    for name in dc.problems.names():
        pair, y = _case(name, ROWS)
        start = y.new_zeros(ROWS, *(pair.x_shape or ()))
        before = _stationarity(pair, start, y)
        rule = {
            "x0": start,
            "bounds": pair.bounds,
            "gradient_tolerance": 0.5 / FALL,
            "max_iterations": ITERATIONS,
        }
        newton = dc.solve(
            pair.f, y, method=_newton(), **{**rule, "max_iterations": ITERATIONS_OF_NEWTON}
        )
        for kind, g in _reverses(pair, y).items():
            guarded = dc.solve(Plain(pair.f, g), y, **rule)
            rows.append(
                {
                    "problem": name,
                    "g": kind,
                    "fall": _fall(pair, before, guarded, y),
                    "worse_than_start": int((guarded.loss > _loss(pair, start, y)).sum()),
                    "steps": float(guarded.iterations.double().mean()),
                    "evaluations": float(guarded.cost.evaluations.double().mean()),
                    "fall_of_gn": _fall(pair, before, newton, y),
                    "steps_of_gn": float(newton.iterations.double().mean()),
                    "evaluations_of_gn": float(newton.cost.evaluations.double().mean()),
                }
            )
    publish("any_g", "Least fall of the projected gradient among two rows, any g", rows)


def price_of_the_guard() -> None:
    """Evaluations to the noise."""
    rows = []
    for name in dc.problems.names():
        pair, y = _case(name, PRICE_ROWS)
        noise = pair.scaler.noise_level(dc.problems.get(name).noise_std, tuple(y.shape[1:]))
        rule = {
            "x0": dc.solve(pair, pair.scaler.denormalise(y), method="one-shot").x,
            "noise_std": math.hypot(noise, pair.surrogate_error),
            "tau": TAU,
            "bounds": pair.bounds,
            "max_iterations": 10,
        }
        plain = Plain(pair.f, pair.g)
        tangent = dc.solve(plain, y, method="d-ipg-tangent", **rule)
        guarded = dc.solve(plain, y, **rule)
        both = tangent.converged & guarded.converged
        prices = [_mean(s.cost.evaluations, both) for s in (tangent, guarded)]
        totals = [float(s.cost.evaluations.sum()) for s in (tangent, guarded)]
        rows.append(
            {
                "problem": name,
                "rows": PRICE_ROWS,
                "explained_by_g": int((tangent.iterations == 0).sum()),
                "tangent_gets_there": int(tangent.converged.sum()),
                "guarded_gets_there": int(guarded.converged.sum()),
                "tangent": prices[0],
                "guarded": prices[1],
                "ratio": prices[1] / prices[0],
                "ratio_all_rows": totals[1] / totals[0],
            }
        )
    publish("guard_price", "Evaluations from g(y) to the noise: guarded over tangent", rows)


def _newton() -> dc.methods.Method:
    return dc.methods.gauss_newton(linear="cg", cg_steps=20, cg_tolerance=0.05)


def _fall(pair: Deceptron, before: Tensor, solution: dc.Solution, y: Tensor) -> float:
    return float((before / _stationarity(pair, solution.x, y)).min())


def _case(name: str, rows: int) -> tuple[Deceptron, Tensor]:
    pair = dc.load(name).double().eval().requires_grad_(False)
    y = dc.problems.get(name).dataset(seed=SEED).test.y[:rows].double()
    return pair, pair.scaler.normalise(y)


def _reverses(pair: Deceptron, y: Tensor) -> dict[str, RowMap]:
    lost = y.flatten(1).mean(1).median()

    def sometimes_nan(rows: Tensor) -> Tensor:
        nan = rows.flatten(1).mean(1) > lost
        x = pair.g(rows)
        return torch.where(nan.reshape(-1, *(1,) * (x.ndim - 1)), torch.nan, x)

    return {
        "random": _random(pair.g),
        "zero": lambda rows: rows.new_zeros(len(rows), *(pair.x_shape or ())),
        "nan on some rows": sometimes_nan,
    }


def _random(g: torch.nn.Module) -> torch.nn.Module:
    """The same network with weights drawn anew, each tensor as large as it was."""
    generator = torch.Generator().manual_seed(SEED)
    drawn = copy.deepcopy(g)
    for weight in drawn.parameters():
        size = weight.square().mean().sqrt()
        weight.copy_(size * torch.randn(weight.shape, dtype=weight.dtype, generator=generator))
    return drawn


def _loss(pair: Deceptron, x: Tensor, y: Tensor) -> Tensor:
    return 0.5 * (pair.f(x) - y).square().flatten(1).mean(1)


def _stationarity(pair: Deceptron, x: Tensor, y: Tensor) -> Tensor:
    """|x - P(x - grad)| of half the squared residual."""
    low, high = pair.bounds or (-torch.inf, torch.inf)
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(0.5 * (pair.f(x) - y).square().sum(), x)
    x = x.detach()
    return (x - (x - gradient).clamp(low, high)).flatten(1).norm(dim=1)


def _mean(counts: Tensor, rows: Tensor) -> float:
    return float(counts[rows].double().mean()) if bool(rows.any()) else float("nan")


if __name__ == "__main__":
    main()
