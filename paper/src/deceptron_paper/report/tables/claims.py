"""Numbers that the paper states in its text and captions, beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from deceptron_paper.report.published import ALLEN_CAHN, paper_value
from deceptron_paper.report.query import Query, Trials
from deceptron_paper.report.tables.rjcp import between_models
from deceptron_paper.report.tables.table import Column, table
from deceptron_paper.statistics import basin_occupancy, spearman
from deceptron_paper.study.entries import PROBLEMS

BUNDLE, BUNDLE_STEP = "navier-stokes-2d", 6  # where the paper quotes the width


@dataclass(frozen=True)
class Claim:
    """A number of the text: what it is about, where it stands, and the same from the records."""

    words: str
    origin: str
    quantity: str
    ours: float
    problem: str = ALLEN_CAHN
    method: str = "d-ipg"
    model: str = "paper"

    @property
    def paper(self) -> float:
        """What the paper says."""
        where = {"problem": self.problem, "method": self.method, "model": self.model}
        return paper_value(self.origin, self.quantity, **where).value


@table(
    "claims",
    "Numbers quoted in the paper's text",
    (
        Column("claim", "claim", value=lambda c: c.words),
        Column("origin", "where", value=lambda c: c.origin),
        Column("paper", "paper", value=lambda c: c.paper),
        Column("ours", "ours", value=lambda c: c.ours),
        Column("difference", "difference", value=lambda c: c.ours - c.paper),
    ),
)
def claims(query: Query) -> list[Claim]:
    """Each claim; a study that can answer none of them, on other problems, has no lines."""
    found = list(_claims(query))
    return found if any(claim.ours == claim.ours for claim in found) else []


def _claims(query: Query) -> Iterator[Claim]:
    def d_ipg(model: str) -> Trials:
        return query.trials(ALLEN_CAHN, model, "d-ipg")

    for method in ("d-ipg", "gn", "lm"):
        words = f"{method}: mean success over the six problems without heat-1d"
        ours = _mean_success(query, method)
        yield Claim(words, "Section 5.3", "mean success", ours, "six problems", method)
    ratio = query.trials(ALLEN_CAHN, "paper", "lm").latency / d_ipg("paper").latency
    words = f"LM takes so many times the time of D-IPG on {ALLEN_CAHN}"
    yield Claim(words, "Abstract", "time ratio", ratio, method="lm")
    for model, jcp in (("paper", "with"), ("paper-plain", "without")):
        paths = d_ipg(model).paths("rmse")
        reached = float(basin_occupancy(paths).mean()) if len(paths) else np.nan
        words = f"good basin on {ALLEN_CAHN}, D-IPG {jcp} JCP"
        yield Claim(words, "Figure 2", "good basin", reached, model=model)
    points = between_models(query, ("paper", "paper-plain"))
    rho = spearman(points["rjcp"], points["variation"]).rho
    words = "Spearman's rho of RJCP and variation of RMSE"
    yield Claim(words, "Figure 6", "spearman", rho, "all problems", model="")
    plain, jcp = (
        query.trials(BUNDLE, model, "d-ipg").bundle_widths().get(BUNDLE_STEP, np.nan)
        for model in ("paper-plain", "paper")
    )
    words = f"bundle width without / with JCP at step {BUNDLE_STEP} on {BUNDLE}"
    yield Claim(words, "Figure 6", "bundle ratio", float(plain / jcp), BUNDLE, model="")
    for setting, model in (("4 probes", "paper-probes-4"), ("step size 1", "paper")):
        words, ours = f"D-IPG on {ALLEN_CAHN}, {setting}: success", d_ipg(model).rate_value("rmse")
        yield Claim(words, "Figure 7", "success", ours, model=model)


def _mean_success(query: Query, method: str) -> float:
    # NaN unless all six are there: a mean over fewer would not be the paper's number.
    six = [problem for problem in PROBLEMS if problem != "heat-1d"]
    return float(np.mean([query.trials(p, "paper", method).rate_value("rmse") for p in six]))
