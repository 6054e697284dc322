"""How the study runs each method: the solver, its stopping rules and whose physics it sees.

The paper's settings stop at an absolute residual, tuned ones at the level of the noise in the set.
Where the paper and its scripts state no tolerance the value is ours: that of the nearest problem
which has one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from deceptron.core.errors import DeceptronError, unknown_name
from deceptron.problems import Problem
from deceptron.solve import methods, solve
from deceptron.solve.methods import Method
from deceptron.solve.searches import Armijo
from deceptron.study.names import METHODS, STEP_SIZES

# RMS residual in normalised units; published for heat-1d, heat-3d and allen-cahn-2d.
TOLERANCES = {
    "heat-1d": 0.30,
    "heat-2d": 0.38,
    "heat-3d": 0.38,
    "darcy-2d": 0.30,
    "advection-diffusion-2d": 0.12,
    "allen-cahn-2d": 0.12,
    "navier-stokes-2d": 0.12,
}
ITERATIONS = {"heat-1d": 120}
OTHER_ITERATIONS = 80
FREE_ITERATIONS = 40


class Unavailable(DeceptronError):
    """This version of the library lacks what a method needs."""


@dataclass(frozen=True)
class Solver:
    """One label of the study.

    ``stop`` names the rule: the paper's tolerance, the noise level, or none but the step limit.
    ``physics`` says whether f of the pair or the simulator is in the objective.
    """

    method: Callable[[], Method]
    stop: Literal["paper", "noise", "never"]
    words: str
    physics: Literal["surrogate", "true"] = "surrogate"
    prior: bool = False
    uses_reverse: bool = False

    def settings(
        self, problem: Problem, *, noise_std: float | Tensor, max_iterations: int | None
    ) -> dict[str, Any]:
        """Arguments of ``dc.solve`` beside the pair and the observations."""
        chosen: dict[str, Any] = {"method": self.method()}
        limit = max_iterations
        if self.stop == "paper":
            chosen["tolerance"] = TOLERANCES[problem.name]
            limit = limit or ITERATIONS.get(problem.name, OTHER_ITERATIONS)
        elif self.stop == "noise":
            chosen["noise_std"] = noise_std
        else:
            limit = limit or FREE_ITERATIONS
        if self.physics == "true":
            chosen["forward"] = problem.simulate
        if self.prior:
            if "prior" not in inspect.signature(solve).parameters:
                raise Unavailable("this version of dc.solve takes no prior")
            chosen["prior"] = problem.prior
        return chosen if limit is None else {**chosen, "max_iterations": limit}


def solver(label: str) -> Solver:
    """The solver of a label of ``names.METHODS``."""
    if label not in SOLVERS:
        raise unknown_name("method", label, METHODS)
    return SOLVERS[label]


def _published(name: str) -> Callable[[], Method]:
    return lambda: methods.published(name)


def _named(name: str) -> Callable[[], Method]:
    def build() -> Method:
        if name not in methods.METHODS:
            raise Unavailable(f"this version of dc.solve has no method {name!r}")
        return methods.METHODS[name]()

    return build


def _step_size(size: float) -> Callable[[], Method]:
    return lambda: methods.d_ipg(search=Armijo(initial_scale=size, require_descent=False))


def _direct(name: str, words: str) -> Solver:
    return Solver(_named(name), "never", words, uses_reverse=name == "one-shot")


SOLVERS: dict[str, Solver] = {
    "one-shot": _direct("one-shot", "the reverse network alone"),
    "wiener": _direct("wiener", "the closed-form ridge estimate from training pairs"),
    "d-ipg": Solver(
        methods.d_ipg, "paper", "Algorithm 1, the paper's tolerance", uses_reverse=True
    ),
    **{
        f"d-ipg a={size:g}": Solver(
            _step_size(size),
            "paper",
            f"Algorithm 1 with first step size {size:g}",
            uses_reverse=True,
        )
        for size in STEP_SIZES
    },
    "d-ipg-free": Solver(
        methods.d_ipg, "never", f"Algorithm 1 for {FREE_ITERATIONS} steps", uses_reverse=True
    ),
    "gd": Solver(_published("gd"), "paper", "gradient descent, the paper's settings"),
    "gn": Solver(_published("gn"), "paper", "Gauss-Newton, the paper's settings"),
    "lm": Solver(_published("lm"), "paper", "Levenberg-Marquardt, the paper's settings"),
    "l-bfgs": Solver(_published("l-bfgs"), "paper", "L-BFGS, the paper's settings"),
    "d-ipg-tuned": Solver(
        methods.d_ipg, "noise", "Algorithm 1, stopped at the noise level", uses_reverse=True
    ),
    "gn-tuned": Solver(methods.gauss_newton, "noise", "Gauss-Newton as this library runs it"),
    "lm-tuned": Solver(
        methods.levenberg_marquardt, "noise", "Levenberg-Marquardt as this library runs it"
    ),
    "l-bfgs-tuned": Solver(methods.l_bfgs, "noise", "L-BFGS as this library runs it"),
    "guarded": Solver(
        _named("guarded"), "noise", "the learned step inside a safeguard", uses_reverse=True
    ),
    "lm-true": Solver(
        methods.levenberg_marquardt,
        "noise",
        "Levenberg-Marquardt on the true simulator",
        physics="true",
    ),
    "guarded-true": Solver(
        _named("guarded"),
        "noise",
        "the safeguarded learned step on the true simulator",
        physics="true",
        uses_reverse=True,
    ),
    "gn-prior": Solver(
        methods.gauss_newton,
        "noise",
        "oracle: Gauss-Newton on the true simulator with the prior",
        physics="true",
        prior=True,
    ),
}
