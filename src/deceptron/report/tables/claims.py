"""Numbers that the paper states in its text and captions, beside ours."""

from __future__ import annotations

import numpy as np

from deceptron.report.index import Index
from deceptron.report.published import published
from deceptron.report.tables.rjcp import between_models
from deceptron.report.tables.table import Cell, Column, Table
from deceptron.report.tables.view import View
from deceptron.study.names import PROBLEMS
from deceptron.study.statistics import basin_occupancy, bundle_width, spearman, trajectories

ALLEN_CAHN = "allen-cahn-2d"
BUNDLE, BUNDLE_STEP = "navier-stokes-2d", 6  # where the paper quotes the width


def claims(index: Index) -> Table:
    """Each claim with its place, the paper's number, ours and the difference."""
    view = View(index)
    rows: list[tuple[Cell, ...]] = []

    def claim(words: str, origin: str, quantity: str, ours: float, **key: str) -> None:
        theirs = published(origin, quantity, **key).value
        rows.append((words, origin, theirs, ours, ours - theirs))

    for method in ("d-ipg", "gn", "lm"):
        claim(
            f"{method}: mean success over the six problems without heat-1d",
            "Section 5.3",
            "mean success",
            _mean_success(view, method),
            problem="six problems",
            method=method,
        )
    claim(
        f"LM takes so many times the time of D-IPG on {ALLEN_CAHN}",
        "Abstract",
        "time ratio",
        view.latency(ALLEN_CAHN, "paper", "lm") / view.latency(ALLEN_CAHN, "paper", "d-ipg"),
        problem=ALLEN_CAHN,
        method="lm",
    )
    for model, words in (("paper", "with"), ("paper-plain", "without")):
        claim(
            f"good basin on {ALLEN_CAHN}, D-IPG {words} JCP",
            "Figure 2",
            "good basin",
            _good_basin(view, model),
            problem=ALLEN_CAHN,
            method="d-ipg",
            model=model,
        )
    points = between_models(view, ("paper", "paper-plain"))
    claim(
        "Spearman's rho of RJCP and variation of RMSE",
        "Figure 6",
        "spearman",
        spearman(points["rjcp"], points["variation"]).rho,
        problem="all problems",
        method="d-ipg",
        model="",
    )
    claim(
        f"bundle width without / with JCP at step {BUNDLE_STEP} on {BUNDLE}",
        "Figure 6",
        "bundle ratio",
        _bundle(view, "paper-plain") / _bundle(view, "paper"),
        problem=BUNDLE,
        method="d-ipg",
        model="",
    )
    claim(
        f"D-IPG on {ALLEN_CAHN}, 4 probes: success",
        "Figure 7",
        "success",
        _success(view, ALLEN_CAHN, "paper-probes-4", "d-ipg"),
        problem=ALLEN_CAHN,
        method="d-ipg",
        model="paper-probes-4",
    )
    claim(
        f"D-IPG on {ALLEN_CAHN}, step size 1: success",
        "Figure 7",
        "success",
        _success(view, ALLEN_CAHN, "paper", "d-ipg"),
        problem=ALLEN_CAHN,
        method="d-ipg",
    )
    return Table(
        "claims",
        "Numbers quoted in the paper's text",
        "The published protocol (full or reduced, see the table of models), test set, seed "
        f"{index.seed}. Success by the rule rmse; the paper publishes its threshold for "
        "allen-cahn-2d only. Times alone on one CPU thread, the paper's on a GPU.",
        (
            Column("claim", "claim"),
            Column("origin", "where"),
            Column("paper", "paper"),
            Column("ours", "ours"),
            Column("difference", "difference"),
        ),
        tuple(rows),
        view.notes(),
    )


def _success(view: View, problem: str, model: str, method: str) -> float:
    return view.rate(view.instances(problem, model, method), "rmse").value


def _mean_success(view: View, method: str) -> float:
    # NaN unless all six are there: a mean over fewer would not be the paper's number.
    six = [problem for problem in PROBLEMS if problem != "heat-1d"]
    return float(np.mean([_success(view, problem, "paper", method) for problem in six]))


def _good_basin(view: View, model: str) -> float:
    steps = view.steps(ALLEN_CAHN, model, "d-ipg")
    return float(basin_occupancy(trajectories(steps, "rmse")).mean()) if len(steps) else np.nan


def _bundle(view: View, model: str) -> float:
    steps = view.steps(BUNDLE, model, "d-ipg")
    paths = trajectories(steps, "residual").drop(columns=0, errors="ignore")
    widths = dict(zip(paths.columns.astype(int), bundle_width(paths), strict=True))
    return float(widths.get(BUNDLE_STEP, np.nan))
