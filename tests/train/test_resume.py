"""A run killed at any moment and resumed ends with the bits of a run that was not."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import deceptron as dc
from deceptron.core.identity import plain
from deceptron.plot import training_curves
from deceptron.plot.files import write_figure
from deceptron.train import Stage
from deceptron.train.watch import TimeLeft
from tests.train.small import assert_same, quick, tiny, weights_of

PICTURE_HEADER = b"\x89PNG"
CHILD = """
import sys, torch
torch.set_num_threads(1)
import deceptron as dc
from tests.train.test_resume import long_recipe
from tests.train.small import tiny

def say(row):
    print("epoch", flush=True)

print("ready", flush=True)
dc.train(tiny(), long_recipe(), sys.argv[1], both=True, callback=say, checkpoint_seconds=0.0)
print("done", flush=True)
"""


def long_recipe() -> Any:
    chosen = quick()
    stages = {
        name: replace(getattr(chosen, name), epochs=12, batch_size=16)
        for name in ("forward", "reverse", "jcp")
    }
    return replace(chosen, **stages)


def metrics(out: Path) -> list[dict[str, str]]:
    with open(out / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def without_time(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def run_child(out: Path, kill_after: float | None) -> bool:
    """Train in a process of its own; SIGKILL it this long after it got ready. True if it ended."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(out)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert child.stdout is not None
    assert child.stdout.readline().strip() == b"ready"
    if kill_after is not None:
        time.sleep(kill_after)
        child.send_signal(signal.SIGKILL)
    child.stdout.read()
    child.stdout.close()
    return child.wait() == 0


def test_sigkill_at_random_moments(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    started = time.perf_counter()
    expected = dc.train(tiny(), long_recipe(), whole, both=True, checkpoint_seconds=0.0)
    length = time.perf_counter() - started
    moments = random.Random(5)
    killed = 0
    for _ in range(4):
        killed += not run_child(broken, moments.uniform(0.05, 0.45) * length)
    assert killed > 0
    resumed = dc.train(tiny(), long_recipe(), broken, both=True)
    assert_same(weights_of(expected), weights_of(resumed))
    for name in ("pair", "pair-plain"):
        first, second = (dc.load(out / f"{name}.safetensors") for out in (whole, broken))
        assert_same(weights_of(first), weights_of(second))
    rows = metrics(broken)
    assert without_time(rows) == without_time(metrics(whole))
    assert [(row["stage"], int(row["epoch"])) for row in rows] == [
        (stage, epoch) for stage in ("forward", "reverse", "jcp", "plain") for epoch in range(1, 13)
    ]
    assert not list(broken.rglob("*partial*"))


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("interval", [0.0, 1e9])
def test_stopped_after_each_epoch(tmp_path: Path, interval: float) -> None:
    """Every epoch of every stage is a place to stop, with and without a fresh checkpoint."""
    problem, chosen = tiny(), quick(probe_bank=2, probe_law="prior")
    expected = dc.train(problem, chosen, None)
    for last in range(1, 10):
        out, seen = tmp_path / f"run-{interval}-{last}", []

        def stop(row: dict[str, Any], seen: list[Any] = seen, last: int = last) -> None:
            seen.append(row)
            if len(seen) == last:
                raise Interrupted

        with pytest.raises(Interrupted):
            dc.train(problem, chosen, out, callback=stop, checkpoint_seconds=interval)
        resumed = dc.train(problem, chosen, out)
        assert_same(weights_of(expected), weights_of(resumed))
        assert len(metrics(out)) == 9


def test_layers_that_draw_for_themselves_resume_too(tmp_path: Path) -> None:
    def build(problem: Any, data: Any, generator: torch.Generator) -> tuple[nn.Module, nn.Module]:
        return (
            nn.Linear(12, 12),
            nn.Sequential(
                nn.Linear(12, 20), nn.BatchNorm1d(20), nn.Dropout(0.3), nn.Linear(20, 12)
            ),
        )

    problem, chosen = tiny(), quick(build=build, train_probe_rows=4)
    before = torch.get_rng_state()
    expected = dc.train(problem, chosen, None)
    assert torch.equal(torch.get_rng_state(), before)
    seen = []

    def stop(row: dict[str, Any]) -> None:
        seen.append(row)
        if len(seen) == 5:
            raise Interrupted

    with pytest.raises(Interrupted):
        dc.train(problem, chosen, tmp_path, callback=stop, checkpoint_seconds=0.0)
    torch.rand(7)
    resumed = dc.train(problem, chosen, tmp_path)
    assert_same(weights_of(expected), weights_of(resumed))
    again = dc.train(problem, chosen, tmp_path)  # complete, but of classes we cannot build
    assert_same(weights_of(expected), weights_of(again))


def test_seeds_decide_and_nothing_else() -> None:
    problem = tiny()
    first, second = (weights_of(dc.train(problem, "smoke", seed=4)) for _ in range(2))
    assert_same(first, second)
    other = weights_of(dc.train(problem, "smoke", seed=5))
    assert not torch.equal(first["g.inner.layers.0.weight"], other["g.inner.layers.0.weight"])


def test_the_run_folder(tmp_path: Path) -> None:
    problem, out = tiny(), tmp_path / "deep" / "run"
    pair = dc.train(problem, "smoke", out, seed=3, both=True)
    found = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert found == {
        ".lock",
        "config.json",
        "environment.json",
        "metrics.csv",
        "pair.safetensors",
        "pair-plain.safetensors",
        *(f"checkpoints/{name}.safetensors" for name in ("forward", "reverse", "jcp", "plain")),
    }
    config = json.loads((out / "config.json").read_text())
    assert (config["problem"], config["preset"], config["seed"]) == ("heat-1d", "smoke", 3)
    assert config["fields"]["grid"] == 12
    assert config["recipe"]["jcp"]["epochs"] == 3
    assert config["recipe"]["build"] == "deceptron.train.smoke.build_small"
    record = json.loads((out / "environment.json").read_text())
    assert record["started"]["torch"] == torch.__version__
    assert record["resumed"] == []

    stored = dc.load(out / "pair.safetensors")
    assert_same(weights_of(pair), weights_of(stored))
    assert (stored.name, stored.x_shape, stored.bounds) == ("heat-1d", (12,), (0.0, 1.0))
    assert stored.wiener is not None
    kept = stored.provenance
    assert (kept["problem"], kept["preset"], kept["seed"]) == ("heat-1d", "smoke", 3)
    assert kept["seconds"].keys() == {"forward", "reverse", "jcp"}
    assert kept["validation"]["jcp"].keys() == {"val_reconstruction", "val_pairs", "rjcp"}
    rows = metrics(out)
    assert [row["stage"] for row in rows] == 3 * ["forward"] + 3 * ["reverse"] + 3 * ["jcp"] + 3 * [
        "plain"
    ]
    assert rows[0]["val_task"]
    assert not rows[0]["rjcp"]

    picture = write_figure(training_curves(out), out / "curves.png")
    assert picture.read_bytes().startswith(PICTURE_HEADER)


def test_a_complete_run_returns_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = tiny()
    pair = dc.train(problem, "smoke", tmp_path)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("data was prepared again")

    with monkeypatch.context() as patch:
        # By module, since the name deceptron.train is that of the function.
        patch.setattr(sys.modules["deceptron.train.run"], "prepare", refuse)
        again = dc.train(problem, "smoke", tmp_path)
    assert_same(weights_of(pair), weights_of(again))
    # The other branch can be added later; the first one keeps its name and its lines.
    dc.train(problem, "smoke", tmp_path, both=True)
    assert (tmp_path / "pair-plain.safetensors").is_file()
    assert_same(weights_of(pair), weights_of(dc.load(tmp_path / "pair.safetensors")))
    assert [row["stage"] for row in metrics(tmp_path)][-6:] == 3 * ["jcp"] + 3 * ["plain"]


def test_double_precision_and_frozen_parts() -> None:
    def build(problem: Any, data: Any, generator: torch.Generator) -> tuple[nn.Module, nn.Module]:
        f, g = nn.Linear(12, 12), nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 12))
        f.requires_grad_(False)
        g[0].requires_grad_(False)
        return f, g

    pair = dc.train(tiny(), quick(build=build), dtype=torch.float64)
    assert {value.dtype for value in pair.state_dict().values()} == {torch.float64}
    assert pair.provenance["epochs"] == {"forward": 0, "reverse": 3, "jcp": 3}
    assert [p.requires_grad for p in pair.g.parameters()] == [False, False, True, True]
    assert not any(p.requires_grad for p in pair.f.parameters())
    assert not pair.training


def test_an_own_problem_with_odd_shapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deceptron.core.progress.LINE", 0.0)
    problem = dc.problems.define(
        "odd",
        simulate=lambda x: torch.tanh(x.flatten(1)[:, :5]) * 3,
        sample=lambda count, generator: torch.rand(count, 2, 4, generator=generator),
        bounds=(0.0, 1.0),
        noise_std=0.0,
        train_count=64,
        val_count=16,
        test_count=4,
    )
    try:
        pair = dc.train(problem, "smoke", tmp_path, progress=True)
        told = capsys.readouterr().err
        assert "simulating: 64 of 64 rows (train rows)" in told
        assert "simulating: 80 of 80 rows (val rows)" in told
        assert "3/3 jcp" in told
        data = problem.dataset(7)
        assert dc.solve(pair, data.test.y).x.shape == (4, 2, 4)
        none = quick(problem, reverse=Stage(name="r", epochs=0, learning_rate=1, batch_size=1))
        assert dc.train(problem, none).provenance["epochs"]["reverse"] == 0
    finally:
        dc.problems.registry._DEFINED.pop("odd")


def test_time_left_follows_the_pace_of_each_stage() -> None:
    plan = {"forward": 4, "reverse": 3, "jcp": 2}
    left = TimeLeft(plan, [{"stage": "forward", "epoch": 1, "seconds": 3.0}])
    assert left.after({"stage": "forward", "epoch": 2, "seconds": 1.0}) == 2 * 2.0 + 5 * 2.0
    assert left.after({"stage": "reverse", "epoch": 1, "seconds": 5.0}) == 2 * 5.0 + 2 * 5.0
    assert left.after({"stage": "jcp", "epoch": 2, "seconds": 1.0}) == 0.0


def test_tensorboard_scalars(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = []

    def stop(row: dict[str, Any]) -> None:
        seen.append(row)
        if len(seen) == 5:
            raise Interrupted

    with pytest.raises(Interrupted):
        dc.train(tiny(), "smoke", tmp_path, tensorboard=True, callback=stop, checkpoint_seconds=1e9)
    dc.train(tiny(), "smoke", tmp_path, tensorboard=True, both=True)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    wanted = {"forward/val_task", "reverse/val_pairs", "jcp/jcp", "jcp/rjcp", "plain/rjcp"}
    assert wanted <= set(events.Tags()["scalars"])
    # A value an epoch, numbered through the stages; epochs that the killed run lost appear once.
    for number, stage in enumerate(("forward", "reverse", "jcp", "plain")):
        found = events.Scalars(f"{stage}/loss")
        assert [event.step for event in found] == [3 * number + epoch for epoch in (1, 2, 3)]
        losses = [float(row["loss"]) for row in metrics(tmp_path) if row["stage"] == stage]
        assert [event.value for event in found] == pytest.approx(losses, rel=1e-5)


def test_a_flipped_bit_in_a_checkpoint_is_found(tmp_path: Path) -> None:
    dc.train(tiny(), "smoke", tmp_path)
    path = tmp_path / "checkpoints" / "reverse.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    with pytest.raises(dc.CheckpointError, match=r"reverse\.safetensors is damaged \(its checksum"):
        dc.train(tiny(), "smoke", tmp_path)


def own(factor: float, *, careless: bool = False) -> dc.problems.Problem:
    def sample(count: int, generator: torch.Generator) -> torch.Tensor:
        return torch.rand(count, 3, generator=None if careless else generator)

    return dc.problems.define(
        "own",
        simulate=lambda x: factor * x,
        sample=sample,
        bounds=(0.0, 1.0),
        noise_std=0.1,
        train_count=16,
        val_count=8,
    )


def test_another_simulator_of_the_same_name_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deceptron.problems.registry._DEFINED", {})
    pair = dc.train(own(1.0), quick(own(1.0)), tmp_path)
    # Round-off of another machine is not another simulator.
    again = dc.train(own(1.0 + 1e-6), quick(own(1.0)), tmp_path)
    assert_same(weights_of(again), weights_of(pair))
    with pytest.raises(dc.CheckpointError, match=r"another observation_simulated: it has \["):
        dc.train(own(1.1), quick(own(1.0)), tmp_path)


def test_a_sampler_that_forgets_its_seed_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deceptron.problems.registry._DEFINED", {})
    careless = own(1.0, careless=True)
    pair = dc.train(careless, quick(careless), tmp_path)
    assert_same(weights_of(dc.train(careless, quick(careless), tmp_path)), weights_of(pair))


def test_numbers_of_numpy_are_settings_like_any_other() -> None:
    first, second = (plain({"rate": np.float32(rate)}) for rate in (0.5, 0.25))
    assert (first, second) == ({"rate": 0.5}, {"rate": 0.25})
    assert plain(np.arange(3.0)) == plain(torch.arange(3.0, dtype=torch.float64))
