"""What a solve gains by being told what a pass through g costs (``dc.reverse_price``).

64 rows of the family and 64 shifted ones on the true simulator, the default as it is and with the
price measured here. Simulator runs a row (forward, jvp and vjp alike), passes through g, mean RMSE,
and CPU time of one thread, the least of two.
"""

from __future__ import annotations

from time import process_time

import torch

import deceptron as dc
from benchmarks.common import publish
from benchmarks.trusted import rmse

NAMES = ("heat-2d", "heat-3d", "darcy-2d", "allen-cahn-2d", "navier-stokes-2d")
ROWS = 64


def measure(name: str) -> list[dict[str, object]]:
    pair, problem = dc.load(name), dc.problems.get(name)
    found: list[dict[str, object]] = []
    for family in ("prior", "shifted"):
        generator = torch.Generator().manual_seed(5)
        x = problem.sample(ROWS, generator=generator, family=family)
        y = problem.add_noise(problem.simulate(x), generator=generator, family=family)
        price = dc.reverse_price(pair, y, forward=problem)
        for told in (0.0, price):
            method = dc.methods.guarded(reverse_price=told)
            seconds = []
            for _ in range(2):
                start = process_time()
                solution = dc.solve(pair, y, forward=problem, method=method, history=False)
                seconds.append(process_time() - start)
            found.append(
                {
                    "problem": name,
                    "set": family,
                    "price": told,
                    "ms_a_row": 1e3 * min(seconds) / ROWS,
                    "rmse": rmse(solution.x, x),
                    "runs": float(solution.cost.forward.double().mean()),
                    "passes_of_g": float(solution.cost.g.double().mean()),
                    "explained": float(solution.explained.double().mean()),
                }
            )
    return found


def main() -> None:
    torch.set_num_threads(1)
    found = [row for name in NAMES for row in measure(name)]
    publish("prices", "The default, and told the price of g", found)


if __name__ == "__main__":
    main()
