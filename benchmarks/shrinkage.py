"""What shrinking guarded answers towards the family does, on every problem and set.

For each shipped pair: guarded on the true simulator, with a shrinkage fitted as ``dc.train`` fits
it, and the same shrinkage wherever it may be applied, against none. ``kept`` says whether
validation rows found it worth keeping, as the shipped pair does. Ratios are of mean RMSE.
"""

from __future__ import annotations

import torch

import deceptron as dc
from benchmarks.common import publish
from deceptron.maps import Shrinkage
from deceptron.train import calibration

ROWS = 64
SETS = {"test": "prior", "shifted": "shifted", "extreme": "extreme"}


def main() -> None:
    publish(
        "shrinkage",
        f"Guarded with a shrinkage against without, {ROWS} rows a set",
        [row for name in dc.problems.names() for row in rows_of(name)],
    )


def rows_of(name: str) -> list[dict[str, object]]:
    problem, pair = dc.problems.get(name), dc.load(name).eval().requires_grad_(False)
    data = problem.dataset(pair.provenance["seed"])
    kept = pair.shrinkage is not None
    fitted = calibration.fit_shrinkage(pair, problem, data, worth=0.0)
    if fitted is None:
        return [{"problem": name, "set": "all", "kept": kept} | dict.fromkeys(COLUMNS, "")]
    return [
        {"problem": name, "set": label, "kept": kept} | _compare(pair, problem, data, label, fitted)
        for label in SETS
    ]


COLUMNS = ("rmse", "ratio", "shrunk", "evaluations")


def _compare(
    pair: dc.Deceptron,
    problem: dc.problems.Problem,
    data: dc.problems.Dataset,
    label: str,
    shrinkage: Shrinkage,
) -> dict[str, object]:
    split = getattr(data, label)
    x, y = split.x[:ROWS], split.y[:ROWS]
    noise = problem.noise_std * problem.noise_factor(SETS[label])

    def solved(shrinkage: torch.nn.Module | None) -> dc.Solution:
        pair.shrinkage = shrinkage
        return dc.solve(pair, y, forward=problem.simulate, noise_std=noise, history=False)

    before, after = solved(None), solved(shrinkage)
    rmse = [float((s.x - x).square().flatten(1).mean(1).sqrt().mean()) for s in (before, after)]
    values = (
        rmse[0],
        rmse[1] / rmse[0],
        float(after.shrunk.double().mean()),
        float(after.cost.forward.double().mean()),
    )
    return dict(zip(COLUMNS, values, strict=True))


if __name__ == "__main__":
    main()
