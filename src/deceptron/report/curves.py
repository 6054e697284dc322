"""Training curves of a run folder as a file."""

from __future__ import annotations

import os
from pathlib import Path

from deceptron.plot.curves import training_curves
from deceptron.report.drawing import check_picture_path, write_figure


def draw(run_folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write ``curves.png`` into the run folder (or to ``path``) and return where."""
    folder = Path(run_folder)
    target = folder / "curves.png" if path is None else Path(path)
    check_picture_path(target)
    return write_figure(training_curves(folder), target, dpi=110)
