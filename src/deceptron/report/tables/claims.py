"""Numbers that the paper states in its text and captions, beside ours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deceptron.report.published import ALLEN_CAHN, paper_value
from deceptron.report.query import Query
from deceptron.report.tables.rjcp import between_models
from deceptron.report.tables.table import Column, table
from deceptron.study.entries import PROBLEMS
from deceptron.study.statistics import basin_occupancy, bundle_width, spearman

BUNDLE, BUNDLE_STEP = "navier-stokes-2d", 6  # where the paper quotes the width


@table(
    "claims",
    "Numbers quoted in the paper's text",
    (
        Column("claim", "claim"),
        Column("origin", "where"),
        Column("paper", "paper"),
        Column("ours", "ours"),
        Column("difference", "difference"),
    ),
)
def claims(query: Query) -> list[dict[str, str | float]]:
    """Each claim with its place, the paper's number, ours and the difference.

    A study that can answer none of them, on other problems, has no lines.
    """
    lines = list(_claims(query))
    return lines if any(line["ours"] == line["ours"] for line in lines) else []


def _claim(
    words: str,
    origin: str,
    quantity: str,
    ours: float,
    *,
    problem: str = ALLEN_CAHN,
    method: str = "d-ipg",
    model: str = "paper",
) -> dict[str, str | float]:
    paper = paper_value(origin, quantity, problem=problem, method=method, model=model).value
    numbers = {"paper": paper, "ours": ours, "difference": ours - paper}
    return {"claim": words, "origin": origin, **numbers}


def _claims(query: Query) -> Iterator[dict[str, str | float]]:
    for method in ("d-ipg", "gn", "lm"):
        yield _claim(
            f"{method}: mean success over the six problems without heat-1d",
            "Section 5.3",
            "mean success",
            _mean_success(query, method),
            problem="six problems",
            method=method,
        )
    seconds = [query.trials(ALLEN_CAHN, "paper", method).latency for method in ("lm", "d-ipg")]
    yield _claim(
        f"LM takes so many times the time of D-IPG on {ALLEN_CAHN}",
        "Abstract",
        "time ratio",
        seconds[0] / seconds[1],
        method="lm",
    )
    for model, words in (("paper", "with"), ("paper-plain", "without")):
        reached = _good_basin(query, model)
        where = f"good basin on {ALLEN_CAHN}, D-IPG {words} JCP"
        yield _claim(where, "Figure 2", "good basin", reached, model=model)
    points = between_models(query, ("paper", "paper-plain"))
    yield _claim(
        "Spearman's rho of RJCP and variation of RMSE",
        "Figure 6",
        "spearman",
        spearman(points["rjcp"], points["variation"]).rho,
        problem="all problems",
        model="",
    )
    yield _claim(
        f"bundle width without / with JCP at step {BUNDLE_STEP} on {BUNDLE}",
        "Figure 6",
        "bundle ratio",
        _bundle(query, "paper-plain") / _bundle(query, "paper"),
        problem=BUNDLE,
        model="",
    )
    for words, model in (("4 probes", "paper-probes-4"), ("step size 1", "paper")):
        ours = query.trials(ALLEN_CAHN, model, "d-ipg").rate_value("rmse")
        yield _claim(
            f"D-IPG on {ALLEN_CAHN}, {words}: success", "Figure 7", "success", ours, model=model
        )


def _mean_success(query: Query, method: str) -> float:
    # NaN unless all six are there: a mean over fewer would not be the paper's number.
    six = [problem for problem in PROBLEMS if problem != "heat-1d"]
    return float(np.mean([query.trials(p, "paper", method).rate_value("rmse") for p in six]))


def _good_basin(query: Query, model: str) -> float:
    paths = query.trials(ALLEN_CAHN, model, "d-ipg").paths("rmse")
    return float(basin_occupancy(paths).mean()) if len(paths) else np.nan


def _bundle(query: Query, model: str) -> float:
    paths = query.trials(BUNDLE, model, "d-ipg").paths("residual").drop(columns=0, errors="ignore")
    if paths.empty:
        return np.nan
    widths = dict(zip(paths.columns.astype(int), bundle_width(paths), strict=True))
    return float(widths.get(BUNDLE_STEP, np.nan))
