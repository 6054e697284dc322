"""The parts of the training benchmarks that could be wrong without anyone noticing."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

import deceptron as dc
from benchmarks import standard
from benchmarks.paper import SCRIPT, SETTINGS, means, script_solve
from benchmarks.time_to_rmse import epochs_until


def pair_with(bounds: tuple[float, float]) -> dc.Deceptron:
    """A linear map and a rough inverse."""
    generator = torch.Generator().manual_seed(2)
    f, g = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
    with torch.no_grad():
        f.weight.copy_(torch.eye(6) + 0.3 * torch.randn(6, 6, generator=generator))
        g.weight.copy_(f.weight.inverse() + 0.1 * torch.randn(6, 6, generator=generator))
        f.bias.zero_()
        g.bias.fill_(0.05)
    return dc.Deceptron(f, g, bounds=bounds, x_shape=(6,), y_shape=(6,)).requires_grad_(False)


def test_the_scripts_rule_is_algorithm_one_away_from_the_box() -> None:
    y = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    free = pair_with((-1e6, 1e6))
    x, residual, iterations = script_solve(free, y, steps=12, tolerance=0.05)
    ours = dc.solve(free, y, method="d-ipg", max_iterations=12, tolerance=0.05)
    torch.testing.assert_close(x, ours.x, rtol=0, atol=1e-4)
    torch.testing.assert_close(residual, ours.residual, rtol=0, atol=1e-4)
    assert int(iterations.max()) > 1

    boxed = pair_with((0.0, 0.25))
    x, *_ = script_solve(boxed, y, steps=12, tolerance=0.05)
    assert float(x.min()) >= 0.0
    assert float(x.max()) <= 0.25
    ours = dc.solve(boxed, y, method="d-ipg", max_iterations=12, tolerance=0.05)
    assert not torch.allclose(x, ours.x, atol=1e-3)


def test_means_are_over_seeds_of_one_branch_and_method() -> None:
    values = {"rjcp": 1.0, "iterations": 4.0, "training_s": 2.0, "method": SCRIPT}
    rows = [
        {"problem": "heat-1d", "seed": seed, "branch": branch, "success": s, "rmse": r, **values}
        for seed, branch, s, r in (
            (7, "with JCP", 10.0, 0.2),
            (8, "with JCP", 30.0, 0.4),
            (7, "without JCP", 50.0, 0.6),
        )
    ]
    (found,) = means(rows)
    assert found["branch"] == "with JCP"
    assert (found["success"], found["rmse"]) == (20.0, pytest.approx(0.3))
    assert set(SETTINGS) <= set(dc.problems.names())


def test_epochs_until_the_target() -> None:
    metrics = pd.DataFrame(
        {
            "stage": 2 * ["forward"] + 3 * ["reverse"] + ["jcp", "plain"],
            "val_pairs": [None, None, 0.25, 0.09, 0.01, 0.01, 0.0],
            "val_reconstruction": [None, None, 0.0, 0.0, 0.0, 0.0, 0.0],
        }
    )
    assert epochs_until(metrics, 0.3) == ({"forward": 2, "reverse": 2, "jcp": 0}, True)
    assert epochs_until(metrics, 0.05) == ({"forward": 2, "reverse": 3, "jcp": 1}, False)


def test_a_measurement_by_other_code_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def measured(name: str, *_: object) -> dict[str, object]:
        calls.append(name)
        return {"one_shot": 0.1, "wiener": 0.2, "code": standard.assessing_code()}

    monkeypatch.setattr(standard, "trained", lambda problem, seed: (None, tmp_path))
    monkeypatch.setattr(standard, "measured", measured)
    for _ in range(2):
        assert standard.row("heat-1d", 7) == {
            "one_shot": 0.1,
            "wiener": 0.2,
            "target": 0.125,
            "met": True,
        }
    assert len(calls) == 1
    record = tmp_path / "quality.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "code": "older"}))
    standard.row("heat-1d", 7)
    assert len(calls) == 2
