"""Training curves of a run folder, drawn from its metrics.csv alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from deceptron.core.errors import CheckpointError
from deceptron.plot.picture import Picture, picture

# Stage 3 continues the axis of stage 2; its branches tell each other apart by colour.
STAGES = {
    "forward": ("stage 1", "black"),
    "reverse": ("stage 2", "black"),
    "jcp": ("with JCP", "tab:blue"),
    "plain": ("without JCP", "tab:orange"),
}
AFTER_REVERSE = ("jcp", "plain")
# Spans smaller than this read better on a linear axis.
LOG_SPAN = 4.0


@dataclass(frozen=True)
class Panel:
    """Columns of metrics.csv that share an axis, with label and style, over these stages."""

    title: str
    stages: tuple[str, ...]
    curves: dict[str, tuple[str, str]]
    power: float = 0.5  # of what is drawn: errors are squared in the file


PANELS = (
    Panel(
        "RMS error of f (normalised units)",
        ("forward",),
        {"task": ("training", ":"), "val_task": ("validation", "-")},
    ),
    Panel(
        "RMS error of g in x (validation)",
        ("reverse", *AFTER_REVERSE),
        {"val_reconstruction": ("g(f(x))", "--"), "val_pairs": ("g(noisy y)", "-")},
    ),
    Panel("RJCP (validation)", ("reverse", *AFTER_REVERSE), {"rjcp": ("RJCP", "-")}, power=1.0),
)


def training_curves(run_folder: str | os.PathLike[str]) -> Picture:
    """Errors of f and g and the RJCP by epoch, of a run folder of ``dc.train``."""
    metrics = _read(Path(run_folder) / "metrics.csv")
    figure = picture(4.0 * len(PANELS), 3.2)
    for axis, panel in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        axis.set_title(panel.title, fontsize=10)
        axis.set_xlabel("epoch", fontsize=8)
        axis.tick_params(labelsize=8)
        _panel(axis, metrics, panel)
    return figure


def _panel(axis: Any, metrics: pd.DataFrame, panel: Panel) -> None:
    second_stage = int((metrics["stage"] == "reverse").sum())
    stages: dict[str, None] = {}
    columns: dict[str, None] = {}
    values: list[float] = []
    for stage in panel.stages:
        rows = metrics[metrics["stage"] == stage]
        epochs = rows["epoch"] + (second_stage if stage in AFTER_REVERSE else 0)
        for column, (_, style) in panel.curves.items():
            if column not in rows or not rows[column].notna().any():
                continue
            shown = rows[column] ** panel.power
            # A single epoch is a point, not a line.
            marker = "o" if len(rows) == 1 else ""
            colour = STAGES[stage][1]
            axis.plot(epochs, shown, style, color=colour, marker=marker, linewidth=1.2)
            stages[stage] = columns[column] = None
            values += shown.dropna().tolist()
    if not values:
        return
    if stages.keys() & set(AFTER_REVERSE):
        axis.axvline(second_stage + 0.5, color="0.8", linewidth=0.8, zorder=0)
    _scale(axis, values)
    axis.legend(handles=_legend(panel, list(stages), list(columns)), fontsize=7)


def _scale(axis: Any, values: list[float]) -> None:
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if min(values) > 0 and max(values) > LOG_SPAN * min(values):
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())


def _legend(panel: Panel, stages: list[str], columns: list[str]) -> list[Line2D]:
    """Colours stand for stages and styles for curves; a lone one needs no entry."""
    handles = []
    if len(stages) > 1:
        handles += [Line2D([], [], color=STAGES[s][1], label=STAGES[s][0]) for s in stages]
    if len(panel.curves) > 1 or not handles:
        looks = [panel.curves[column] for column in columns]
        handles += [Line2D([], [], color="0.5", ls=style, label=words) for words, style in looks]
    return handles


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
