"""How the study runs each method: the solver, its stopping rules and whose physics it sees.

The paper's settings stop at an absolute residual, tuned ones at the level of the noise in the set;
methods with the prior go on to the most probable latent. Where the paper and its scripts state no
tolerance the value is ours: that of the nearest problem which has one. Tuned Newton methods
truncate their inner solves, which is cheaper and, on ill-posed problems, better than solving them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from torch import Tensor

from deceptron.core.errors import unknown_name
from deceptron.problems import Problem
from deceptron.solve import methods
from deceptron.solve.methods import Method
from deceptron.solve.searches import Armijo
from deceptron.study.document import as_json
from deceptron.study.names import METHODS, STEP_SIZE_METHODS

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
TUNED_ITERATIONS = 20
ORACLE_ITERATIONS = 15
# Ten steps beat thirty, which beat solving the system: RMSE of lm-tuned on navier-stokes-2d 0.068
# and 0.149, on advection-diffusion-2d 0.033 and 0.24 (thirty steps to 1e-2).
TRUNCATED: dict[str, Any] = {"linear": "cg", "cg_steps": 10, "cg_tolerance": 0.1}
ORACLE_CG: dict[str, Any] = {"linear": "cg", "cg_steps": 12, "cg_tolerance": 1e-2}
# Where a descent depends on the number of unknowns: the fewest of any problem.
UNKNOWNS = 64
# With the prior every system is well posed, and CG should go on. RMSE of Gauss-Newton from the
# prior's mean with at most 30 steps to 0.1 and with 100: navier-stokes-2d 0.0156 and 0.0127,
# allen-cahn-2d 0.034 and 0.014, darcy-2d (shifted, 8 Newton steps) 0.142 and 0.085.
COLD_CG: dict[str, Any] = {"linear": "cg", "cg_steps": 100, "cg_tolerance": 0.03}
# The projected gradient relative to its start. At 1e-2 allen-cahn-2d stops at 1.6 times the noise;
# 1e-3 is below float32's round-off on heat-1d, where line searches then spend 1600 evaluations.
COLD_GRADIENT = 3e-3
COLD_ITERATIONS, COLD_LBFGS_ITERATIONS = 10, 300


@dataclass(frozen=True)
class Solver:
    """One label of the study.

    ``stop`` names the rule: the paper's tolerance, the noise level, or none but the step limit and
    a vanishing gradient; ``limit`` is the step limit where the paper has none. ``physics`` says
    whether f of the pair or the simulator is in the objective, ``start`` whether rows begin where
    the method would have them or at the wiener estimate. ``alone`` says whether instances are also
    solved one at a time, for the latency: a row alone can cost as much as a batch of six.
    """

    method: Callable[[], Method]
    stop: Literal["paper", "noise", "never"]
    words: str
    physics: Literal["surrogate", "true"] = "surrogate"
    prior: bool = False
    uses_reverse: bool = False
    limit: int | None = None
    start: Literal["own", "wiener"] = "own"
    alone: bool = True

    def document(self) -> dict[str, Any]:
        """Every setting that a result depends on, as JSON values; read from the method it makes."""
        own = {e.name: getattr(self, e.name) for e in fields(self) if e.name != "words"}
        document: dict[str, Any] = as_json({**own, "method": _made(self.method())})
        return document

    def settings(
        self, problem: Problem, *, noise_std: float | Tensor, max_iterations: int | None
    ) -> dict[str, Any]:
        """Arguments of ``dc.solve`` beside the pair and the observations."""
        chosen: dict[str, Any] = {"method": self.method()}
        limit = max_iterations or self.limit
        if self.stop == "paper":
            chosen["tolerance"] = TOLERANCES[problem.name]
            limit = limit or ITERATIONS.get(problem.name, OTHER_ITERATIONS)
        elif self.stop == "noise" or self.prior:
            chosen["noise_std"] = noise_std
        if self.physics == "true":
            chosen["forward"] = problem.simulate
        if self.prior:
            chosen["prior"] = problem.prior
        return chosen if limit is None else {**chosen, "max_iterations": limit}


def _made(method: Method) -> dict[str, Any]:
    """A method's settings, with those of a method that it may hand over to."""
    made = {e.name: getattr(method, e.name) for e in fields(method)}
    made["descent"] = method.descent(UNKNOWNS)
    return {name: _made(v) if isinstance(v, Method) else v for name, v in made.items()}


def solver(label: str) -> Solver:
    """The solver of a label of ``names.METHODS``."""
    if label not in SOLVERS:
        raise unknown_name("method", label, METHODS)
    return SOLVERS[label]


def _published(name: str) -> Callable[[], Method]:
    return lambda: methods.published(name)


def _truncated_gn() -> Method:
    return methods.gauss_newton(**TRUNCATED)


def _oracle() -> Method:
    return methods.gauss_newton(**ORACLE_CG)


def _truncated_lm() -> Method:
    return methods.levenberg_marquardt(**TRUNCATED)


def _to_the_mode(make: Callable[..., Method], **settings: Any) -> Callable[[], Method]:
    return lambda: replace(make(**settings), gradient_tolerance=COLD_GRADIENT)


def _step_size(size: float) -> Callable[[], Method]:
    return lambda: methods.d_ipg(search=Armijo(initial_scale=size, require_descent=False))


SOLVERS: dict[str, Solver] = {
    "one-shot": Solver(methods.one_shot, "never", "the reverse network alone", uses_reverse=True),
    "wiener": Solver(methods.wiener, "never", "the closed-form ridge estimate from training pairs"),
    "d-ipg": Solver(
        methods.d_ipg, "paper", "Algorithm 1, the paper's tolerance", uses_reverse=True
    ),
    **{
        label: Solver(
            _step_size(size),
            "paper",
            f"Algorithm 1 with first step size {size:g}",
            uses_reverse=True,
        )
        for label, size in STEP_SIZE_METHODS.items()
    },
    "d-ipg-free": Solver(
        methods.d_ipg,
        "never",
        f"Algorithm 1 for {FREE_ITERATIONS} steps",
        uses_reverse=True,
        limit=FREE_ITERATIONS,
    ),
    "gd": Solver(_published("gd"), "paper", "gradient descent, the paper's settings"),
    "gn": Solver(_published("gn"), "paper", "Gauss-Newton, the paper's settings"),
    "lm": Solver(_published("lm"), "paper", "Levenberg-Marquardt, the paper's settings"),
    "l-bfgs": Solver(_published("l-bfgs"), "paper", "L-BFGS, the paper's settings"),
    "d-ipg-tuned": Solver(
        methods.d_ipg,
        "noise",
        "Algorithm 1, stopped at the noise level",
        uses_reverse=True,
        limit=OTHER_ITERATIONS,
    ),
    "gn-tuned": Solver(
        _truncated_gn, "noise", "Gauss-Newton, CG truncated at 10 steps", limit=TUNED_ITERATIONS
    ),
    "lm-tuned": Solver(
        _truncated_lm,
        "noise",
        "Levenberg-Marquardt, adaptive damping, CG truncated at 10 steps",
        limit=TUNED_ITERATIONS,
    ),
    "l-bfgs-tuned": Solver(
        methods.l_bfgs, "noise", "L-BFGS, stopped at the noise level", limit=200
    ),
    "guarded": Solver(
        methods.guarded, "noise", "the safeguarded learned step, from g(y)", uses_reverse=True
    ),
    "lm-true": Solver(
        _truncated_lm,
        "noise",
        "lm-tuned on the true simulator",
        physics="true",
        limit=TUNED_ITERATIONS,
    ),
    "guarded-true": Solver(
        methods.guarded,
        "noise",
        "guarded on the true simulator",
        physics="true",
        uses_reverse=True,
    ),
    "gn-prior": Solver(
        _oracle,
        "never",
        "oracle: Gauss-Newton on the true simulator with the prior, from the wiener estimate",
        physics="true",
        prior=True,
        limit=ORACLE_ITERATIONS,
        start="wiener",
    ),
    "guarded-prior": Solver(
        _to_the_mode(methods.guarded),
        "never",
        "guarded on the true simulator with the prior",
        physics="true",
        prior=True,
        uses_reverse=True,
        limit=COLD_ITERATIONS,
        alone=False,
    ),
    "gn-cold": Solver(
        _to_the_mode(methods.gauss_newton, **COLD_CG),
        "never",
        "Gauss-Newton on the true simulator with the prior, from the prior's mean",
        physics="true",
        prior=True,
        limit=COLD_ITERATIONS,
        alone=False,
    ),
    "lm-cold": Solver(
        _to_the_mode(methods.levenberg_marquardt, **COLD_CG),
        "never",
        "Levenberg-Marquardt on the true simulator with the prior, from the prior's mean",
        physics="true",
        prior=True,
        limit=COLD_ITERATIONS,
        alone=False,
    ),
    "l-bfgs-cold": Solver(
        _to_the_mode(methods.l_bfgs),
        "never",
        "L-BFGS on the true simulator with the prior, from the prior's mean",
        physics="true",
        prior=True,
        limit=COLD_LBFGS_ITERATIONS,
        alone=False,
    ),
}
