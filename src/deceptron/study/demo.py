"""The library's main job in a minute: shipped models on fresh instances, beside the classics."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Generator, Tensor

from deceptron import maps, problems
from deceptron.core.checks import check_count
from deceptron.solve import methods
from deceptron.solve.methods import Method
from deceptron.study.measure import Measurement, measure, simulate

DEMO_PROBLEMS = ("heat-1d", "darcy-2d", "navier-stokes-2d")


@dataclass(frozen=True)
class Demo:
    """Fresh instances of one problem and what each method made of them."""

    problem: str
    x: Float[Tensor, "B *x"]
    y: Float[Tensor, "B *y"]
    measurements: list[Measurement]


def run_demo(name: str, *, count: int = 16, seed: int = 2026) -> Demo:
    """Solve ``count`` fresh noisy instances of a problem with one-shot, D-IPG and LM.

    The iterative methods start at x = 0 and go on until the residual is at the level of noise
    and surrogate error, or for 30 iterations.
    """
    check_count("count", count)
    problem, pair = problems.get(name), maps.load(name)
    latents, noise = (Generator().manual_seed(2 * seed + part) for part in range(2))
    x = problem.sample(count, generator=latents)
    y = problem.add_noise(simulate(problem, x), generator=noise)
    settings = {"noise_std": problem.noise_std, "max_iterations": 30, "history": False}
    return Demo(
        name,
        x,
        y,
        [
            measure(pair, problem, x, y, label=label, method=method, **settings)
            for label, method in _methods().items()
        ],
    )


def _methods() -> dict[str, Method]:
    return {
        "one-shot": methods.one_shot(),
        "D-IPG": methods.d_ipg(),
        "LM, no prior": methods.levenberg_marquardt(cg_steps=30, cg_tolerance=1e-3),
    }
