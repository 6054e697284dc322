"""What a study found, in sentences computed from its records."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from deceptron.report.index import WITHOUT_JCP, Index
from deceptron.report.published import published
from deceptron.report.tables.jcp import free_rmse, steps_allowed
from deceptron.report.tables.paired import paired, shared
from deceptron.report.tables.rjcp import between_models
from deceptron.report.tables.table import Probability, number, text
from deceptron.report.tables.view import View
from deceptron.study.names import SETS
from deceptron.study.statistics import (
    Paired,
    at_step,
    break_even,
    paired_difference,
    rmse_limit,
    spearman,
)

SIGNIFICANT = 0.05
NEAR = 0.1  # success rates that differ by more do not agree
YARDSTICKS = {
    "one-shot": "that of the network alone",
    "wiener": "the linear estimate's",
    "lm-tuned": "tuned LM's",
    "gn-prior": "the oracle's",
}


@dataclass(frozen=True)
class Finding:
    """A question and what the records say about it; no answers where they say nothing."""

    question: str
    answers: tuple[str, ...]


def findings(index: Index) -> list[Finding]:
    """Answers to the questions that a reader of the paper would ask."""
    questions: tuple[tuple[str, Callable[[View], Sequence[str]]], ...] = (
        ("Does the published protocol reproduce?", _reproduction),
        ("How far is D-IPG from the network alone, the linear estimate and tuned LM?", _distances),
        ("Does JCP change success at an equal number of steps?", _equal_steps),
        ("What does RJCP predict?", _prediction),
        ("When has training paid for itself?", _amortisation),
    )
    found = []
    for question, answer in questions:
        answers = tuple(answer(View(index)))
        found.append(Finding(question, answers or ("The records hold too little to say.",)))
    return found


def _reproduction(view: View) -> list[str]:
    rates = []
    for problem in view.index.problems:
        cell = view.instances(problem, "paper", "d-ipg")
        if len(cell) and view.preset(problem, "paper").startswith("paper"):
            theirs = published("Table 3", "success", problem=problem, method="d-ipg").value
            rates.append((problem, view.rate(cell, "rmse").value, theirs))
    if not rates:
        return ["No model of this study was trained by the published protocol."]
    far = [
        f"{problem} ({number(ours)} against {number(theirs)})"
        for problem, ours, theirs in rates
        if abs(ours - theirs) > NEAR
    ]
    presets = sorted({view.preset(problem, "paper") for problem, _, _ in rates})
    answers = [
        f"D-IPG's success rate (rule rmse, preset {' or '.join(presets)}) is within {NEAR} of the "
        f"paper's on {len(rates) - len(far)} of {_problems(len(rates))}"
        + (f"; not on {', '.join(far)}." if far else ".")
    ]
    models = ("paper", WITHOUT_JCP["paper"])
    pair = [view.instances("allen-cahn-2d", model, "d-ipg") for model in models]
    if "allen-cahn-2d" in (problem for problem, _, _ in rates) and all(map(len, pair)):
        ours = [view.rate(rows, "rmse").value for rows in pair]
        where = {"problem": "allen-cahn-2d", "method": "d-ipg"}
        paper = [published("Table 4", "success", model=m, **where).value for m in models]
        answers.append(
            f"On allen-cahn-2d, where the paper has {number(paper[0])} with JCP and "
            f"{number(paper[1])} without, this study has {number(ours[0])} and {number(ours[1])}."
        )
    return answers


def _distances(view: View) -> list[str]:
    answers = []
    for set in SETS:
        for method in ("d-ipg", "d-ipg-tuned", "guarded"):
            against = {name: _versus(view, set, method, name) for name in YARDSTICKS}
            ratios = ", ".join(
                f"{number(float(np.median(found.ratios)))} x {YARDSTICKS[name]}"
                for name, found in against.items()
                if found.ratios
            )
            if not ratios:
                continue
            answer = f"{set}: the error of {method} is {ratios} (medians over problems)."
            alone = against["one-shot"]
            if alone.ratios:
                answer += (
                    " Beside the network alone it is clearly smaller (paired, "
                    f"p < {SIGNIFICANT}) on {alone.smaller} and clearly larger on {alone.larger} "
                    f"of {_problems(len(alone.ratios))}."
                )
            answers.append(answer)
    return answers


@dataclass(frozen=True)
class _Versus:
    """Ratios of mean errors by problem, and on how many the paired test is clear."""

    ratios: tuple[float, ...]
    smaller: int
    larger: int


def _versus(view: View, set: str, method: str, other: str) -> _Versus:
    ratios, changes = [], []
    for problem in view.index.problems:
        planned = view.planned(problem, "standard", set=set)
        if method not in planned or other not in planned:
            continue
        pair = [view.instances(problem, "standard", name, set=set) for name in (method, other)]
        errors = pd.concat(shared(*(rows["rmse"] for rows in pair)), axis=1).dropna()
        if errors.empty:
            continue
        own, reference = errors.to_numpy().T
        change = paired_difference(own, reference)
        changes += [change.difference.value] if _is_clear(change) else []
        ratios.append(float(own.mean() / reference.mean()))
    smaller = sum(change < 0 for change in changes)
    return _Versus(tuple(ratios), smaller, len(changes) - smaller)


def _equal_steps(view: View) -> list[str]:
    answers = []
    for model, plain in WITHOUT_JCP.items():
        changed: defaultdict[int, int] = defaultdict(int)
        total, at_tolerance = 0, 0
        for problem in view.index.problems:
            paths = [free_rmse(view, problem, name) for name in (model, plain)]
            ends = [view.instances(problem, name, "d-ipg") for name in (model, plain)]
            if any(frame.empty for frame in (*paths, *ends)):
                continue
            total += 1
            limit = rmse_limit(problem)
            for k in steps_allowed(view, problem, (model, plain)):
                reached = [at_step(path, k) <= limit for path in paths]
                changed[k] += _is_clear(paired(*reached))
            at_tolerance += _is_clear(paired(*(rows["rmse"] <= limit for rows in ends)))
        if total:
            counts = ", ".join(f"{count} after {k}" for k, count in changed.items())
            answers.append(
                f"Model {model}: of {_problems(total)}, success (rule rmse) with and without JCP "
                f"differs clearly (paired, p < {SIGNIFICANT}) on {counts} steps, and on "
                f"{at_tolerance} where the tolerance stops."
            )
    return answers


def _prediction(view: View) -> list[str]:
    answers = []
    everywhere = {"problem": "all problems", "method": "d-ipg", "model": ""}
    theirs = published("Figure 6", "spearman", **everywhere).value
    for model, plain in WITHOUT_JCP.items():
        points = between_models(view, (model, plain))
        if len(points) < 3:
            continue
        parts = []
        for column, words in (
            ("variation", "variation of the final RMSE"),
            ("rmse", "mean RMSE"),
            ("failure", "failure rate"),
        ):
            found = spearman(points["rjcp"], points[column])
            if not math.isnan(found.rho):
                p = text(Probability(found.p))
                parts.append(
                    f"{number(found.rho)} with the {words} (p {'' if p[0] == '<' else '= '}{p})"
                )
        if parts:
            answers.append(
                f"Model {model}, {len(points)} points (problem, with or without JCP): Spearman's "
                f"rho of RJCP is {', '.join(parts)}. The paper reports {number(theirs)} with the "
                "variation."
            )
    within = []
    for problem in view.index.problems:
        if "d-ipg" in view.planned(problem, "standard"):
            cell = view.instances(problem, "standard", "d-ipg")
            found = spearman(cell["rjcp"], cell["rmse"])
            within += [found] if not math.isnan(found.rho) else []
    if within:
        clear = sum(found.p < SIGNIFICANT and found.rho > 0 for found in within)
        answers.append(
            "Between the instances of one standard model, a larger RJCP goes with a larger error "
            f"(rho > 0, p < {SIGNIFICANT}) on {clear} of {_problems(len(within))}; median rho "
            f"{number(float(np.median([found.rho for found in within])))}."
        )
    return answers


def _amortisation(view: View) -> list[str]:
    answers = []
    for baseline in ("wiener", "lm", "lm-tuned", "l-bfgs-tuned", "lm-true", "gn-prior"):
        counts = []
        for problem in view.index.problems:
            row = view.model(problem, "standard")
            costs = [view.latency(problem, "standard", m) for m in (baseline, "d-ipg")]
            if row is not None:
                counts.append(break_even(float(row["train_seconds"]), costs[0], costs[1]))
        counts = [count for count in counts if not math.isnan(count)]
        finite = [count for count in counts if math.isfinite(count)]
        if not counts:
            continue
        never = len(counts) - len(finite)
        parts = [f"never on {_problems(never)}"] if never else []
        if finite:
            ends = dict.fromkeys(str(math.ceil(count)) for count in (min(finite), max(finite)))
            parts.insert(0, f"after {' to '.join(ends)} solves on {_problems(len(finite))}")
        answers.append(f"Against {baseline}, an instance at a time: {' and '.join(parts)}.")
    return answers


def _is_clear(change: Paired) -> bool:
    return bool(change.p < SIGNIFICANT)


def _problems(count: int) -> str:
    return "1 problem" if count == 1 else f"{count} problems"
