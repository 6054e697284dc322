"""How long until g is as good as the paper's published answers: ``standard`` against ``paper``.

The yardstick is the RMSE the paper publishes for D-IPG; g is judged alone, by its error in x on
validation rows (noisy ones where they were measured, else g(f(x)), which flatters ``paper``).
``standard`` starts g at the closed-form linear estimate, so it is timed three times: until that
start exists (``dc.train`` with no epochs), until stage 2 begins, which is when a normal run has
it, and to the end. ``paper`` counts the epochs of a real run up to the first one that is good
enough, or all of its JCP branch.

Epochs are counted in real runs; seconds are those of a few epochs timed here, both presets in
turns, so that the load on the machine is the same for both.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

import deceptron as dc
from benchmarks.common import publish
from deceptron.train import Recipe, recipe
from deceptron.train.data import prepare
from deceptron.train.loop import StageRun
from deceptron.train.objectives import CONTINUATION, REVERSE, ForwardObjective, ReverseObjective

RUNS = Path(__file__).parent.parent / "runs"
PUBLISHED_RMSE = {"heat-1d": 0.2704, "heat-3d": 0.0635}
STAGES = ("forward", "reverse", "jcp")
# An epoch is timed on a quarter of the rows: its cost is in proportion to them.
ROUNDS, SHARE = 3, 4
SEED = 7


class Timed:
    """A preset whose epochs can be timed one at a time."""

    def __init__(self, full: dc.problems.Problem, chosen: Recipe) -> None:
        problem = replace(full, train_count=full.train_count // SHARE)
        cpu = torch.device("cpu")
        data = prepare(problem, chosen, seed=SEED, dtype=torch.float32, device=cpu)
        f, g = chosen.build(problem, data.dataset, torch.Generator().manual_seed(0))
        frozen, _ = chosen.build(problem, data.dataset, torch.Generator().manual_seed(0))
        frozen.requires_grad_(False)
        objectives = {
            "forward": ForwardObjective(data, chosen, f),
            "reverse": ReverseObjective(data, chosen, frozen, g, stage_number=REVERSE),
            "jcp": ReverseObjective(data, chosen, frozen, g, stage_number=CONTINUATION, jcp=True),
        }
        self._runs = {
            name: StageRun(
                name,
                replace(getattr(chosen, name), epochs=ROUNDS),
                objective,
                chosen,
                row_count=len(data.train),
                seed=SEED,
            )
            for name, objective in objectives.items()
        }

    def round(self) -> None:
        """An epoch of each stage."""
        for run in self._runs.values():
            run._epoch()

    def seconds(self, epochs: dict[str, int]) -> float:
        """What this many epochs of each stage take on all rows."""
        total = 0.0
        for name, count in epochs.items():
            pace = statistics.median(row["seconds"] for row in self._runs[name].state.rows)
            total += SHARE * count * pace
        return total


def started(problem: dc.problems.Problem, chosen: Recipe) -> tuple[float, dc.Deceptron]:
    """Seconds until a pair exists that no epoch has touched: data, networks, linear estimates."""
    none = {stage: replace(getattr(chosen, stage), epochs=0) for stage in STAGES}
    begin = time.perf_counter()
    pair = dc.train(problem, replace(chosen, **none), seed=SEED, both=False)
    return time.perf_counter() - begin, pair


def epochs_until(metrics: pd.DataFrame, target: float) -> tuple[dict[str, int], bool]:
    """Epochs of each stage up to the first with an error in x <= target; is there one?"""
    branch = metrics[metrics["stage"].isin(STAGES)]
    error = branch["val_pairs"].fillna(branch["val_reconstruction"]) ** 0.5
    good = (error <= target).to_numpy()
    used = branch.iloc[: int(good.argmax()) + 1] if good.any() else branch
    return {name: int((used["stage"] == name).sum()) for name in STAGES}, bool(good.any())


def paper_metrics(name: str) -> pd.DataFrame:
    """Of a full run; that of heat-1d is made here, with its error on noisy rows measured."""
    folder = RUNS / "paper" / f"{name}-{SEED}"
    if name == "heat-1d":
        folder = RUNS / "time_to_rmse" / f"{name}-{SEED}"
        chosen = recipe(dc.problems.get(name), "paper")
        # Measured, of no weight in the loss: the epochs are those of the published protocol.
        weights = replace(chosen.weights, pairs=0.0)
        watched = replace(
            chosen, name="paper-watched", noisy_pairs=True, weights=weights, both=False
        )
        dc.train(name, watched, folder, seed=SEED)
    try:
        return pd.read_csv(folder / "metrics.csv")
    except OSError:
        sys.exit(f"train it first: deceptron train {name} --preset paper --out {folder}")


def one_shot(pair: dc.Deceptron, problem: dc.problems.Problem) -> float:
    test = problem.dataset(SEED).test
    answer = dc.solve(pair, test.y, method="one-shot")
    return float((answer.x - test.x).flatten(1).square().mean(1).sqrt().mean())


def measure(name: str) -> dict[str, object]:
    problem, target = dc.problems.get(name, test_count=300), PUBLISHED_RMSE[name]
    standard, paper = (recipe(problem, preset) for preset in ("standard", "paper"))
    whole = {p: {s: getattr(p, s).epochs for s in STAGES} for p in (standard, paper)}
    until, reached = epochs_until(paper_metrics(name), target)
    if not reached and until != whole[paper]:
        sys.exit(f"{name}: the run with preset paper is neither good enough yet nor at its end")
    started(problem, standard)  # warms up
    start, pair = started(problem, standard)
    paper_start, _ = started(problem, paper)
    timed = {chosen: Timed(problem, chosen) for chosen in (standard, paper)}
    for _ in range(ROUNDS):
        for one in timed.values():
            one.round()
    in_order = start + timed[standard].seconds({"forward": standard.forward.epochs})
    ended = start + timed[standard].seconds(whole[standard])
    paper_until = paper_start + timed[paper].seconds(until)
    paper_ended = paper_start + timed[paper].seconds(whole[paper])
    return {
        "problem": name,
        "published_rmse": target,
        "rmse_at_start": one_shot(pair, problem),
        "start_s": start,
        "stage_2_s": in_order,
        "end_s": ended,
        "paper_epochs": "/".join(str(until[stage]) for stage in STAGES),
        "paper_reached": reached,
        "paper_s": paper_until,
        "paper_end_s": paper_ended,
        "ratio_start": paper_until / start,
        "ratio_stage_2": paper_until / in_order,
        "ratio_end": paper_ended / ended,
    }


def main() -> None:
    rows = [measure(name) for name in PUBLISHED_RMSE]
    title = "Until g reaches the paper's published RMSE, standard against paper"
    publish("time_to_rmse", title, rows)


if __name__ == "__main__":
    main()
