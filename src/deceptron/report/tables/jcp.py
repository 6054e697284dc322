"""What JCP changes: at the stopping rule, beside the paper, and after equal numbers of steps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from deceptron.core.status import Status
from deceptron.report.index import WITHOUT_JCP, Index
from deceptron.report.published import published
from deceptron.report.tables.paired import rmse_change, success_change
from deceptron.report.tables.table import Cell, Column, Count, Table, difference
from deceptron.report.tables.view import View, mean
from deceptron.report.words import INTERVALS, RMSE_RULE
from deceptron.study.statistics import at_step, trajectories

STEPS = (1, 2, 5, 10, 20)

QUANTITIES = ("success", "rmse", "rjcp", "cosine")


def jcp_effect(index: Index) -> Table:
    """Table 4 of the paper: each diagnostic with and without JCP."""
    view = View(index)
    titles = {"success": "success (rmse)", "rmse": "RMSE", "rjcp": "RJCP", "cosine": "cosine"}
    columns = [Column("problem", "problem"), Column("source", "source"), Column("n", "n")]
    for key in QUANTITIES:
        columns += [
            Column(f"{key}_jcp", "+JCP", titles[key]),
            Column(f"{key}_plain", "-JCP", titles[key]),
        ]
        if key in ("success", "rmse"):
            columns += [
                Column(f"{key}_change", "change", titles[key]),
                Column(f"{key}_p", "p", titles[key]),
            ]
    rows: list[tuple[Cell, ...]] = []
    for problem in index.problems:
        paper = _published_pair(problem)
        ours = {model: _measured_pair(view, problem, model) for model in WITHOUT_JCP}
        rows += [
            (problem, "paper, Table 4", None, *paper),
            (problem, f"ours, {view.preset(problem, 'paper')}", *ours["paper"]),
            (problem, "difference", None, *map(difference, ours["paper"][1:], paper)),
            (problem, "ours, standard", *ours["standard"]),
        ]
    return Table(
        "jcp",
        "Effect of JCP",
        "D-IPG with and without the penalty in stage 3, from the same stage 2, with the paper's "
        "tolerances; change is with minus without. Cosine is of the step with the negative "
        "gradient, mean over the steps of an instance and then over instances; RJCP at the answer, "
        "mean form. Each p tests the change to its left on shared instances. Test set, seed "
        f"{index.seed}. {RMSE_RULE} {INTERVALS}",
        tuple(columns),
        tuple(rows),
        view.notes(),
    )


def _published_pair(problem: str) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for key in QUANTITIES:
        pair = [
            published("Table 4", key, problem=problem, method="d-ipg", model=model).value
            for model in ("paper", "paper-plain")
        ]
        cells += pair
        if key in ("success", "rmse"):
            cells += [pair[0] - pair[1], None]
    return tuple(cells)


def _measured_pair(view: View, problem: str, model: str) -> tuple[Cell, ...]:
    models = (model, WITHOUT_JCP[model])
    found = [view.instances(problem, name, "d-ipg") for name in models]
    success, p_success = success_change(*found)
    rmse, p_rmse = rmse_change(*found)
    cosines = [_cosine(view.steps(problem, name, "d-ipg")) for name in models]
    return (
        Count(min(map(len, found))) if any(map(len, found)) else None,
        *(view.rate(rows, "rmse") for rows in found),
        success,
        p_success,
        *(mean(rows, "rmse") for rows in found),
        rmse,
        p_rmse,
        *(float(rows["rjcp"].mean()) for rows in found),
        *cosines,
    )


def _cosine(steps: pd.DataFrame) -> float:
    """Mean over the steps of an instance, then over instances."""
    return float(trajectories(steps, "cosine").mean(axis=1).mean()) if len(steps) else np.nan


def equal_steps(index: Index) -> Table:
    """Success and RMSE with and without JCP after k steps, and where the tolerance stops."""
    view = View(index)
    columns = (
        Column("problem", "problem"),
        Column("model", "trained by"),
        Column("steps", "steps"),
        Column("n", "n"),
        Column("success_jcp", "+JCP", "success (rmse)"),
        Column("success_plain", "-JCP", "success (rmse)"),
        Column("success_p", "p", "success (rmse)"),
        Column("rmse_jcp", "+JCP", "RMSE"),
        Column("rmse_plain", "-JCP", "RMSE"),
        Column("rmse_change", "change", "RMSE"),
        Column("rmse_p", "p", "RMSE"),
    )
    rows: list[tuple[Cell, ...]] = []
    for problem in index.problems:
        for model, plain in WITHOUT_JCP.items():
            if "d-ipg" not in view.planned(problem, model):
                continue
            label = view.preset(problem, model)
            after = [free_rmse(view, problem, name) for name in (model, plain)]
            for k in steps_allowed(view, problem, (model, plain)):
                rows.append((problem, label, str(k), *_beside(view, problem, after, k)))
            ends = [view.instances(problem, name, "d-ipg") for name in (model, plain)]
            rows.append((problem, label, "tolerance", *_compared(view, ends)))
    return Table(
        "equal-steps",
        "JCP after equal numbers of steps",
        "D-IPG from the same start with and without JCP, without any tolerance, after k accepted "
        "steps (a stalled instance keeps its last point; no k is shown that the study's step limit "
        "kept an instance from), and with the paper's tolerance, where "
        "each stops after a different number of steps. If JCP helped only by moving that stop, "
        f"the rows of equal k would agree. Test set, seed {index.seed}. {RMSE_RULE} {INTERVALS}",
        columns,
        tuple(rows),
        view.notes(),
    )


def free_rmse(view: View, problem: str, model: str) -> pd.DataFrame:
    """RMSE by instance and step of D-IPG without tolerance."""
    steps = view.steps(problem, model, "d-ipg-free")
    return trajectories(steps, "rmse") if len(steps) else pd.DataFrame()


def steps_allowed(view: View, problem: str, models: Iterable[str]) -> list[int]:
    """Those of ``STEPS`` that every instance could have taken."""
    cells = pd.concat([view.instances(problem, model, "d-ipg-free") for model in models])
    cut = cells.loc[cells["status"] == Status.STEP_LIMIT.name, "iterations"]
    return [k for k in STEPS if cut.empty or k <= cut.min()]


def _beside(view: View, problem: str, after: list[pd.DataFrame], k: int) -> tuple[Cell, ...]:
    if any(paths.empty for paths in after):
        return (None,) * 8
    values = (at_step(paths, k) for paths in after)
    return _compared(
        view, [pd.DataFrame({"problem": problem, "rmse": series}) for series in values]
    )


def _compared(view: View, found: list[pd.DataFrame]) -> tuple[Cell, ...]:
    shared = found[0].index.intersection(found[1].index)
    if shared.empty:
        return (None,) * 8
    pair = [rows.loc[shared] for rows in found]
    _, p_success = success_change(*pair)
    rmse, p_rmse = rmse_change(*pair)
    return (
        Count(len(shared)),
        *(view.rate(rows, "rmse") for rows in pair),
        p_success,
        *(mean(rows, "rmse") for rows in pair),
        rmse,
        p_rmse,
    )
