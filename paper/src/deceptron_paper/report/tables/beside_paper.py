"""Tables 2, 3, 4 and 6 of the paper: published, ours, the difference, and our own models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from deceptron_paper.report.published import MAIN_PROBLEMS, best_baseline, paper_value
from deceptron_paper.report.query import WITHOUT_JCP, Query, Trials
from deceptron_paper.report.tables.case import median_iterations
from deceptron_paper.report.tables.table import (
    Column,
    Count,
    Exact,
    Line,
    Spread,
    Value,
    change,
    difference,
    differences,
    is_known,
    measured,
    numbers,
    p_value,
    paper_line,
    table,
)

PAPER_SETTINGS = ("gd", "gn", "lm", "l-bfgs")
TUNED = ("gn-tuned", "lm-tuned", "l-bfgs-tuned")
OVER_SEEDS = "Table 6"  # the others are of the first seed
# Classical methods on the surrogate that compete with D-IPG, by model.
CLASSICS = {"paper": PAPER_SETTINGS, "standard": PAPER_SETTINGS + TUNED}


@dataclass(frozen=True)
class Quantity:
    """What the paper reports of a method, how it is measured here, and what kind of cell it is."""

    title: str
    estimate: Callable[[Trials], Value]
    kind: Callable[[float], Value] = float

    def bare(self, trials: Trials) -> float:
        """The estimate without an interval, NaN for none."""
        first = numbers(self.estimate(trials))[0]
        return np.nan if first is None else first


QUANTITIES = {
    "success": Quantity("success (rmse)", lambda t: t.rate("rmse")),
    "iterations": Quantity("median iterations", lambda t: Exact(median_iterations(t)), Exact),
    "rmse": Quantity("RMSE", lambda t: t.mean("rmse")),
    "seconds": Quantity("seconds alone", lambda t: t.latency),
    "rjcp": Quantity("RJCP", lambda t: t.average("rjcp")),
    "cosine": Quantity("cosine", lambda t: float(t.cosines().mean())),
}


@dataclass(frozen=True)
class Overview:
    """D-IPG with one model on one problem, and what it competes with, by side of the comparison.

    Sides are ``jcp``, ``plain`` (D-IPG on the pair that was trained without the penalty), ``best``
    (the strongest classical method) and the names of methods.
    """

    query: Query
    problem: str
    model: str
    seeds: tuple[int, ...]

    def of(self, side: str) -> list[Trials]:
        """A seed each; empty where there is no such method."""
        method = {"jcp": "d-ipg", "plain": "d-ipg"}.get(side, side)
        if side == "best":
            method = self.best or ""
        model = WITHOUT_JCP[self.model] if side == "plain" else self.model
        seeds = self.seeds if method else ()
        return [self.query.trials(self.problem, model, method, seed=seed) for seed in seeds]

    @cached_property
    def best(self) -> str | None:
        """The classical method of all seeds that succeeds most, then errs least."""
        found = {}
        for method in CLASSICS[self.model]:
            planned = self.query.planned_seeds(self.problem, self.model, method)
            if set(self.seeds) <= set(planned):
                success, rmse = (self.spread(key, method).mean for key in ("success", "rmse"))
                found[method] = (-success, rmse)
        run = [method for method, (success, _) in found.items() if not np.isnan(success)]
        return min(run, key=found.__getitem__, default=None)

    def estimate(self, quantity: str, side: str) -> Value:
        """Of the first seed, with its interval over instances.

        The sides ``change`` and ``p`` are with minus without JCP on shared instances, and its test.
        """
        if side in ("change", "p"):
            (jcp,), (plain,) = self.of("jcp"), self.of("plain")
            found = jcp.against(plain, "rmse" if quantity == "success" else None)
            return change(found) if side == "change" else p_value(found)
        trials = self.of(side)
        return QUANTITIES[quantity].estimate(trials[0]) if trials else None

    def spread(self, quantity: str, side: str) -> Spread:
        """Mean and standard deviation over seeds; one seed has no spread."""
        values = [QUANTITIES[quantity].bare(trials) for trials in self.of(side)]
        known = pd.Series(values, dtype=float)
        return Spread(float(known.mean()), float(known.std()))


def published(origin: str, quantity: str, side: str, problem: str) -> Spread:
    """What a table of the paper says of a side, with the spread over seeds where it gives one."""
    method, model = "d-ipg", "paper-plain" if side == "plain" else "paper"
    if side == "change":
        jcp, plain = (published(origin, quantity, s, problem).mean for s in ("jcp", "plain"))
        return Spread(jcp - plain, np.nan)
    if side == "best":
        method, quantity = best_baseline(origin, problem) or "", f"best baseline {quantity}"
    elif side not in ("jcp", "plain"):
        method = side
    found = paper_value(origin, quantity, problem=problem, method=method, model=model)
    return Spread(found.value, found.spread)


def _column(origin: str, quantity: str, side: str, title: str, group: str = "") -> Column:
    """A quantity on one side: with its interval, or over seeds."""
    over_seeds = origin == OVER_SEEDS

    def ours(about: Overview) -> Value:
        measure = about.spread if over_seeds else about.estimate
        return measure(quantity, side)

    def paper(problem: str) -> Value:
        found = published(origin, quantity, side, problem)
        return found if over_seeds else QUANTITIES[quantity].kind(found.mean)

    return Column(f"{quantity}_{side}".replace("-", "_"), title, group, ours, paper)


def _best(origin: str) -> Column:
    return Column(
        "best",
        "best classic",
        value=lambda about: about.best,
        paper=lambda problem: best_baseline(origin, problem),
    )


def _beside(query: Query, columns: tuple[Column, ...], origin: str) -> Iterator[Line]:
    """The paper's line of each problem, ours, the difference, and that of ``standard``."""
    for problem in query.problems:
        paper = paper_line(columns, problem)
        known = any(map(is_known, paper.values()))
        if known:
            yield {"problem": problem, "source": f"paper, {origin}", **paper}
        for model in WITHOUT_JCP:
            planned = query.planned_seeds(problem, model, "d-ipg")
            if not planned:
                continue
            seeds = tuple(planned) if origin == OVER_SEEDS else (query.seed,)
            ours = measured(columns, Overview(query, problem, model, seeds))
            label = {"problem": problem, "source": f"ours, {query.preset(problem, model)}"}
            yield {**label, **ours}
            if known and model == "paper":
                yield {**label, "source": "difference", **differences(ours, paper)}


LABELS = (Column("problem", "problem"), Column("source", "source"))
SUCCESS, RMSE = QUANTITIES["success"].title, QUANTITIES["rmse"].title
D_IPG, PLAIN, BEST = "D-IPG +JCP", "D-IPG -JCP", "best classic"
ALONE = {"one-shot": "one-shot", "wiener": "wiener"}
SUMMARY = (
    *LABELS,
    Column("n", "n", value=lambda about: _smallest(about, "jcp")),
    *(
        _column("Table 3", "success", side, title, SUCCESS)
        for side, title in {"jcp": D_IPG, "plain": PLAIN, "best": BEST, **ALONE}.items()
    ),
    _best("Table 3"),
    *(
        _column("Table 3", "rmse", side, title, RMSE)
        for side, title in {"jcp": D_IPG, "best": BEST, **ALONE}.items()
    ),
    _column("Table 3", "iterations", "jcp", QUANTITIES["iterations"].title),
    _column("Table 3", "seconds", "jcp", QUANTITIES["seconds"].title),
)
SEEDS = (
    *LABELS,
    Column(
        "seeds",
        "seeds",
        value=lambda about: ", ".join(map(str, about.seeds)),
        paper=lambda problem: "3",
    ),
    *(
        _column(OVER_SEEDS, "success", side, title, SUCCESS)
        for side, title in {"jcp": D_IPG, "plain": PLAIN, "best": BEST}.items()
    ),
    _best(OVER_SEEDS),
    *(
        _column(OVER_SEEDS, "rmse", side, title, RMSE)
        for side, title in {"jcp": D_IPG, **ALONE}.items()
    ),
    _column(OVER_SEEDS, "seconds", "jcp", "D-IPG seconds alone"),
)


def _smallest(about: Overview, *sides: str) -> Value:
    counts = [len(trials) for side in sides for trials in about.of(side)]
    return Count(min(counts)) if all(counts) else None


JCP = (
    *LABELS,
    Column("n", "n", value=lambda about: _smallest(about, "jcp", "plain")),
    *(
        _column("Table 4", quantity, side, title, QUANTITIES[quantity].title)
        for quantity in ("success", "rmse", "rjcp", "cosine")
        for side, title in {"jcp": "+JCP", "plain": "-JCP", "change": "change", "p": "p"}.items()
        if side in ("jcp", "plain") or quantity in ("success", "rmse")
    ),
)


@table("summary", "D-IPG on every problem, beside the paper", SUMMARY)
def summary(query: Query) -> Iterator[Line]:
    """Table 3 of the paper, with one-shot and wiener beside it."""
    return _beside(query, SUMMARY, "Table 3")


@table("jcp", "Effect of JCP", JCP)
def jcp_effect(query: Query) -> Iterator[Line]:
    """Table 4 of the paper: each diagnostic with and without JCP."""
    return _beside(query, JCP, "Table 4")


@table("seeds", "Three seeds", SEEDS)
def seeds(query: Query) -> Iterator[Line]:
    """Table 6 of the paper: mean and standard deviation over seeds."""
    return _beside(query, SEEDS, OVER_SEEDS)


TABLE_2 = ("success", "iterations", "rmse", "seconds", "rjcp")


@table(
    "methods-paper",
    "Methods on the main problems, beside the paper",
    (
        Column("problem", "problem"),
        Column("model", "trained by"),
        Column("method", "method"),
        *(
            Column(f"{quantity}_{source}", source, QUANTITIES[quantity].title)
            for quantity in TABLE_2
            for source in ("paper", "ours", "difference")
        ),
    ),
)
def methods_beside_paper(query: Query) -> Iterator[Line]:
    """Table 2 of the paper: paper, ours, difference."""
    shown = [("paper", "d-ipg"), ("paper-plain", "d-ipg"), *(("paper", m) for m in PAPER_SETTINGS)]
    for problem in (p for p in MAIN_PROBLEMS if p in query.problems):
        for model, method in shown:
            where = {"problem": problem, "model": model, "method": method}
            if np.isnan(paper_value("Table 2", "success", **where).value):
                continue
            trials = query.trials(problem, model, method)
            sign = "-" if model.endswith("-plain") else "+"
            line: dict[str, Value] = {
                "problem": problem,
                "model": query.preset(problem, model),
                "method": f"{method} ({sign}JCP)" if method == "d-ipg" else method,
            }
            for key in TABLE_2:
                kind = QUANTITIES[key].kind
                ours = kind(QUANTITIES[key].bare(trials))
                paper = kind(paper_value("Table 2", key, **where).value)
                line[f"{key}_paper"], line[f"{key}_ours"] = paper, ours
                line[f"{key}_difference"] = difference(ours, paper)
            yield line
