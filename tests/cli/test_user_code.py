"""A user's own file on the command line: train on it, solve on its simulator, or one sentence."""

import json
import sys

import numpy as np
import pytest
import torch

import deceptron as dc
from tests.cli.command import run

CODE = """
import torch
import numpy as np
import deceptron as dc

def value(x):
    return np.tanh(x @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.5], [0.2, 0.0, 1.0], [1, 1, 1]]).T)

def leaves(x):
    raise SystemExit(0)

simulator = dc.simulators.wrap(value)
count = 3
problem = dc.problems.define(
    "mine",
    simulate=simulator,
    sample=lambda count, generator: torch.rand(count, 3, generator=generator),
    bounds=(0.0, 1.0),
    noise_std=0.01,
)
pairs = dc.problems.from_data(np.random.rand(40, 3), np.random.rand(40, 4), noise_std=0.1)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("deceptron.problems.registry._DEFINED", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_physics.py").write_text(CODE)
    yield tmp_path
    for name in ("my_physics", "my_broken"):
        sys.modules.pop(name, None)


def test_train_and_solve_on_ones_own_simulator(folder, monkeypatch, capsys):
    place = "my_physics.py:problem"
    assert run(monkeypatch, "train", place, "--preset", "smoke", "--out", "runs/mine") == 0
    told = capsys.readouterr().out
    assert "pair in runs/mine" in told
    pair = dc.load("runs/mine")
    # What to do next is what the verdict says, in the words of the command line.
    assert ("x.zarr --simulator" in told) == ("pass forward=" in pair.verdict)
    simulator = sys.modules["my_physics"].simulator
    y = simulator(torch.rand(5, 3, generator=torch.Generator().manual_seed(0)))
    np.save("y.npy", y.numpy())
    expected = dc.solve(pair, y, forward=simulator, differentiable=False)
    for simulators in (("--simulator",), ("--simulator", "my_physics.py:simulator")):
        simulator.reset()
        arguments = ("solve", "runs/mine", "y.npy", *simulators, "-o", "x.npz", "--overwrite")
        assert run(monkeypatch, *arguments) == 0
        assert "solving on the simulator" in capsys.readouterr().out
        assert simulator.calls.values > 0
        with np.load("x.npz") as result:
            np.testing.assert_allclose(result["x"], expected.x.numpy(), atol=1e-4)


def test_a_model_that_ships_finds_its_simulator_by_name(folder, monkeypatch, capsys):
    problem = dc.problems.get("heat-1d")
    x = problem.sample(3, generator=torch.Generator().manual_seed(0))
    y = problem.add_noise(problem.simulate(x), generator=torch.Generator().manual_seed(1))
    np.save("y.npy", y.numpy())
    assert run(monkeypatch, "solve", "heat-1d", "y.npy", "-o", "x.npy", "--simulator") == 0
    assert "simulator heat-1d" in capsys.readouterr().out
    expected = dc.solve(dc.load("heat-1d"), y, forward=problem.simulate)
    np.testing.assert_allclose(np.load("x.npy"), expected.x.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "absent.py:problem"), "there is no file"),
        (("train", "my_physics.py:probem"), "no 'probem'; its problems are problem, pairs"),
        (("train", "my_physics.py:count"), "must be a problem, as dc.problems.define gives it"),
        (("train", "my_broken.py:problem"), "my_broken.py raises NameError: name 'nx'"),
        (("train", "my_exit.py:problem"), "my_exit.py raises SystemExit: 0"),
        (("--simulator", "my_physics.py:leaves"), "forward raises SystemExit: 0"),
        (("train", "torch.py:problem"), "has the name of another module, torch"),
        (("train", "myphysics"), "unknown problem 'myphysics'"),
        (("train", "my_physics.py"), "which object of the file is meant, as my_physics.py:problem"),
        (("--simulator", "my_physics.py"), "which object of the file is meant"),
        (("--simulator", "my_physics.py:count"), "must be a problem or a function of rows; got"),
        (("--simulator", "my_physics.py:pairs"), "made from data and has no simulator"),
        (("--simulator",), "does not say where the simulator of its problem is"),
    ],
)
def test_mistakes_are_one_sentence(folder, monkeypatch, capsys, arguments, words):
    (folder / "my_broken.py").write_text("nx + 1\n")
    (folder / "my_exit.py").write_text("raise SystemExit(0)\n")
    (folder / "torch.py").write_text("problem = 1\n")
    maps = dc.maps.mlp_pair(6, generator=torch.Generator().manual_seed(0))
    dc.save(dc.Deceptron(maps.f, maps.g, name="small"), "small.safetensors")
    np.save("y.npy", np.zeros((2, 6)))
    if arguments[0] == "--simulator":
        arguments = ("solve", "small.safetensors", "y.npy", "-o", "x.npy", *arguments)
    assert run(monkeypatch, *arguments) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.startswith("error: ")


@pytest.mark.parametrize("place", ["evil.py", "{folder}/evil.py"])
def test_a_run_folder_cannot_bring_code_along(folder, monkeypatch, capsys, place):
    maps = dc.maps.mlp_pair(6, generator=torch.Generator().manual_seed(0))
    run_folder = folder / "run"
    run_folder.mkdir()
    dc.save(dc.Deceptron(maps.f, maps.g, name="small"), run_folder / "pair.safetensors")
    (run_folder / "evil.py").write_text("raise SystemExit('it ran')\n")
    note = {"file": place.replace("{folder}", str(run_folder)), "name": "problem"}
    (run_folder / "problem.json").write_text(json.dumps(note))
    np.save("y.npy", np.zeros((2, 6)))
    assert run(monkeypatch, "solve", run_folder, "y.npy", "-o", "x.npy", "--simulator") == 2
    assert "code inside the run folder, which is not run" in capsys.readouterr().err


def test_a_folder_without_a_pair_is_named(folder, monkeypatch, capsys):
    (folder / "empty").mkdir()
    with pytest.raises(dc.CheckpointError, match=r"folder without pair\.safetensors"):
        dc.load(folder / "empty")
