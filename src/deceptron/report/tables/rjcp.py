"""What RJCP predicts: between models, and between instances of one model."""

from __future__ import annotations

import numpy as np
import pandas as pd

from deceptron.report.index import WITHOUT_JCP, Index
from deceptron.report.published import published
from deceptron.report.tables.table import Cell, Column, Probability, Table
from deceptron.report.tables.view import View
from deceptron.study.statistics import Correlation, coefficient_of_variation, spearman

# RJCP of a pair or answer against ...
_BETWEEN = {
    "variation": "variation of final RMSE",
    "rmse": "mean RMSE",
    "failure": "failure rate (rmse)",
}


def rjcp_predicts(index: Index) -> Table:
    """Rank correlations of RJCP with how D-IPG ends."""
    view = View(index)
    rows: list[tuple[Cell, ...]] = []
    theirs = published("Figure 6", "spearman", problem="all problems", method="d-ipg", model="")
    for model, plain in WITHOUT_JCP.items():
        points = between_models(view, (model, plain))
        for key, words in _BETWEEN.items():
            found = spearman(points["rjcp"], points[key])
            paper = theirs.value if key == "variation" and model == "paper" else np.nan
            what = f"problems x JCP, {model}"
            rows.append((what, words, *_cells(found), paper, found.rho - paper))
    for problem in index.problems:
        for model in WITHOUT_JCP:
            if "d-ipg" in view.planned(problem, model):
                cell = view.instances(problem, model, "d-ipg")
                found = spearman(cell["rjcp"], cell["rmse"])
                what = f"instances of {problem}, {view.preset(problem, model)}"
                rows.append((what, "RMSE", *_cells(found), None, None))
    return Table(
        "rjcp",
        "What RJCP predicts",
        "Spearman's rank correlation of RJCP at the answers of D-IPG (published law, mean form) "
        "with their errors. Between models: a point is a problem with or without JCP and the mean "
        "over its instances, as in the paper's Figure 6. Within a model: a point is an instance. "
        "Two-sided p from Student's t, not corrected for the number of lines. Test set, seed "
        f"{index.seed}; failure by the rule rmse.",
        (
            Column("between", "points"),
            Column("outcome", "RJCP against"),
            Column("points", "N"),
            Column("rho", "rho"),
            Column("p", "p"),
            Column("rho_paper", "paper's rho"),
            Column("rho_difference", "difference"),
        ),
        tuple(rows),
        view.notes(),
    )


def between_models(view: View, models: tuple[str, ...]) -> pd.DataFrame:
    """A row per problem and model: mean RJCP at the answers of D-IPG, and how it ends."""
    rows = []
    for problem in view.index.problems:
        for model in models:
            if "d-ipg" not in view.planned(problem, model):
                continue
            cell = view.instances(problem, model, "d-ipg")
            if len(cell):
                rows.append(
                    {
                        "problem": problem,
                        "model": model,
                        "rjcp": float(cell["rjcp"].mean()),
                        "variation": coefficient_of_variation(cell["rmse"]),
                        "rmse": float(cell["rmse"].mean()),
                        "failure": 1 - view.rate(cell, "rmse").value,
                    }
                )
    return pd.DataFrame(rows, columns=["problem", "model", "rjcp", *_BETWEEN])


def _cells(found: Correlation) -> tuple[Cell, ...]:
    return found.count, found.rho, Probability(found.p)
