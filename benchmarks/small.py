"""Small problems and single rows: what is left when neither network nor simulator is dear.

Levenberg-Marquardt on smooth fits with 16 and 64 unknowns, twice as many residuals, from zero:
SciPy in NumPy, one row after the other, by its own differences and by the exact Jacobian;
optimistix (JAX, compiled, all rows under vmap) where it is installed. ``worst`` is by how much the
worst of a few rows ends above SciPy's sum of squares, as a share of it. Then one-shot on one row
over its two networks, and the published D-IPG over its counted evaluations at their batch price.
CPU time of one thread, the least of interleaved repeats.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor

import deceptron as dc
from benchmarks.common import interleaved, publish
from benchmarks.solve import bare, mlp_pair

MANY = 4096
COMPARED = 8
# Rows of optimistix under vmap; the price of a row does not change from there on.
VMAPPED = 256


@dataclass(frozen=True)
class Fit:
    """tanh(A x) + B x / 2 + (B x)^2 / 10 against noisy data."""

    a: Tensor
    b: Tensor
    y: Tensor

    @staticmethod
    def draw(n: int, rows: int) -> Fit:
        generator = torch.Generator().manual_seed(n)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        a, b = normal(2, 2 * n, n) / n**0.5
        clean = Fit(a, b, normal(0)).model(normal(rows, n))
        return Fit(a, b, clean + 0.05 * normal(rows, 2 * n))

    def model(self, x: Tensor) -> Tensor:
        bent = x @ self.b.T
        return torch.tanh(x @ self.a.T) + 0.5 * bent + 0.1 * bent**2

    def solve(self, rows: int) -> dc.Solution:
        x0 = torch.zeros(rows, self.a.shape[1], dtype=torch.float64)
        return dc.solve(self.model, self.y[:rows], x0=x0, method="lm", history=False)

    def scipy(self, row: int, *, method: str = "lm", exact: bool = False) -> Any:
        from scipy.optimize import least_squares

        a, b, y = self.a.numpy(), self.b.numpy(), self.y[row].numpy()

        def residuals(x: np.ndarray) -> np.ndarray:
            bent = b @ x
            return np.tanh(a @ x) + 0.5 * bent + 0.1 * bent**2 - y

        def jacobian(x: np.ndarray) -> np.ndarray:
            slope = 1 - np.tanh(a @ x) ** 2
            return slope[:, None] * a + (0.5 + 0.2 * (b @ x))[:, None] * b

        jac: Any = jacobian if exact else "2-point"
        return least_squares(residuals, np.zeros(a.shape[1]), jac=jac, method=method)

    def optimistix(self, rows: int) -> Callable[[], Any]:
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
        import jax
        import jax.numpy as jnp
        import optimistix as optx

        jax.config.update("jax_enable_x64", True)
        a, b, y = (jnp.asarray(t.numpy()) for t in (self.a, self.b, self.y[:rows]))

        def residuals(x: Any, y: Any) -> Any:
            bent = b @ x
            return jnp.tanh(a @ x) + 0.5 * bent + 0.1 * bent**2 - y

        solver = optx.LevenbergMarquardt(rtol=1e-8, atol=1e-8)

        def one(y: Any) -> Any:
            start = jnp.zeros(a.shape[1])
            return optx.least_squares(residuals, solver, start, y, max_steps=200, throw=False).value

        every = jax.jit(jax.vmap(one))
        return lambda: jax.block_until_ready(every(y))


def fits(n: int) -> dict[str, object]:
    fit = Fit.draw(n, MANY)
    calls: dict[str, Callable[[], object]] = {
        "ours": lambda: fit.solve(1),
        "differences": lambda: fit.scipy(0),
        "exact": lambda: fit.scipy(0, exact=True),
        "trf": lambda: fit.scipy(0, method="trf"),
    }
    if importlib.util.find_spec("optimistix"):
        calls["optimistix"] = fit.optimistix(VMAPPED)
    took = {name: 1e3 * taken for name, taken in interleaved(calls, repeats=15, of=min).items()}
    start = process_time()
    fit.solve(MANY)
    many = 1e3 * (process_time() - start) / MANY
    squares = 2 * fit.a.shape[0] * fit.solve(COMPARED).loss
    theirs = torch.tensor([2 * fit.scipy(row).cost for row in range(COMPARED)])
    row: dict[str, object] = {
        "unknowns": n,
        "one_row_ms": took["ours"],
        "scipy_lm_ms": took["differences"],
        "scipy_lm_exact_ms": took["exact"],
        "scipy_trf_ms": took["trf"],
        "one_row_over_scipy": took["ours"] / took["differences"],
        f"of_{MANY}_rows_ms": many,
        "scipy_over_it": took["differences"] / many,
        "exact_scipy_over_it": took["exact"] / many,
    }
    if "optimistix" in took:
        row["optimistix_over_it"] = took["optimistix"] / VMAPPED / many
    else:
        row["optimistix_over_it"] = "not installed"
    row["worst"] = float((squares / theirs - 1).max())
    return row


def one_shot(name: str) -> dict[str, object]:
    pair = dc.load(name)
    problem = dc.problems.get(name)
    y = problem.simulate(problem.sample(1, generator=torch.Generator().manual_seed(0)))
    target = pair.scaler.normalise(y)

    @torch.no_grad()
    def networks() -> Tensor:
        return pair.f(pair.g(target))

    took = interleaved(
        {"solve": lambda: dc.solve(pair, y, method="one-shot"), "networks": networks},
        repeats=60,
        of=min,
    )
    return {
        "pair": name,
        "one_shot_ms": 1e3 * took["solve"],
        "networks_ms": 1e3 * took["networks"],
        "over_networks_ms": 1e3 * (took["solve"] - took["networks"]),
    }


def published(pair: dc.Deceptron, rows: int) -> dict[str, object]:
    y = pair.f(torch.rand(rows, 64)).detach()

    def solve() -> dc.Solution:
        return dc.solve(pair, y, method="d-ipg", max_iterations=8, history=False)

    passes = round(float(solve().cost.f.double().mean())) - 1
    calls = {"solve": solve, "networks": lambda: bare(pair, y, passes)}
    took = interleaved(calls, repeats=30, of=min)
    return {"rows": rows, "passes": passes, "d_ipg_over_networks": took["solve"] / took["networks"]}


def main() -> None:
    torch.set_num_threads(1)
    publish("small_lm", "Levenberg-Marquardt on small fits", [fits(n) for n in (16, 64)])
    names = ("heat-1d", "darcy-2d")
    publish("small_one_shot", "One-shot on one row", [one_shot(name) for name in names])
    pair = mlp_pair()
    rows = [published(pair, rows) for rows in (64, 1024)]
    publish("small_d_ipg", "Published D-IPG, MLP-64", rows)


if __name__ == "__main__":
    main()
