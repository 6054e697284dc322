"""The library's main job in a minute: shipped models on fresh instances, beside the classics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Generator, Tensor

from deceptron import maps, problems
from deceptron.core.checks import check_count, check_seed
from deceptron.measure import Measurement, measure, simulate
from deceptron.solve.methods import levenberg_marquardt


@dataclass(frozen=True)
class Demo:
    """Fresh instances of one problem and what each method made of them."""

    problem: str
    x: Float[Tensor, "B *x"]
    y: Float[Tensor, "B *y"]
    measurements: list[Measurement]


def run_demo(name: str, *, count: int = 16, seed: int = 2026) -> Demo:
    """Solve ``count`` fresh noisy instances of a problem with one-shot, guarded, D-IPG and LM.

    D-IPG and LM start at x = 0 on the surrogate and go on until the residual is at the level of
    noise and surrogate error, or for 30 iterations; guarded works on the simulator.
    """
    check_count("count", count)
    check_seed(seed)
    problem, pair = problems.get(name), maps.load(name)
    latents, noise = (Generator().manual_seed(2 * seed + part) for part in range(2))
    x = problem.sample(count, generator=latents)
    y = problem.add_noise(simulate(problem, x), generator=noise)
    limits: dict[str, Any] = {"noise_std": problem.noise_std, "max_iterations": 30}
    run: dict[str, dict[str, Any]] = {
        "one-shot": {"method": "one-shot"},
        "dc.solve": {"method": "guarded", "forward": problem.simulate},
        "D-IPG": {"method": "d-ipg"},
        "LM, no prior": {"method": levenberg_marquardt(cg_steps=30, cg_tolerance=1e-3)},
    }
    measured = [
        measure(pair, problem, x, y, label=label, history=False, **limits, **own)
        for label, own in run.items()
    ]
    return Demo(name, x, y, measured)
