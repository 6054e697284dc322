"""``deceptron train``: a run folder with a pair and curves, resumed, or one sentence."""

import torch
from safetensors.torch import load_file

import deceptron as dc
from tests.cli.command import run


def test_a_run_folder_appears_and_is_continued(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "my run"
    arguments = ("train", "heat-1d", "--preset", "smoke", "--out", folder)
    assert run(monkeypatch, *arguments) == 0
    said = capsys.readouterr().out
    assert "pair in" in said
    assert f"next: deceptron solve '{folder}' y.npy" in said
    assert ("--simulator" in said) == ("pass forward=" in said)
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    pair = dc.load(folder / "pair.safetensors")
    assert pair.name == "heat-1d"
    before = (folder / "pair.safetensors").read_bytes()
    monkeypatch.setenv("RANK", "1")  # of a job that torchrun did not start
    assert run(monkeypatch, *arguments) == 0
    assert "pair in" in capsys.readouterr().out
    assert (folder / "pair.safetensors").read_bytes() == before


def test_a_folder_of_another_run_is_refused(tmp_path, monkeypatch, capsys):
    arguments = ("train", "heat-1d", "--preset", "smoke", "--out", tmp_path / "run")
    assert run(monkeypatch, *arguments) == 0
    before = (tmp_path / "run" / "pair.safetensors").read_bytes()
    capsys.readouterr()
    assert run(monkeypatch, *arguments, "--seed", "8") == 2
    message = capsys.readouterr().err
    assert "seed" in message
    assert message.startswith("error: ")
    assert (tmp_path / "run" / "pair.safetensors").read_bytes() == before


def test_stages_are_taken_over_from_another_run(tmp_path, monkeypatch, capsys):
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    arguments = ("train", "heat-1d", "--preset", "smoke")
    assert run(monkeypatch, *arguments, "--out", first) == 0
    assert run(monkeypatch, *arguments, "--out", second, "--no-jcp", "--start-from", first) == 0
    early = [folder / "checkpoints" / "reverse.safetensors" for folder in (first, second)]
    taken, found = (load_file(path) for path in early)
    assert all(torch.equal(value, found[key]) for key, value in taken.items())
    assert not dc.load(second / "pair.safetensors").provenance["jcp"]
    capsys.readouterr()
    assert run(monkeypatch, *arguments, "--out", third, "--start-from", tmp_path / "no") == 2
    assert "cannot read" in capsys.readouterr().err
    assert not third.exists()


def test_an_unknown_preset_is_named(tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    assert run(monkeypatch, "train", "heat-1d", "--preset", "smok", "--out", out) == 2
    assert "Did you mean 'smoke'" in capsys.readouterr().err
    assert not out.exists()
