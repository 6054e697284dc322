"""The classical methods beside SciPy on the problems of More, Garbow and Hillstrom.

``minima`` counts starts from which the lowest known sum of squares is reached to four digits, out
of 108: forty problems from 1, 10 and 100 times their standard start. ``false`` counts rows that
ended CONVERGED although SciPy's trf, started there with tight tolerances, lowers the sum of squares
by more than 1e-3 of its value (``false_of_start``: of its value at the start). SciPy runs with its
own tolerances and up to 2000 evaluations; success as it reports it counts as CONVERGED.

The second table has boxes about the standard start that cut the way to the minimum: l-bfgs and
L-BFGS-B with the same memory and decrease tolerance, where both end at the same minimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

import deceptron as dc
from benchmarks.common import publish
from tests.solve.standard_problems import PROBLEMS, LeastSquares

EVALUATIONS = 2000
TIGHT = {"ftol": 1e-14, "xtol": 1e-14, "gtol": 1e-14, "max_nfev": 200}
DECREASE = 1e-10


@dataclass(frozen=True)
class Answers:
    """Per start of one problem."""

    x: Tensor
    converged: Tensor
    evaluations: Tensor


def ours(problem: LeastSquares, method: str) -> Answers:
    x0 = problem.starts
    target = torch.zeros_like(problem.residuals(x0))
    settings = {"x0": x0, "max_iterations": EVALUATIONS, "history": False}
    solution = dc.solve(problem.residuals, target, method=method, **settings)
    return Answers(solution.x, solution.converged, solution.cost.f)


def scipys(problem: LeastSquares, method: str) -> Answers:
    found = [problem.least_squares(start, method, max_nfev=EVALUATIONS) for start in problem.starts]
    rows = zip(found, problem.starts, strict=True)
    return Answers(
        torch.stack([x0 if end is None else torch.as_tensor(end.x) for end, x0 in rows]),
        torch.tensor([end is not None and end.success for end in found]),
        torch.tensor([0 if end is None else end.nfev for end in found]),
    )


def polished(problem: LeastSquares, x: Tensor, squares: Tensor) -> Tensor:
    """The sums of squares to which SciPy lowers those at ``x``."""
    ends = [problem.least_squares(row, "trf", **TIGHT) for row in x]
    better = torch.tensor([torch.inf if end is None else 2 * end.cost for end in ends])
    return torch.minimum(better.to(squares), squares)


def row(name: str, solver: str, method: str) -> dict[str, object]:
    reached = false = false_of_start = cases = 0
    evaluations = []
    for problem in PROBLEMS:
        found = ours(problem, method) if solver == "deceptron" else scipys(problem, method)
        squares, first = problem.squares(found.x), problem.squares(problem.starts)
        above = squares - polished(problem, found.x, squares)
        cases += len(squares)
        reached += int(problem.reached(squares).sum())
        false += int((found.converged & (above > 1e-3 * squares + 1e-10)).sum())
        false_of_start += int((found.converged & (above > 1e-3 * first)).sum())
        evaluations += found.evaluations.tolist()
    return {
        "solver": name,
        "minima": reached,
        "of": cases,
        "false": false,
        "false_of_start": false_of_start,
        "evaluations": median(evaluations),
    }


def boxed(problem: LeastSquares, box: tuple[Tensor, Tensor]) -> dict[str, object]:
    """Evaluations of l-bfgs and L-BFGS-B from the standard start; ``same``: one minimum."""
    x0 = problem.starts[:1]
    target = torch.zeros_like(problem.residuals(x0))
    solution = dc.solve(
        problem.residuals,
        target,
        x0=x0,
        method="l-bfgs",
        bounds=box,
        decrease_tolerance=DECREASE,
        max_iterations=EVALUATIONS,
        history=False,
    )
    limits = {"maxiter": EVALUATIONS, "maxfun": 10 * EVALUATIONS}
    scipy = problem.l_bfgs_b(x0[0], box, ftol=DECREASE, gtol=0.0, maxcor=20, **limits)
    here, there = float(problem.squares(solution.x)), 2 * scipy.fun
    return {
        "ours": int(solution.cost.f),
        "scipy": int(scipy.nfev),
        "same": abs(here - there) <= 1e-3 * max(here, there) + 1e-8,
        "lower": here <= there * (1 + 1e-3) + 1e-8,
    }


def main() -> None:
    solvers = [("deceptron", name) for name in ("lm", "gn", "l-bfgs")]
    solvers += [("SciPy", name) for name in ("lm", "trf")]
    rows = [row(f"{solver} {name}", solver, name) for solver, name in solvers]
    publish("least_squares", "More, Garbow and Hillstrom: minima reached", rows)

    found = [boxed(problem, box) for problem in PROBLEMS for box in problem.boxes()]
    ratios = [case["ours"] / case["scipy"] for case in found if case["same"]]
    summary = {
        "boxes": len(found),
        "same_minimum": len(ratios),
        "median_ratio_of_evaluations": median(ratios),
        "ours_as_low": sum(bool(case["lower"]) for case in found),
    }
    publish("least_squares_boxed", "l-bfgs over L-BFGS-B in a box", [summary])


if __name__ == "__main__":
    main()
