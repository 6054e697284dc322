"""What RJCP predicts: between models, and between instances of one model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from deceptron_paper.report.published import paper_value
from deceptron_paper.report.query import WITHOUT_JCP, Query
from deceptron_paper.report.tables.table import Column, Line, Probability, Value, measured, table
from deceptron_paper.statistics import Correlation, coefficient_of_variation, spearman

# RJCP of a pair against ...
OUTCOMES = {
    "variation": "variation of final RMSE",
    "rmse": "mean RMSE",
    "failure": "failure rate (rmse)",
}
COLUMNS = (
    Column("between", "points"),
    Column("outcome", "RJCP against"),
    Column("points", "N", value=lambda c: c.count),
    Column("rho", "rho", value=lambda c: c.rho),
    Column("p", "p", value=lambda c: Probability(c.p)),
    Column("rho_paper", "paper's rho"),
    Column("rho_difference", "difference"),
)


@table("rjcp", "What RJCP predicts", COLUMNS)
def rjcp_predicts(query: Query) -> Iterator[Line]:
    """Rank correlations of RJCP with how D-IPG ends."""
    theirs = paper_value("Figure 6", "spearman", problem="all problems", method="d-ipg", model="")
    for model, plain in WITHOUT_JCP.items():
        points = between_models(query, (model, plain))
        for key, words in OUTCOMES.items():
            found = spearman(points["rjcp"], points[key])
            paper = theirs.value if key == "variation" and model == "paper" else np.nan
            beside: dict[str, Value] = {"rho_paper": paper, "rho_difference": found.rho - paper}
            yield {**_line(f"problems x JCP, {model}", words, found), **beside}
    for problem in query.problems:
        for model in WITHOUT_JCP:
            if "d-ipg" in query.planned_methods(problem, model):
                rows = query.trials(problem, model, "d-ipg").rows
                what = f"instances of {problem}, {query.preset(problem, model)}"
                yield _line(what, "RMSE", spearman(rows["rjcp"], rows["rmse"]))


def between_models(query: Query, models: tuple[str, ...]) -> pd.DataFrame:
    """A row per problem and model: mean RJCP at the answers of D-IPG, and how it ends."""
    rows = []
    for problem in query.problems:
        for model in models:
            if "d-ipg" not in query.planned_methods(problem, model):
                continue
            trials = query.trials(problem, model, "d-ipg")
            if len(trials):
                rows.append(
                    {
                        "problem": problem,
                        "model": model,
                        "rjcp": trials.average("rjcp"),
                        "variation": coefficient_of_variation(trials.rows["rmse"]),
                        "rmse": trials.average("rmse"),
                        "failure": 1 - trials.rate_value("rmse"),
                    }
                )
    return pd.DataFrame(rows, columns=["problem", "model", "rjcp", *OUTCOMES])


def _line(between: str, outcome: str, found: Correlation) -> dict[str, Value]:
    return {"between": between, "outcome": outcome, **measured(COLUMNS, found)}
