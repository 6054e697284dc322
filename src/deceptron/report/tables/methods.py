"""Every method on the three problems of the paper's main text: in full, and beside Table 2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deceptron.report.published import MAIN_PROBLEMS, paper_value
from deceptron.report.query import WITHOUT_JCP, Query, Trials
from deceptron.report.tables.summary import PAPER_SETTINGS
from deceptron.report.tables.table import (
    Column,
    Exact,
    Line,
    Table,
    Value,
    change,
    count,
    differences,
    measured,
    p_value,
)
from deceptron.report.words import INTERVALS, rmse_rule, starts_and_objectives, strict_rule
from deceptron.study.statistics import Paired


@dataclass(frozen=True)
class Run:
    """A method on a model, and the trials that it is compared with; None if it is that itself."""

    trials: Trials
    reference: Trials | None

    @cached_property
    def paired(self) -> Paired | None:
        """Error minus that of the reference."""
        return None if self.reference is None else self.trials.against(self.reference)


def median_iterations(trials: Trials) -> Value:
    """As a number that is shown as it is."""
    return Exact(float(trials.rows["iterations"].median())) if len(trials) else None


def _of(measure: Callable[[Trials], Value]) -> Callable[[Run], Value]:
    return lambda run: measure(run.trials) if len(run.trials) else None


def _milliseconds(seconds: float) -> float:
    return 1e3 * seconds


COLUMNS = (
    Column("problem", "problem"),
    Column("model", "trained by"),
    Column("jcp", "JCP"),
    Column("method", "method"),
    Column("n", "n", value=_of(count)),
    Column("success_rmse", "rmse", "success", _of(lambda t: t.rate("rmse"))),
    Column("success_strict", "strict", "success", _of(lambda t: t.rate("strict"))),
    Column("rmse", "RMSE", value=_of(lambda t: t.mean("rmse"))),
    Column(
        "rmse_minus_d_ipg",
        "RMSE - D-IPG's",
        "paired",
        lambda run: change(run.paired),
    ),
    Column(
        "p",
        "p",
        "paired",
        lambda run: p_value(run.paired),
    ),
    Column(
        "surrogate_residual", "objective", "residual / noise", _of(lambda t: t.in_noise("residual"))
    ),
    Column(
        "true_residual",
        "simulator",
        "residual / noise",
        _of(lambda t: t.in_noise("true_residual")),
    ),
    Column("iterations", "median iterations", value=_of(median_iterations)),
    Column("evaluations", "evaluations", value=_of(lambda t: t.average("evaluations"))),
    Column(
        "batched_ms",
        "in a batch",
        "ms an instance",
        _of(lambda t: _milliseconds(t.average("seconds"))),
    ),
    Column("latency_ms", "alone", "ms an instance", _of(lambda t: _milliseconds(t.latency))),
    Column("rjcp", "RJCP", value=_of(lambda t: t.average("rjcp"))),
)


def methods(query: Query) -> Table:
    """Our results in full, for the published protocol and for ``standard``."""
    shown = [name for name in query.problems if name in MAIN_PROBLEMS] or list(query.problems)
    lines = [
        line for problem in shown for model in WITHOUT_JCP for line in _block(query, problem, model)
    ]
    return Table(
        "methods",
        "Methods on the main problems",
        "Test set, noise as defined. gd, gn, lm and l-bfgs have the paper's settings, -tuned this "
        f"library's with a stop at the noise level. {starts_and_objectives(query, query.methods)} "
        f"One evaluation is one f, g, jvp or vjp. {rmse_rule(query)} {strict_rule(query)} "
        f"{INTERVALS}",
        COLUMNS,
        tuple(lines),
    )


def _block(query: Query, problem: str, model: str) -> list[Line]:
    reference, plain = query.trials(problem, model, "d-ipg"), WITHOUT_JCP[model]
    lines = []
    for method in query.planned_methods(problem, model):
        lines.append(_line(query, problem, model, method, reference))
        if method in ("one-shot", "d-ipg") and method in query.planned_methods(problem, plain):
            lines.append(_line(query, problem, plain, method, reference))
    return lines


def _line(query: Query, problem: str, model: str, method: str, reference: Trials) -> Line:
    trials, plain = query.trials(problem, model, method), model.endswith("-plain")
    own = method == "d-ipg" and not plain
    uses_reverse = query.methods[method].uses_reverse
    return {
        "problem": problem,
        "model": query.preset(problem, model),
        "jcp": ("no" if plain else "yes") if uses_reverse else "",
        "method": method,
        **measured(COLUMNS, Run(trials, None if own else reference)),
    }


# What the paper's Table 2 has, and how it is measured here.
QUANTITIES: dict[str, tuple[str, Callable[[Trials], Value]]] = {
    "success": ("success (rmse)", lambda t: t.rate_value("rmse")),
    "iterations": ("median iterations", median_iterations),
    "rmse": ("RMSE", lambda t: t.average("rmse")),
    "seconds": ("seconds alone", lambda t: t.latency),
    "rjcp": ("RJCP", lambda t: t.average("rjcp")),
}


def methods_beside_paper(query: Query) -> Table:
    """Table 2 of the paper: paper, ours, difference."""
    columns = [Column(key, key if key != "model" else "trained by") for key in LABELS]
    for key, (title, _) in QUANTITIES.items():
        columns += [
            Column(f"{key}_{source}", source, title) for source in ("paper", "ours", "difference")
        ]
    return Table(
        "methods-paper",
        "Methods on the main problems, beside the paper",
        "The paper's Table 2 and the same cells of this study; the published protocol, seed "
        f"{query.seed}. {rmse_rule(query)} The paper's seconds are of a GPU (NVIDIA T4), ours of "
        "one CPU thread, an instance at a time.",
        tuple(columns),
        tuple(
            _beside(query, problem, model, method)
            for problem in MAIN_PROBLEMS
            if problem in query.problems
            for model, method in _published_rows(problem)
        ),
    )


LABELS = ("problem", "model", "method")


def _beside(query: Query, problem: str, model: str, method: str) -> Line:
    trials = query.trials(problem, model, method)
    ours = {key: measure(trials) for key, (_, measure) in QUANTITIES.items()}
    where = {"problem": problem, "model": model, "method": method}
    paper: dict[str, Value] = {
        key: paper_value("Table 2", key, **where).value for key in QUANTITIES
    }
    paper["iterations"] = Exact(paper_value("Table 2", "iterations", **where).value)
    beyond = {"paper": paper, "ours": ours, "difference": differences(ours, paper)}
    sign = "-" if model.endswith("-plain") else "+"
    return {
        "problem": problem,
        "model": query.preset(problem, model),
        "method": f"{method} ({sign}JCP)" if method == "d-ipg" else method,
        **{f"{key}_{source}": line[key] for source, line in beyond.items() for key in line},
    }


def _published_rows(problem: str) -> list[tuple[str, str]]:
    rows = [("paper", "d-ipg"), ("paper-plain", "d-ipg")]
    for method in PAPER_SETTINGS:
        known = paper_value("Table 2", "success", problem=problem, method=method).value
        rows += [] if np.isnan(known) else [("paper", method)]
    return rows
