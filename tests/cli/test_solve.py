"""``deceptron solve``: a file in, a file out, or one sentence about the mistake."""

import numpy as np
import pytest
import torch

import deceptron as dc
from deceptron.solve.results import MARK
from tests.cli.command import run

WITHOUT_NOISE = {
    "x",
    "status",
    "reason",
    "iterations",
    "residual",
    "over_noise",
    "explained",
    "cost",
}


@pytest.fixture
def model(tmp_path):
    """A pair in physical units with its scaler and bounds, and observations for it."""
    generator = torch.Generator().manual_seed(0)
    pair = dc.maps.mlp_pair(6, generator=generator)
    scaler = dc.Scaler(torch.zeros(6), torch.full((6,), 2.0))
    pair = dc.Deceptron(pair.f, pair.g, scaler=scaler, bounds=(0.0, 1.0), name="small")
    dc.save(pair, tmp_path / "small.safetensors")
    y = torch.rand(11, 6, generator=generator)
    np.save(tmp_path / "y.npy", y.numpy())
    return pair, y


def test_a_file_is_solved(model, tmp_path, monkeypatch, capsys):
    pair, y = model
    arguments = ("--method", "lm", "--max-iterations", 5, "--chunk-rows", 4)
    files = (tmp_path / "small.safetensors", tmp_path / "y.npy", "-o", tmp_path / "x.npz")
    assert run(monkeypatch, "solve", *files, *arguments) == 0
    assert "11 rows" in capsys.readouterr().out
    expected = dc.solve(pair, y, method="lm", max_iterations=5)
    with np.load(tmp_path / "x.npz") as result:
        np.testing.assert_allclose(result["x"], expected.x.numpy(), atol=1e-4)
        assert set(result) == WITHOUT_NOISE | {MARK}


def test_wrong_units_are_told(tmp_path, monkeypatch, capsys):
    y = dc.problems.get("heat-1d").dataset(seed=7).test.y[:6] * 1000
    np.save(tmp_path / "y.npy", y.numpy())
    output = tmp_path / "my answers.npz"
    files = ("heat-1d", tmp_path / "y.npy", "-o", output, "--no-error-bars")
    assert run(monkeypatch, "solve", *files) == 0
    said = capsys.readouterr().out
    assert "6 rows flagged by trust as unlike the training data" in said
    assert f"next: deceptron view '{output}'" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing", "y.npy", "-o", "x.npy"), "unknown model 'nothing'"),
        (("small.safetensors", "absent.npy", "-o", "x.npy"), "there is no file"),
        (("small.safetensors", "wide.npy", "-o", "x.npy"), "shape (rows, 6); got (4, 7)"),
        (("small.safetensors", "y.npy", "-o", "x.txt"), "result must end in .zarr"),
        (("small.safetensors", "y.npy", "-o", "y.npy"), "exists already"),
        (("small.safetensors", "y.npy", "-o", "x.npy", "--method", "ml"), "Did you mean 'lm'"),
        (("small.safetensors", "y.npy", "-o", "x.npy", "--tolerance", "-1"), "tolerance must lie"),
        (("small.safetensors", "y.npy", "-o", "x.npy", "--device", "foo"), "device 'foo' cannot"),
    ],
)
def test_mistakes_are_one_sentence(model, tmp_path, monkeypatch, capsys, arguments, words):
    np.save(tmp_path / "wide.npy", np.zeros((4, 7)))
    before = (tmp_path / "y.npy").read_bytes()
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "solve", *arguments) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.startswith("error: ")
    assert "Traceback" not in message
    assert (tmp_path / "y.npy").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small.safetensors", "wide.npy", "y.npy"]
