"""What derivatives of the time-stepping simulators cost, in forward simulations and in memory.

``vjp`` and ``jvp`` include the simulation; ``next_vjp`` and ``next_jvp`` are further products at
the same point. ``plain`` is autograd through the steps. ``MiB_a_row`` is what the peak of the
process grows by during one vjp of all rows. exponax (JAX, compiled, one thread) solves the same
equation with as many steps; it stands beside where JAX and exponax are installed. Every grid has a
process of its own; times are medians of interleaved repeats, in CPU time of one thread.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import deceptron as dc
from benchmarks.common import interleaved, publish
from benchmarks.memory import peak_mib
from deceptron.core.differentiate import Linearisation, jvp
from deceptron.problems.allen_cahn import AllenCahn2D, _PhaseSteps
from deceptron.problems.navier_stokes import NavierStokes2D
from deceptron.problems.time_loops import TimeLoop
from deceptron.problems.vorticity import Vorticity

NAMES = ("navier-stokes-2d", "allen-cahn-2d")
ROWS = {32: 64, 64: 8, 128: 2}
REPEATS = 3
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def plain_steps(problem: dc.problems.Problem) -> TimeLoop:
    if isinstance(problem, NavierStokes2D):
        schedule = tuple(problem._schedule())
        return Vorticity(problem.grid, problem.viscosity, problem.amplitude, schedule)
    assert isinstance(problem, AllenCahn2D)
    steps, dt = problem._steps()
    return _PhaseSteps(problem.grid, problem.epsilon, dt, steps)


def vjp(function: Callable[[Tensor], Tensor], x: Tensor, w: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf, w)[0]


def ours(problem: dc.problems.Problem, x: Tensor) -> tuple[dict[str, object], float]:
    generator = torch.Generator().manual_seed(1)
    simulate, plain = problem.unchecked().simulate, plain_steps(problem).plain
    v = torch.randn(x.shape, generator=generator)
    w = torch.randn(simulate(x).shape, generator=generator)
    small = plain_steps(replace(problem, grid=16)).plain
    vjp(small, x[:1, :, :16, :16], w[:1, :, :16, :16])  # loads what a first use loads
    peaks = [peak_mib()]
    for function in (simulate, plain):
        vjp(function, x, w)
        peaks.append(peak_mib())
    at_x = Linearisation(simulate, x)
    took = interleaved(
        {
            "forward": lambda: simulate(x),
            "vjp": lambda: vjp(simulate, x, w),
            "jvp": lambda: jvp(simulate, x, v),
            "next_vjp": lambda: at_x.vjp(w),
            "next_jvp": lambda: at_x.jvp(v),
            "plain_vjp": lambda: vjp(plain, x, w),
        },
        repeats=REPEATS,
    )
    forward = took.pop("forward")
    measured: dict[str, object] = {"forward_ms_a_row": 1e3 * forward / len(x)}
    measured |= {name: taken / forward for name, taken in took.items()}
    measured["MiB_a_row"] = (peaks[1] - peaks[0]) / len(x)
    measured["plain_MiB_a_row"] = (peaks[2] - peaks[0]) / len(x)
    return measured, forward


def exponax_steps(problem: dc.problems.Problem) -> Any:
    import exponax as ex

    if isinstance(problem, NavierStokes2D):
        (steps, dt), *_ = problem._schedule()
        stepper = ex.stepper.NavierStokesVorticity(
            2, 1.0, problem.grid, dt, diffusivity=problem.viscosity, order=4
        )
        return ex.repeat(stepper, steps * len(problem.times))
    assert isinstance(problem, AllenCahn2D)
    steps, dt = problem._steps()
    stepper = ex.stepper.reaction.AllenCahn(
        2,
        1.0,
        problem.grid,
        dt,
        diffusivity=problem.epsilon**2,
        first_order_coefficient=1.0,
        third_order_coefficient=-1.0,
        order=1,
    )
    return ex.repeat(stepper, steps)


def exponaxs(problem: dc.problems.Problem, x: Tensor, our_forward: float) -> dict[str, object]:
    import jax
    import jax.numpy as jnp

    rows = jnp.asarray(x.numpy())
    steps = jax.vmap(exponax_steps(problem))

    def pull(x: Any, w: Any) -> Any:
        return jax.vjp(steps, x)[1](w)[0]

    def push(x: Any, v: Any) -> Any:
        return jax.jvp(steps, (x,), (v,))

    forward, pulled, pushed = jax.jit(steps), jax.jit(pull), jax.jit(push)
    took = interleaved(
        {
            "forward": lambda: jax.block_until_ready(forward(rows)),
            "vjp": lambda: jax.block_until_ready(pulled(rows, rows)),
            "jvp": lambda: jax.block_until_ready(pushed(rows, rows)),
        },
        repeats=REPEATS,
    )
    return {
        "exponax_vjp": took["vjp"] / took["forward"],
        "exponax_jvp": took["jvp"] / took["forward"],
        "exponax_forward_over_ours": took["forward"] / our_forward,
    }


def measure(name: str, grid: int) -> dict[str, object]:
    problem = dc.problems.get(name, grid=grid)
    x = problem.sample(ROWS[grid], generator=torch.Generator().manual_seed(0))
    row: dict[str, object] = {"problem": name, "grid": grid, "rows": len(x)}
    measured, forward = ours(problem, x)
    row |= measured
    if all(importlib.util.find_spec(module) for module in ("jax", "exponax")):
        row |= exponaxs(problem, x, forward)
    else:
        row["exponax_vjp"] = "not installed"
    return row


def in_own_process(name: str, grid: int) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.adjoints", name, str(grid)]
    environment = {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout)


def main() -> None:
    torch.set_num_threads(1)
    rows = [in_own_process(name, grid) for name in NAMES for grid in ROWS]
    publish("adjoints", "Derivatives of time loops, in forward simulations", rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
