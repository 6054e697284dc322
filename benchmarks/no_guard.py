"""What the reconstruction guard decides on heat-3d: stage 3 of the published protocol without it.

The guard of 1.25 is ours, for the paper prints none, and with it no epoch of the JCP branch is
kept. Here that branch continues for a while from the finished stages of ``runs/paper/heat-3d-7``
with no guard, and is solved and judged like the others in ``benchmarks/paper.py``. Resumable.
"""

from __future__ import annotations

from dataclasses import replace

import deceptron as dc
from benchmarks.common import publish
from benchmarks.paper import RUNS, evaluate, finished, published
from deceptron.train import recipe

NAME, SEED = "heat-3d", 7
EPOCHS = 25  # of 120


def main() -> None:
    if not finished(NAME, "paper"):
        print(f"no_guard: runs/paper/{NAME}-{SEED} has not ended (deceptron train, preset paper)")
        return
    base = recipe(dc.problems.get(NAME), "paper")
    free = replace(
        base,
        name="paper-no-guard",
        guard=None,
        both=False,
        jcp=replace(base.jcp, epochs=EPOCHS),
    )
    run = f"{NAME}-{SEED}"
    pair = dc.train(NAME, free, RUNS / "no_guard" / run, seed=SEED, start_from=RUNS / "paper" / run)
    label = {"problem": NAME, "seed": SEED, "branch": f"with JCP, no guard, {EPOCHS} epochs"}
    seconds = sum(pair.provenance["seconds"].values())
    rows = [{**label, **row, "training_s": seconds} for row in evaluate(pair, NAME, SEED)]
    publish("no_guard", "heat-3d, stage 3 without the guard", [*rows, *published(NAME)])


if __name__ == "__main__":
    main()
