"""Every example runs from end to end, small, and prints its table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if path.stem != "common")
NEEDS = {"jax_wave_speed": "jax", "scikit_fem_absorption": "skfem", "umbridge_beam": "umbridge"}


def test_there_are_six() -> None:
    assert len(SCRIPTS) == 6


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_runs(script: Path, tmp_path: Path) -> None:
    if script.stem in NEEDS:
        pytest.importorskip(NEEDS[script.stem])
    done = subprocess.run(
        [sys.executable, str(script), "--small"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "needs a C compiler" in done.stderr:
        pytest.skip("no C compiler here")
    assert done.returncode == 0, done.stderr[-2000:]
    for words in ("one-shot network", "dc.solve", "SciPy least_squares", "RMSE"):
        assert words in done.stdout
