"""How near the default is to its own limit: its time over that of the products it counts.

Products are priced as one batch over all rows takes them: a simulation, a pass through g, and
J v and J' w at a point that is linearised already. Rows of the shifted sets, on the true simulator;
CPU time of one thread, the least of repeats. ``python -m benchmarks.limit 64`` runs that many rows
only.
"""

from __future__ import annotations

import sys
from time import process_time

import torch
from torch import Tensor

import deceptron as dc
from benchmarks.common import interleaved, publish
from deceptron.core.differentiate import Linearisation

NAMES = ("heat-2d", "darcy-2d", "navier-stokes-2d")
ROWS = (64, 1024)


def prices(pair: dc.Deceptron, problem: dc.problems.Problem, x: Tensor) -> dict[str, float]:
    """CPU seconds a row of each kind of product."""
    y = problem.simulate(x)
    at_x = Linearisation(problem.simulate, x)
    target = pair.scaler.normalise(y)

    @torch.no_grad()
    def reverse() -> Tensor:
        return pair.g(target)

    took = interleaved(
        {
            "f": lambda: problem.simulate(x),
            "g": reverse,
            "jvp": lambda: at_x.jvp(x),
            "vjp": lambda: at_x.vjp(y),
        },
        repeats=5,
        of=min,
    )
    return {kind: taken / len(x) for kind, taken in took.items()}


def measure(name: str, rows: int) -> dict[str, object]:
    pair, problem = dc.load(name), dc.problems.get(name)
    x = problem.sample(rows, generator=torch.Generator().manual_seed(0), family="shifted")
    generator = torch.Generator().manual_seed(1)
    y = problem.add_noise(problem.simulate(x), generator=generator, family="shifted")
    dc.solve(pair, y[:2], forward=problem, history=False)
    taken = float("inf")
    for _ in range(max(1, 128 // rows)):
        start = process_time()
        solution = dc.solve(pair, y, forward=problem, history=False)
        taken = min(taken, process_time() - start)
    price = prices(pair, problem, solution.x)
    counted = {kind: getattr(solution.cost, kind).sum().item() for kind in price}
    row: dict[str, object] = {"problem": name, "rows": rows, "ms_a_row": 1e3 * taken / rows}
    row |= {f"{kind}_a_row": count / rows for kind, count in counted.items()}
    row |= {f"{kind}_ms": 1e3 * price[kind] for kind in price}
    row["time_over_products"] = taken / sum(counted[kind] * price[kind] for kind in price)
    return row


def main() -> None:
    torch.set_num_threads(1)
    sizes = tuple(map(int, sys.argv[1:])) if "limit" in sys.argv[0] else ()
    found = [measure(name, rows) for rows in sizes or ROWS for name in NAMES]
    publish("limit", "The default over its counted products at batch price", found)


if __name__ == "__main__":
    main()
