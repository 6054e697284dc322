"""Numbers that the paper states in its text and captions, beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from deceptron.report.published import paper_value
from deceptron.report.query import Query
from deceptron.report.tables.rjcp import between_models
from deceptron.report.tables.table import Column, Table, measured
from deceptron.study.entries import PROBLEMS
from deceptron.study.statistics import basin_occupancy, bundle_width, spearman

ALLEN_CAHN = "allen-cahn-2d"
BUNDLE, BUNDLE_STEP = "navier-stokes-2d", 6  # where the paper quotes the width


@dataclass(frozen=True)
class Claim:
    """Words of the paper, where they stand, and our number; the rest looks the paper's up."""

    words: str
    origin: str
    quantity: str
    ours: float
    problem: str = ALLEN_CAHN
    method: str = "d-ipg"
    model: str = "paper"

    @property
    def paper(self) -> float:
        """The published value."""
        where = {"problem": self.problem, "method": self.method, "model": self.model}
        return paper_value(self.origin, self.quantity, **where).value


COLUMNS = (
    Column("claim", "claim", value=lambda claim: claim.words),
    Column("origin", "where", value=lambda claim: claim.origin),
    Column("paper", "paper", value=lambda claim: claim.paper),
    Column("ours", "ours", value=lambda claim: claim.ours),
    Column("difference", "difference", value=lambda claim: claim.ours - claim.paper),
)


def claims(query: Query) -> Table:
    """Each claim with its place, the paper's number, ours and the difference.

    A study that can answer none of them, on other problems, has no lines.
    """
    found = list(_claims(query))
    known = found if any(np.isfinite(claim.ours) for claim in found) else []
    return Table(
        "claims",
        "Numbers quoted in the paper's text",
        "The published protocol (full or reduced, see the table of models), test set, seed "
        f"{query.seed}. Success by the rule rmse; the paper publishes its threshold for "
        "allen-cahn-2d only. Times alone on one CPU thread, the paper's on a GPU.",
        COLUMNS,
        tuple(measured(COLUMNS, claim) for claim in known),
    )


def _claims(query: Query) -> Iterator[Claim]:
    for method in ("d-ipg", "gn", "lm"):
        yield Claim(
            f"{method}: mean success over the six problems without heat-1d",
            "Section 5.3",
            "mean success",
            _mean_success(query, method),
            problem="six problems",
            method=method,
        )
    seconds = [query.trials(ALLEN_CAHN, "paper", method).latency for method in ("lm", "d-ipg")]
    yield Claim(
        f"LM takes so many times the time of D-IPG on {ALLEN_CAHN}",
        "Abstract",
        "time ratio",
        seconds[0] / seconds[1],
        method="lm",
    )
    for model, words in (("paper", "with"), ("paper-plain", "without")):
        reached = _good_basin(query, model)
        where = f"good basin on {ALLEN_CAHN}, D-IPG {words} JCP"
        yield Claim(where, "Figure 2", "good basin", reached, model=model)
    points = between_models(query, ("paper", "paper-plain"))
    yield Claim(
        "Spearman's rho of RJCP and variation of RMSE",
        "Figure 6",
        "spearman",
        spearman(points["rjcp"], points["variation"]).rho,
        problem="all problems",
        model="",
    )
    yield Claim(
        f"bundle width without / with JCP at step {BUNDLE_STEP} on {BUNDLE}",
        "Figure 6",
        "bundle ratio",
        _bundle(query, "paper-plain") / _bundle(query, "paper"),
        problem=BUNDLE,
        model="",
    )
    for words, model in (("4 probes", "paper-probes-4"), ("step size 1", "paper")):
        ours = query.trials(ALLEN_CAHN, model, "d-ipg").rate_value("rmse")
        yield Claim(
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
