"""``deceptron problems``: a table, details, a picture, or one sentence about the mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import deceptron as dc
from deceptron.plot import plot_problem
from deceptron.plot.files import write_figure
from tests.cli.command import run
from tests.problems.small import NAMES


def test_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "problems") == 0
    text = capsys.readouterr().out
    assert all(name in text for name in NAMES)
    assert "ω_t + u·∇ω = ν Δω" in text
    assert "1x32x32" in text
    assert "all numbers published" in text


def test_details(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "problems", "navier-stokes-2d") == 0
    text = capsys.readouterr().out
    assert "viscosity" in text
    assert "0.002" in text


def test_picture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "heat.png"
    assert run(monkeypatch, "problems", "heat-1d", "--show", str(target), "--count", "2") == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in tmp_path.iterdir()] == ["heat.png"]


@pytest.mark.parametrize("name", ["heat-3d", "navier-stokes-2d"])
def test_pictures_of_other_shapes(name: str, tmp_path: Path) -> None:
    figure = plot_problem(dc.problems.get(name), count=1, family="extreme")
    assert len([axis for axis in figure.axes if axis.images]) >= 4
    assert write_figure(figure, tmp_path / "a.svg").stat().st_size > 1000


def test_a_table_of_sensors_is_one_picture_not_one_for_each_line() -> None:
    problem = dc.problems.define(
        "table",
        simulate=lambda x: x[:, :20, None] * x[:, None, :8],
        sample=lambda count, g: torch.rand(count, 30, generator=g),
        bounds=(0.0, 1.0),
        noise_std=0.1,
    )
    assert plot_problem(problem, count=1).get_figwidth() < 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("problems", "heat1d"), "error: unknown problem 'heat1d'. Did you mean 'heat-1d'?"),
        (("problems", "heat-1d", "--show", "a.gif"), "path must end in one of .png"),
        (("problems", "heat-1d", "--show", "/no/such/place/a.png"), "folder that exists"),
        (("problems", "heat-1d", "--show", "a.png", "--count", "0"), "count must be an integer"),
        (("problems", "heat-1d", "--show", "a.png", "--family", "x"), "family must be one of"),
        (("problems", "--show", "a.png"), "--show needs the name of a problem"),
        (("problem",), "No such command"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
