"""A run that takes over stages 1 and 2 of another ends with the bits of a run from scratch."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deceptron as dc
from deceptron.train import Recipe
from tests.train.small import assert_same, quick, tiny, weights_of


def epochs_of(out: Path) -> list[tuple[str, str, str]]:
    with open(out / "metrics.csv", newline="") as file:
        return [(row["stage"], row["epoch"], row["loss"]) for row in csv.DictReader(file)]


def varied() -> Recipe:
    """Everything that only stage 3 reads is different."""
    chosen = quick()
    return replace(
        chosen,
        name="varied",
        jcp=replace(chosen.jcp, epochs=4, learning_rate=1e-3),
        weights=replace(chosen.weights, jcp=0.7),
        train_probes=1,
        train_probe_rows=5,
        probe_bank=3,
        guard=None,
        selection_rjcp=0.3,
        wiener_limit=0,
    )


def test_same_bits_as_from_scratch(tmp_path: Path) -> None:
    first, continued, scratch = (tmp_path / name for name in ("first", "continued", "scratch"))
    dc.train(tiny(), quick(), first, seed=3)
    trained: list[str] = []

    def note(row: dict[str, Any]) -> None:
        trained.append(row["stage"])

    expected = dc.train(tiny(), varied(), scratch, seed=3, jcp=False, both=True)
    found = dc.train(
        tiny(), varied(), continued, seed=3, jcp=False, both=True, start_from=first, callback=note
    )
    assert trained == 4 * ["plain"] + 4 * ["jcp"]
    assert_same(weights_of(expected), weights_of(found))
    other = [dc.load(out / "pair-jcp.safetensors") for out in (scratch, continued)]
    assert_same(weights_of(other[0]), weights_of(other[1]))
    assert epochs_of(continued) == epochs_of(scratch)
    in_memory = dc.train(tiny(), varied(), seed=3, jcp=False, start_from=first)
    assert_same(weights_of(expected), weights_of(in_memory))


def test_the_new_folder_needs_the_old_one_no_more(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    dc.train(tiny(), quick(), first)

    class Interrupted(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        dc.train(tiny(), varied(), second, start_from=first, callback=stop)
    first.rename(tmp_path / "gone")
    resumed = dc.train(tiny(), varied(), second)
    assert_same(weights_of(resumed), weights_of(dc.train(tiny(), varied())))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"seed": 4}, "its seed is 3, this call's 4"),
        ({"problem": tiny(noise_std=0.02)}, r"its fields\.noise_std is 0\.01, this call's 0\.02"),
        ({"preset": quick(cycle_noise=0.1)}, r"its recipe\.cycle_noise is 0\.02"),
        ({"preset": quick(forward=replace(quick().forward, epochs=9))}, r"forward\.epochs is 3"),
        ({"preset": quick(weights=replace(quick().weights, cycle=0.3))}, r"weights\.cycle is 0\.1"),
    ],
)
def test_other_early_stages_are_refused(tmp_path: Path, call: dict[str, Any], message: str) -> None:
    dc.train(tiny(), quick(), tmp_path / "first", seed=3)
    usual: dict[str, Any] = {"problem": tiny(), "preset": quick(), "seed": 3}
    with pytest.raises(dc.CheckpointError, match=message):
        dc.train(**{**usual, **call}, out=tmp_path / "second", start_from=tmp_path / "first")
    assert not (tmp_path / "second").exists()


def test_a_start_that_is_no_finished_run(tmp_path: Path) -> None:
    with pytest.raises(dc.CheckpointError, match=r"cannot read .*config\.json"):
        dc.train(tiny(), "smoke", start_from=tmp_path / "nothing")
    dc.train(tiny(), "smoke", tmp_path)
    (tmp_path / "checkpoints" / "reverse.safetensors").unlink()
    with pytest.raises(dc.CheckpointError, match="has not finished stage 'reverse'"):
        dc.train(tiny(), "smoke", start_from=tmp_path)
