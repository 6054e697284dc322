"""Training curves of a run folder, drawn from its metrics.csv alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from deceptron.core.errors import CheckpointError
from deceptron.report.drawing import check_picture_path, write_figure

# Panels from left to right: title, columns of metrics.csv with their labels.
PANELS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("1 forward: task", (("task", "training"), ("val_task", "validation"))),
    (
        "2 reverse: error in x",
        (
            ("reconstruction", "g(f(x)), training"),
            ("val_reconstruction", "g(f(x)), validation"),
            ("val_pairs", "noisy pairs, validation"),
        ),
    ),
    (
        "3 continuation: error in x",
        (("val_reconstruction", "g(f(x))"), ("val_pairs", "noisy pairs")),
    ),
    ("3 continuation: RJCP", (("rjcp", "RJCP"),)),
)
STAGES = (("forward",), ("reverse",), ("jcp", "plain"), ("jcp", "plain"))
BRANCHES = {"jcp": "with JCP", "plain": "without JCP"}


def draw(run_folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write ``curves.png`` into the run folder (or to ``path``) and return where."""
    folder = Path(run_folder)
    target = folder / "curves.png" if path is None else Path(path)
    check_picture_path(target)
    metrics = _read(folder / "metrics.csv")
    figure = Figure(figsize=(3.4 * len(PANELS), 3.0), layout="constrained")
    axes = figure.subplots(1, len(PANELS))
    for axis, (title, columns), stages in zip(axes, PANELS, STAGES, strict=True):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("epoch", fontsize=8)
        axis.tick_params(labelsize=7)
        if _panel(axis, metrics, columns, stages):
            axis.set_yscale("log")
            axis.legend(fontsize=7)
    return write_figure(figure, target)


def _panel(
    axis: Any,
    metrics: pd.DataFrame,
    columns: tuple[tuple[str, str], ...],
    stages: tuple[str, ...],
) -> bool:
    drawn = False
    for stage in stages:
        rows = metrics[metrics["stage"] == stage]
        for column, label in columns:
            if column not in rows or not rows[column].notna().any():
                continue
            words = f"{label}, {BRANCHES[stage]}" if stage in BRANCHES else label
            # A single epoch is a point, not a line.
            marker = "o" if len(rows) == 1 else None
            axis.plot(rows["epoch"], rows[column], label=words, linewidth=1.2, marker=marker)
            drawn = True
    return drawn


def _read(path: Path) -> pd.DataFrame:
    try:
        metrics = pd.read_csv(path)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, pd.errors.ParserError) as error:
        raise CheckpointError(f"{path} is not a table of metrics: {error}") from error
    if not {"stage", "epoch"} <= set(metrics.columns):
        raise CheckpointError(f"{path} is not a table of metrics: it lacks stage or epoch")
    return metrics
