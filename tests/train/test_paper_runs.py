"""The published networks that are too large to train in a test still run, stop and resume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deceptron as dc
from deceptron.train import Recipe, recipe
from deceptron.train.objectives import ReverseObjective
from tests.train.small import assert_same, weights_of

LARGE = ("darcy-2d", "advection-diffusion-2d", "allen-cahn-2d", "navier-stokes-2d")


class Killed(BaseException):
    """Ends a run as a signal does: in the middle of an epoch, caught by nobody."""


def shortened(problem: dc.problems.Problem) -> Recipe:
    """Two epochs of two batches a stage on a coarse grid; the networks as published."""
    chosen = recipe(problem, "paper")
    stages = ("forward", "reverse", "jcp")
    return replace(
        chosen, **{s: replace(getattr(chosen, s), epochs=2, batch_size=3) for s in stages}
    )


@pytest.mark.parametrize("name", LARGE)
def test_killed_within_an_epoch_and_resumed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = dc.problems.get(name, grid=12, train_count=6, val_count=2, test_count=2)
    chosen = shortened(problem)
    expected = dc.train(problem, chosen)

    calls, terms = [], ReverseObjective.terms

    def killing(self: ReverseObjective, rows: Any, *rest: Any) -> Any:
        calls.append(rows)
        if len(calls) == 4:  # the last batch of stage 2
            raise Killed
        return terms(self, rows, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(ReverseObjective, "terms", killing)
        with pytest.raises(Killed):
            dc.train(problem, chosen, tmp_path, checkpoint_seconds=0.0)
    assert (tmp_path / "checkpoints" / "running.safetensors").is_file()
    trained: list[tuple[str, int]] = []
    resumed = dc.train(
        problem, chosen, tmp_path, callback=lambda row: trained.append((row["stage"], row["epoch"]))
    )
    assert trained == [("reverse", 2), ("jcp", 1), ("jcp", 2), ("plain", 1), ("plain", 2)]
    assert_same(weights_of(expected), weights_of(resumed))
    assert dc.load(tmp_path / "pair-plain.safetensors").provenance["jcp"] is False
