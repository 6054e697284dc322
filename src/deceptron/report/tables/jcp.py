"""What JCP changes: at the stopping rule, beside the paper, and after equal numbers of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from deceptron.core.status import Status
from deceptron.report.published import paper_value
from deceptron.report.query import WITHOUT_JCP, Query, Trials
from deceptron.report.tables.table import (
    Column,
    Count,
    Line,
    Probability,
    Table,
    Value,
    change,
    differences,
    measured,
    p_value,
    paper_line,
)
from deceptron.report.words import INTERVALS, rmse_rule
from deceptron.study.statistics import (
    Interval,
    at_step,
    mean_interval,
    paired_difference,
    rate_interval,
)

STEPS = (1, 2, 5, 10, 20)


@dataclass(frozen=True)
class Pair:
    """D-IPG with and without JCP."""

    jcp: Trials
    plain: Trials

    @classmethod
    def of(cls, query: Query, problem: str, model: str) -> Pair:
        """On the test set of a problem."""
        models = (model, WITHOUT_JCP[model])
        return cls(*(query.trials(problem, name, "d-ipg") for name in models))


def mean_cosine(trials: Trials) -> float:
    """Mean over the steps of an instance, then over instances."""
    paths = trials.paths("cosine")
    return float(paths.mean(axis=1).mean()) if len(paths) else np.nan


def _columns() -> Iterable[Column]:
    yield Column("problem", "problem")
    yield Column("source", "source")
    yield Column("n", "n", value=lambda p: _smaller(len(p.jcp), len(p.plain)))
    quantities: dict[str, tuple[str, Callable[[Trials], Value]]] = {
        "success": ("success (rmse)", lambda t: t.rate("rmse")),
        "rmse": ("RMSE", lambda t: t.mean("rmse")),
        "rjcp": ("RJCP", lambda t: t.average("rjcp")),
        "cosine": ("cosine", mean_cosine),
    }
    for key, (title, measure) in quantities.items():
        yield _one(key, "jcp", "+JCP", title, measure, "paper")
        yield _one(key, "plain", "-JCP", title, measure, "paper-plain")
        if key in ("success", "rmse"):
            rule = "rmse" if key == "success" else None
            yield _change(key, title, rule)
            yield _p(key, title, rule)


def _smaller(*counts: int) -> Value:
    return Count(min(counts)) if all(counts) else None


def _table_4(key: str, model: str, problem: str) -> float:
    return paper_value("Table 4", key, problem=problem, method="d-ipg", model=model).value


def _one(
    key: str, side: str, sign: str, title: str, measure: Callable[[Trials], Value], model: str
) -> Column:
    return Column(
        f"{key}_{side}",
        sign,
        title,
        lambda pair: measure(getattr(pair, side)),
        lambda problem: _table_4(key, model, problem),
    )


def _change(key: str, title: str, rule: str | None) -> Column:
    return Column(
        f"{key}_change",
        "change",
        title,
        lambda pair: change(pair.jcp.against(pair.plain, rule)),
        lambda problem: _table_4(key, "paper", problem) - _table_4(key, "paper-plain", problem),
    )


def _p(key: str, title: str, rule: str | None) -> Column:
    return Column(f"{key}_p", "p", title, lambda pair: p_value(pair.jcp.against(pair.plain, rule)))


COLUMNS = tuple(_columns())


def jcp_effect(query: Query) -> Table:
    """Table 4 of the paper: each diagnostic with and without JCP."""
    lines: list[Line] = []
    for problem in query.problems:
        paper = paper_line(COLUMNS, problem)
        ours, standard = (
            measured(COLUMNS, Pair.of(query, problem, model)) for model in ("paper", "standard")
        )
        lines += [
            {"problem": problem, "source": "paper, Table 4", **paper},
            {"problem": problem, "source": f"ours, {query.preset(problem, 'paper')}", **ours},
            {"problem": problem, "source": "difference", **differences(ours, paper)},
            {"problem": problem, "source": "ours, standard", **standard},
        ]
    return Table(
        "jcp",
        "Effect of JCP",
        "D-IPG with and without the penalty in stage 3, from the same stage 2, with the paper's "
        "tolerances; change is with minus without. Cosine is of the step with the negative "
        "gradient, mean over the steps of an instance and then over instances; RJCP at the answer, "
        "mean form. Each p tests the change to its left on shared instances. Test set, seed "
        f"{query.seed}. {rmse_rule(query)} {INTERVALS}",
        COLUMNS,
        tuple(lines),
    )


@dataclass(frozen=True)
class Errors:
    """Errors with and without JCP on shared trials, and the limit of the rule rmse."""

    jcp: pd.Series
    plain: pd.Series
    limit: float

    def rate(self, errors: pd.Series) -> Interval:
        """Success rate."""
        return rate_interval(errors <= self.limit)

    def p(self, *, success: bool) -> Probability:
        """Of the paired test."""
        pair = [
            (errors <= self.limit).astype(float) if success else errors
            for errors in (self.jcp, self.plain)
        ]
        return Probability(paired_difference(*pair).p)


EQUAL_STEPS = (
    Column("problem", "problem"),
    Column("model", "trained by"),
    Column("steps", "steps"),
    Column("n", "n", value=lambda e: Count(len(e.jcp))),
    Column("success_jcp", "+JCP", "success (rmse)", lambda e: e.rate(e.jcp)),
    Column("success_plain", "-JCP", "success (rmse)", lambda e: e.rate(e.plain)),
    Column("success_p", "p", "success (rmse)", lambda e: e.p(success=True)),
    Column("rmse_jcp", "+JCP", "RMSE", lambda e: mean_interval(e.jcp)),
    Column("rmse_plain", "-JCP", "RMSE", lambda e: mean_interval(e.plain)),
    Column(
        "rmse_change",
        "change",
        "RMSE",
        lambda e: paired_difference(e.jcp, e.plain).difference,
    ),
    Column("rmse_p", "p", "RMSE", lambda e: e.p(success=False)),
)


def equal_steps(query: Query) -> Table:
    """Success and RMSE with and without JCP after k steps, and where the tolerance stops."""
    lines: list[Line] = []
    for problem in query.problems:
        for model in WITHOUT_JCP:
            if "d-ipg" not in query.planned_methods(problem, model):
                continue
            label = {"problem": problem, "model": query.preset(problem, model)}
            for steps, errors in errors_by_step(query, problem, model).items():
                if len(errors.jcp):
                    lines.append({**label, "steps": steps, **measured(EQUAL_STEPS, errors)})
    return Table(
        "equal-steps",
        "JCP after equal numbers of steps",
        "D-IPG from the same start with and without JCP, without any tolerance, after k accepted "
        "steps (a stalled instance keeps its last point; no k is shown that the study's step limit "
        "kept an instance from), and with the paper's tolerance, where "
        "each stops after a different number of steps. If JCP helped only by moving that stop, "
        f"the rows of equal k would agree. Test set, seed {query.seed}. {rmse_rule(query)} "
        f"{INTERVALS}",
        EQUAL_STEPS,
        tuple(lines),
    )


TOLERANCE = "tolerance"


def errors_by_step(query: Query, problem: str, model: str) -> dict[str, Errors]:
    """After each of ``STEPS`` that every instance could have taken, and at the tolerance."""
    models, limit = (model, WITHOUT_JCP[model]), query.limits[problem]
    free = [query.trials(problem, name, "d-ipg-free") for name in models]
    cells = pd.concat([trials.rows for trials in free])
    cut = cells.loc[cells["status"] == Status.STEP_LIMIT.name, "iterations"]
    paths = [trials.paths("rmse") for trials in free]
    found = {}
    for k in STEPS:
        if cut.empty or k <= cut.min():
            after = [at_step(p, k) if len(p) else pd.Series(dtype=float) for p in paths]
            found[str(k)] = _errors(limit, *after)
    ends = [query.trials(problem, name, "d-ipg").rows["rmse"] for name in models]
    return {**found, TOLERANCE: _errors(limit, *ends)}


def _errors(limit: float, jcp: pd.Series, plain: pd.Series) -> Errors:
    both = jcp.index.intersection(plain.index)
    return Errors(jcp.loc[both].astype(float), plain.loc[both].astype(float), limit)
