"""A study from grid to records: what is done is not done again, also after a kill."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest

import deceptron as dc
from deceptron.core.work import InProcess
from deceptron_paper.study import Block, Study, read, run_study
from deceptron_paper.study import runner as engine
from deceptron_paper.study.models import Provider
from paper.tests.command import run as command

FILE = """\
name = "small"
missing_models = "smoke"

[[block]]
problems = ["heat-1d"]
sets = ["test", "shifted"]
models = ["standard", "paper"]
methods = ["one-shot", "d-ipg", "gd", "l-bfgs-tuned"]
instances = 3
max_iterations = 5
"""
TIMES = ["seconds"]


def small(**changes):
    settings = {"problems": ("heat-1d",), "methods": ("one-shot", "d-ipg"), "instances": 2}
    return Study(name="small", blocks=(Block(**{**settings, **changes}),))


def go(study, out, **settings):
    return run_study(study, out, **settings)


def test_a_study_fills_its_folder_and_does_nothing_twice(tmp_path):
    out, seen = tmp_path / "out", []
    study = small()
    summary = go(study, out, watch=lambda *told: seen.append(told))
    assert (summary.planned, summary.done, summary.earlier, summary.absent) == (3, 3, 0, {})
    assert seen[0] == ("models", 0, 1)
    assert seen[-1] == ("cells", 3, 3)
    records = read(out)
    assert records.missing == ()
    assert len(records.instances) == 4
    (model,) = records.models.to_dict("records")
    assert model["shipped"]
    assert model["preset"] == "standard"
    assert model["surrogate_error"] < model["noise_level"]
    assert 0.05 < model["recon_rmse"] < 0.2
    truth, test = records.truth("heat-1d", "test", 7), dc.problems.get("heat-1d").dataset(7).test
    assert truth is not None
    assert truth["x"] == pytest.approx(test.x[:3].numpy())
    assert truth["y"] == pytest.approx(test.y[:3].numpy(), abs=1e-6)

    times = {path: path.stat().st_mtime_ns for path in (out / "cells").rglob("*.parquet")}
    again = go(study, out)
    assert (again.done, again.earlier) == (3, 3)
    assert {path: path.stat().st_mtime_ns for path in (out / "cells").rglob("*.parquet")} == times
    assert len(read(out).environment["resumed"]) == 1


def lose(path):
    path.unlink()


def truncate(path):
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize("damage", [lose, truncate])
@pytest.mark.parametrize("name", ["instances.parquet", "steps.parquet", "fields.npz"])
def test_a_cell_that_lost_a_file_is_run_again(tmp_path, done, name, damage):
    out = shutil.copytree(done, tmp_path / "out")
    (place,) = (out / "cells").glob("heat-1d.test.standard.7.d-ipg.*")
    damage(place / name)
    summary = go(small(), out)
    assert (summary.done, summary.earlier, summary.absent) == (3, 2, {})
    for mended, expected in zip(tables(out), tables(done), strict=True):
        pd.testing.assert_frame_equal(mended, expected)
    assert read(out).fields("heat-1d", "test", "standard", 7, "d-ipg") is not None


@pytest.mark.parametrize("damage", [lose, truncate])
def test_a_pair_that_was_lost_is_copied_again(tmp_path, done, damage):
    out = shutil.copytree(done, tmp_path / "out")
    (pair,) = (out / "models").glob("*.safetensors")
    damage(pair)
    (place,) = (out / "cells").glob("heat-1d.test.standard.7.d-ipg.*")
    shutil.rmtree(place)
    summary = go(small(), out)
    assert (summary.done, summary.earlier, summary.absent) == (3, 2, {})
    assert pair.read_bytes() == (done / "models" / pair.name).read_bytes()
    for mended, expected in zip(tables(out), tables(done), strict=True):
        pd.testing.assert_frame_equal(mended, expected)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished study; copy it before changing it."""
    out = tmp_path_factory.mktemp("study") / "done"
    go(small(), out)
    return out


def test_a_folder_of_another_study_is_refused(tmp_path):
    go(small(methods=("one-shot",)), tmp_path)
    with pytest.raises(dc.ConfigError, match="holds the study 'small' with other settings"):
        go(small(methods=("one-shot",), instances=1), tmp_path)


def test_a_model_that_cannot_be_had_is_skipped_until_it_can(tmp_path):
    runs, out = tmp_path / "runs", tmp_path / "out"
    study = small(models=("standard", "paper-plain"), methods=("one-shot",))
    summary = go(study, out, runs=runs)
    assert summary.done == 2
    ((why, count),) = summary.absent.items()
    place = "models/paper-reduced/heat-1d-7/pair-plain.safetensors"
    assert (why, count) == (f"there is no {place}, and this study trains none", 1)
    assert summary.failed == 0
    (missing,) = read(out).missing
    assert missing.sentence == f"heat-1d, test, paper-plain, seed 7, one-shot: skipped, {why}"

    dc.train("heat-1d", "smoke", runs / "models" / "paper-reduced" / "heat-1d-7", both=True)
    assert go(study, out, runs=runs).absent == {}
    records = read(out)
    assert records.missing == ()
    assert list(records.models["preset"]) == ["standard", "smoke"]


def test_a_run_that_does_not_hold_what_its_name_says_is_not_used(tmp_path):
    runs = tmp_path / "runs"
    folder = runs / "standard" / "heat-1d-8"
    dc.train("heat-1d", "smoke", folder, seed=9)
    summary = go(small(seeds=(8,)), tmp_path / "out", runs=runs)
    (why,) = summary.absent
    assert "must hold the pair (problem, seed, jcp) = ('heat-1d', 8, True)" in why


def test_a_broken_pair_does_not_break_those_that_would_borrow_its_linear_estimate(tmp_path):
    runs = tmp_path / "runs"
    dc.train("heat-1d", "smoke", runs / "models" / "paper-reduced" / "heat-1d-8", seed=8)
    broken = runs / "standard" / "heat-1d-8" / "pair.safetensors"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"not a pair")
    study = small(models=("standard", "paper"), seeds=(8,), methods=("one-shot",))
    summary = go(study, tmp_path / "out", runs=runs)
    (why,) = summary.absent
    assert "its model failed: CheckpointError" in why
    assert list(read(tmp_path / "out").instances["model"].unique()) == ["paper"]


def test_probe_models_share_their_first_stages(tmp_path):
    study = Study(
        name="probes",
        missing_models="smoke",
        blocks=(
            Block(
                problems=("allen-cahn-2d",),
                models=("paper-probes-1", "paper-probes-8"),
                methods=("one-shot",),
                instances=1,
            ),
        ),
    )
    assert go(study, tmp_path).absent == {}
    models = read(tmp_path).models
    assert list(models["preset"]) == ["smoke-probes-1", "smoke-probes-8"]
    assert models["surrogate_error"].nunique() == 1
    assert models["rjcp"].nunique() == 2


def test_a_cell_that_fails_is_recorded_and_tried_again(tmp_path, monkeypatch):
    def broken(cell, *rest):
        if cell.method == "d-ipg":
            raise RuntimeError("out of luck")
        return solve(cell, *rest)

    solve = engine.solve_cell
    monkeypatch.setattr(engine, "solve_cell", broken)
    for _ in range(2):
        summary = go(small(), tmp_path)
        assert (summary.absent, summary.failed) == ({"RuntimeError: out of luck": 1}, 1)
    assert read(tmp_path).missing[0].sentence.endswith("d-ipg: failed, RuntimeError: out of luck")
    monkeypatch.undo()
    assert go(small(), tmp_path).absent == {}
    assert read(tmp_path).missing == ()


def test_a_study_in_which_cells_fail_does_not_exit_with_zero(tmp_path, monkeypatch, capsys):
    """A disk that is full as soon as a table is written."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "small.toml"
    file.write_text(FILE.replace('"standard", "paper"', '"standard"').replace("smoke", "skip"))
    monkeypatch.setattr("deceptron_paper.study.tables.pq.write_table", full)
    monkeypatch.setattr(
        "deceptron.core.processes.LocalProcesses", lambda _: nullcontext(InProcess())
    )
    assert command(monkeypatch, "study", file, "--out", tmp_path / "out") == 2
    told = capsys.readouterr()
    assert "No space left on device" in told.out + told.err
    assert "Traceback" not in told.err


def test_training_on_demand_goes_where_the_next_study_looks(tmp_path, monkeypatch):
    """The policy "train" with the recipes shrunk to seconds."""
    monkeypatch.setattr("deceptron_paper.study.models.train", smoke_train)
    provider = Provider(tmp_path / "runs", "train", tmp_path / "scratch")
    study = small(models=("standard-plain",), seeds=(8,))
    pair, ships = provider.pair(study.models()[0])
    assert not ships
    assert pair.provenance["jcp"] is False
    assert (tmp_path / "runs" / "standard" / "heat-1d-8" / "pair-plain.safetensors").is_file()
    finder = Provider(tmp_path / "runs", "skip", tmp_path / "scratch")
    assert finder.pair(study.models()[0])[0].provenance["seconds"] == pair.provenance["seconds"]


def smoke_train(problem, preset, *rest, **settings):
    return dc.train(problem, "smoke", *rest, **settings)


def tables(out: Path) -> list[pd.DataFrame]:
    """Records without what a clock measured, in an order of their own."""
    records = read(out)
    assert records.missing == ()
    axes = ["problem", "set", "model", "seed", "method", "instance"]
    return [
        records.instances.drop(columns=TIMES).sort_values(axes, ignore_index=True),
        records.steps.drop(columns=TIMES).sort_values([*axes, "step"], ignore_index=True),
        records.models.drop(columns="train_seconds"),
    ]


def test_a_study_killed_at_any_moment_ends_as_one_that_was_not(tmp_path):
    """SIGKILL to the study alone: its worker is left behind with half a cell."""
    file = tmp_path / "small.toml"
    file.write_text(FILE)
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    arguments = ["study", str(file), "--out", str(broken), "--workers", "1"]
    child = subprocess.Popen(
        [sys.executable, "-m", "deceptron_paper", *arguments],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 300
    while not list((broken / "cells").glob("*/cell.json")) and time.monotonic() < deadline:
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = {path.parent.name for path in (broken / "cells").glob("*/cell.json")}
    study = engine_study(file)
    assert 0 < len(done) < len(study.cells())
    # What a kill in the middle of writing leaves behind.
    shutil.copytree(next((broken / "cells").glob("*/")), broken / "cells" / ".x.01234567.partial")

    summary = go(study, broken)
    assert summary.absent == {}
    assert summary.earlier >= len(done)
    go(study, whole)
    for resumed, expected in zip(tables(broken), tables(whole), strict=True):
        pd.testing.assert_frame_equal(resumed, expected)
    assert not list(broken.rglob("*partial*"))


def engine_study(file: Path) -> Study:
    from deceptron_paper.study import get_study

    return get_study(str(file))


def test_the_command_says_what_is_wrong_before_anything_runs(tmp_path, monkeypatch, capsys):
    file = tmp_path / "small.toml"
    file.write_text(FILE.replace("l-bfgs-tuned", "lbfgs-tuned"))
    assert command(monkeypatch, "study", file, "--out", tmp_path / "out") == 2
    message = capsys.readouterr().err
    assert "line 8: unknown method 'lbfgs-tuned'. Did you mean 'l-bfgs-tuned'" in message
    assert not (tmp_path / "out").exists()
    assert command(monkeypatch, "study", "--quick", "--problems", "heat-9d") == 2
    assert "unknown problem 'heat-9d'" in capsys.readouterr().err
    assert command(monkeypatch, "study", "--quick", "--seeds", "x") == 2
