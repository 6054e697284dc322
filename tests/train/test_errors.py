"""Bad input gets one clear sentence, before any work is lost."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

import deceptron as dc
from deceptron.maps import MLP
from deceptron.train import Recipe, Stage, TrainingDiverged, Weights, recipe
from tests.train.small import Constant, quick, tiny


def mine(simulate: Any) -> dc.problems.Problem:
    def sample(count: int, generator: Generator) -> Tensor:
        return torch.rand(count, 4, generator=generator)

    counts = {"train_count": 40, "val_count": 10, "test_count": 4}
    return dc.problems.define(
        "mine", simulate=simulate, sample=sample, bounds=(0.0, 1.0), noise_std=0.01, **counts
    )


@pytest.fixture(autouse=True)
def _clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deceptron.problems.registry._DEFINED", {})


def files(folder: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    return {name: p.read_bytes() for name, p in found.items() if name != ".lock"}


def test_names() -> None:
    with pytest.raises(dc.ConfigError, match=r"unknown preset 'standart'.*Did you mean 'standard'"):
        dc.train(tiny(), "standart")
    with pytest.raises(dc.ConfigError, match="unknown problem 'heat'"):
        dc.train("heat", "smoke")
    with pytest.raises(dc.ConfigError, match="problem must be a name or a Problem; got int"):
        dc.train(3, "smoke")  # type: ignore[arg-type]
    with pytest.raises(dc.ConfigError, match="seed must be an integer >= 0"):
        dc.train(tiny(), "smoke", seed=-1)
    with pytest.raises(dc.ConfigError, match="device 'abacus' cannot be used"):
        dc.train(tiny(), "smoke", device="abacus")


def test_the_paper_has_no_protocol_for_an_own_problem() -> None:
    with pytest.raises(dc.ConfigError, match=r"published protocol exists for .*'mine'.*'standard'"):
        dc.train(mine(torch.sin), "paper")
    assert dc.train(mine(torch.sin), "smoke").name == "mine"


def test_rows_without_an_answer_are_left_out_and_counted() -> None:
    def broken(x: Tensor) -> Tensor:
        return torch.where(x > 0.99, torch.nan, x)

    problem = mine(broken)
    with pytest.warns(RuntimeWarning, match=r"'mine' has no answer for \d+ of"):
        pair = dc.train(problem, "smoke")
    assert bool(dc.solve(pair, torch.full((1, 4), 0.5)).x.isfinite().all())


def test_a_simulator_that_mostly_has_no_answer() -> None:
    def broken(x: Tensor) -> Tensor:
        return torch.where(x > 0.5, torch.nan, x)

    with pytest.raises(dc.ConfigError, match=r"'mine' has no answer for .* more than the share"):
        dc.train(mine(broken), "smoke")


@pytest.mark.parametrize(
    ("f", "g", "message"),
    [
        (MLP((12, 5)), MLP((12, 12)), r"f must map \(2, 12\) .* to \(2, 12\); MLP gave \(2, 5\)"),
        (MLP((12, 12)), MLP((5, 12)), r"g must take rows of shape \(12,\).*MLP refused"),
        (nn.Linear(7, 12), MLP((12, 12)), r"f must take rows of shape \(12,\).*Linear refused"),
    ],
)
def test_networks_of_other_shapes(f: nn.Module, g: nn.Module, message: str) -> None:
    with pytest.raises(dc.ShapeError, match=message):
        dc.train(tiny(), quick(build=lambda problem, data, generator: (f, g)))


def test_build_must_return_two_modules() -> None:
    with pytest.raises(dc.ConfigError, match=r"must return \(f, g\); got Linear"):
        dc.train(tiny(), quick(build=lambda *_: nn.Linear(12, 12)))
    with pytest.raises(dc.ConfigError, match="must return two nn"):
        dc.train(tiny(), quick(build=lambda *_: (nn.Linear(12, 12), abs)))
    tied = quick(weights=Weights(bias_tie=1.0), build=lambda *_: (Constant((12,)), MLP((12, 12))))
    with pytest.raises(dc.ConfigError, match=r"are for two maps\.MLP; got Constant"):
        dc.train(tiny(), tied)


def test_settings_out_of_range() -> None:
    stage = Stage(name="s", epochs=1, learning_rate=0.1, batch_size=4)
    for changes, message in (
        ({"epochs": -1}, "epochs"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"batch_size": 0}, "batch_size"),
        ({"schedule": "linear"}, "schedule"),
        ({"warmup": 1.0}, "warmup"),
    ):
        with pytest.raises(dc.ConfigError, match=message):
            replace(stage, **changes)
    for changes, message in (
        ({"guard": 0.9}, "guard"),
        ({"clip": 0.0}, "clip"),
        ({"train_probes": 0}, "train_probes"),
        ({"probe_law": "uniform"}, "probe_law"),
        ({"probe_map": "simulater"}, "probe_map"),
        ({"train_rows": 0}, "train_rows"),
        ({"jcp": "long"}, "jcp"),
        ({"build": 3}, "build"),
        ({"selection_rjcp": float("nan")}, "selection_rjcp"),
    ):
        with pytest.raises(dc.ConfigError, match=message):
            quick(**changes)
    with pytest.raises(dc.ConfigError, match=r"Weights\(cycle=...\)"):
        Weights(cycle=-1.0)


def test_a_folder_of_another_run_says_which_field_differs(tmp_path: Path) -> None:
    problem, out = tiny(), tmp_path / "run"
    dc.train(problem, "smoke", out, seed=1)
    before = files(out)
    stage = replace(recipe(problem, "smoke").jcp, epochs=4)
    attempts: list[tuple[dict[str, Any], str]] = [
        ({"seed": 2}, "another seed: it has 1, this call 2"),
        ({"preset": quick(jcp=stage)}, r"another recipe\.jcp\.epochs: it has 3, this call 4"),
        ({"problem": tiny(noise_std=0.5)}, r"another fields\.noise_std: it has 0\.01"),
        ({"problem": mine(torch.sin)}, "another problem: it has 'heat-1d', this call 'mine'"),
        ({"preset": quick(name="own")}, "another preset: it has 'smoke', this call 'own'"),
        ({"jcp": False}, "another jcp: it has True, this call False"),
        ({"dtype": torch.float64}, "another dtype: it has 'float32', this call 'float64'"),
    ]
    for changes, message in attempts:
        call: dict[str, Any] = {"problem": problem, "preset": "smoke", "seed": 1, **changes}
        with pytest.raises(dc.CheckpointError, match=message):
            dc.train(out=out, **call)
    with pytest.raises(dc.ConfigError, match="already holds a run: pass resume=True"):
        dc.train(problem, "smoke", out, seed=1, resume=False)
    assert files(out) == before


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    with pytest.raises(dc.CheckpointError, match=r"cannot write .*taken"):
        dc.train(tiny(), "smoke", taken)
    assert taken.read_text() == "a file"

    def read_only(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", read_only)
        with pytest.raises(dc.CheckpointError, match=r"cannot write .*run: Permission denied"):
            dc.train(tiny(), "smoke", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_disk_that_fills_up_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, out = tiny(), tmp_path / "run"
    epochs: list[dict[str, Any]] = []

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill(row: dict[str, Any]) -> None:
        epochs.append(row)
        if len(epochs) == 5:
            monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(dc.CheckpointError, match=r"cannot write .*: No space left on device"):
        dc.train(problem, "smoke", out, callback=fill, checkpoint_seconds=0.0)
    assert not list(out.rglob("*partial*"))
    monkeypatch.undo()
    resumed = dc.train(problem, "smoke", out)
    alone = dc.train(problem, "smoke", None)
    assert torch.equal(resumed.g.inner.layers[0].weight, alone.g.inner.layers[0].weight)


def test_divergence_names_stage_and_epoch_and_keeps_what_was_done(tmp_path: Path) -> None:
    problem, out = tiny(), tmp_path / "run"
    wild = quick(reverse=Stage(name="reverse", epochs=9, learning_rate=1e30, batch_size=8))
    with (
        pytest.warns(UserWarning, match="done again"),
        pytest.raises(TrainingDiverged, match=r"stage 'reverse', epoch \d.*learning_rate"),
    ):
        dc.train(problem, wild, out, checkpoint_seconds=0.0)
    assert (out / "checkpoints" / "forward.safetensors").is_file()
    assert not (out / "pair.safetensors").exists()
    lines = (out / "metrics.csv").read_text().splitlines()
    assert len(lines) >= 4
    assert "nan" not in "".join(lines)


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    problem, out = tiny(), tmp_path / "run"
    dc.train(problem, "smoke", out)
    stage = out / "checkpoints" / "reverse.safetensors"
    whole = stage.read_bytes()
    stage.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(dc.CheckpointError, match=r"reverse\.safetensors is damaged .* remove it"):
        dc.train(problem, "smoke", out)
    other = tmp_path / "other"
    dc.train(problem, "smoke", other, seed=9)
    stage.write_bytes((other / "checkpoints" / "reverse.safetensors").read_bytes())
    with pytest.raises(dc.CheckpointError, match="belongs to a run with other settings"):
        dc.train(problem, "smoke", out)
    (out / "config.json").write_text(json.dumps({"format": "something"}))
    with pytest.raises(dc.CheckpointError, match=r"is not the config\.json of a deceptron run"):
        dc.train(problem, "smoke", out)
    (out / "config.json").write_text("{")
    with pytest.raises(dc.CheckpointError, match=r"is not the config\.json of a deceptron run"):
        dc.train(problem, "smoke", out)


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    out = tmp_path / "run"
    dc.train(tiny(), "smoke", out)
    with open(out / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(dc.ConfigError, match="in use by another training process"):
            dc.train(tiny(), "smoke", out)
    dc.train(tiny(), "smoke", out)


def test_tensorboard_needs_a_folder_and_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(dc.ConfigError, match="tensorboard=True needs a run folder"):
        dc.train(tiny(), "smoke", None, tensorboard=True)
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(dc.ConfigError, match=r"pip install 'deceptron\[tensorboard\]'"):
        dc.train(tiny(), "smoke", tmp_path / "run", tensorboard=True)


def test_recipes_are_frozen() -> None:
    chosen = quick()
    assert isinstance(chosen, Recipe)
    with pytest.raises(AttributeError):
        chosen.guard = 2.0  # type: ignore[misc]


def test_precision_must_be_one_of_torch() -> None:
    with pytest.raises(dc.ConfigError, match="dtype must be a floating dtype of torch; got 'float"):
        dc.train(tiny(), quick(), dtype="float32")  # type: ignore[arg-type]


def test_networks_that_build_no_longer_makes(tmp_path: Path) -> None:
    width = 8

    def build(problem: Any, data: Any, generator: torch.Generator) -> tuple[nn.Module, nn.Module]:
        maps = (nn.Sequential(nn.Linear(12, width), nn.Linear(width, 12)) for _ in range(2))
        f, g = maps
        return f, g

    dc.train(tiny(), quick(build=build), tmp_path)
    (tmp_path / "pair.safetensors").unlink()
    width = 9
    with pytest.raises(dc.CheckpointError, match=r"'forward' .* does not fit the networks"):
        dc.train(tiny(), quick(build=build), tmp_path)
