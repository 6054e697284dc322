"""What a study found, in sentences computed from its records."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deceptron.report.published import paper_value
from deceptron.report.query import WITHOUT_JCP, Query
from deceptron.report.tables.amortisation import Purchase
from deceptron.report.tables.jcp import TOLERANCE, errors_by_step
from deceptron.report.tables.rjcp import between_models
from deceptron.report.tables.table import Probability, number, text
from deceptron.study.statistics import spearman

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
    """A question and what the records say about it."""

    question: str
    answers: tuple[str, ...]


def findings(query: Query) -> list[Finding]:
    """Answers to those questions of a reader of the paper that the records can answer."""
    questions: tuple[tuple[str, Callable[[Query], Sequence[str]]], ...] = (
        ("Does the published protocol reproduce?", _reproduction),
        ("How far is D-IPG from the network alone, the linear estimate and tuned LM?", _distances),
        ("Does JCP change success at an equal number of steps?", _equal_steps),
        ("What does RJCP predict?", _prediction),
        ("When has training paid for itself?", _amortisation),
    )
    found = ((question, tuple(answer(query.fresh()))) for question, answer in questions)
    return [Finding(question, answers) for question, answers in found if answers]


def _reproduction(query: Query) -> list[str]:
    rates = []
    for problem in query.problems:
        trials = query.trials(problem, "paper", "d-ipg")
        if len(trials) and query.preset(problem, "paper").startswith("paper"):
            theirs = paper_value("Table 3", "success", problem=problem, method="d-ipg").value
            if not math.isnan(theirs):
                rates.append((problem, trials.rate_value("rmse"), theirs))
    if not rates:
        return ["No model of this study was trained by the published protocol."]
    far = [
        f"{problem} ({number(ours)} against {number(theirs)})"
        for problem, ours, theirs in rates
        if abs(ours - theirs) > NEAR
    ]
    presets = sorted({query.preset(problem, "paper") for problem, _, _ in rates})
    answers = [
        f"D-IPG's success rate (rule rmse, preset {' or '.join(presets)}) is within {NEAR} of the "
        f"paper's on {len(rates) - len(far)} of {_problems(len(rates))}"
        + (f"; not on {', '.join(far)}." if far else ".")
    ]
    models = ("paper", WITHOUT_JCP["paper"])
    pair = [query.trials("allen-cahn-2d", model, "d-ipg") for model in models]
    if "allen-cahn-2d" in (problem for problem, _, _ in rates) and all(map(len, pair)):
        ours = [trials.rate_value("rmse") for trials in pair]
        where = {"problem": "allen-cahn-2d", "method": "d-ipg"}
        paper = [paper_value("Table 4", "success", model=m, **where).value for m in models]
        answers.append(
            f"On allen-cahn-2d, where the paper has {number(paper[0])} with JCP and "
            f"{number(paper[1])} without, this study has {number(ours[0])} and {number(ours[1])}."
        )
    return answers


def _distances(query: Query) -> list[str]:
    answers = []
    for set in query.sets:
        for method in ("d-ipg", "d-ipg-tuned", "guarded"):
            against = {name: _versus(query, set, method, name) for name in YARDSTICKS}
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


def _versus(query: Query, set: str, method: str, other: str) -> _Versus:
    ratios, changes = [], []
    for problem in query.problems:
        planned = query.planned_methods(problem, "standard", set=set)
        if method not in planned or other not in planned:
            continue
        own, reference = (
            query.trials(problem, "standard", name, set=set) for name in (method, other)
        )
        ratio, change = own.ratio(reference), own.against(reference)
        if ratio is None or change is None:
            continue
        ratios.append(ratio.value)
        changes += [change.difference.value] if change.p < SIGNIFICANT else []
    smaller = sum(change < 0 for change in changes)
    return _Versus(tuple(ratios), smaller, len(changes) - smaller)


def _equal_steps(query: Query) -> list[str]:
    answers = []
    for model in WITHOUT_JCP:
        changed: defaultdict[str, int] = defaultdict(int)
        total = 0
        for problem in query.problems:
            found = errors_by_step(query, problem, model)
            if any(errors.jcp.empty for errors in found.values()) or len(found) < 2:
                continue
            total += 1
            for steps, errors in found.items():
                changed[steps] += errors.p(success=True).value < SIGNIFICANT
        if total:
            at_tolerance = changed.pop(TOLERANCE)
            counts = ", ".join(f"{count} after {steps}" for steps, count in changed.items())
            answers.append(
                f"Model {model}: of {_problems(total)}, success (rule rmse) with and without JCP "
                f"differs clearly (paired, p < {SIGNIFICANT}) on {counts} steps, and on "
                f"{at_tolerance} where the tolerance stops."
            )
    return answers


def _prediction(query: Query) -> list[str]:
    answers = []
    everywhere = {"problem": "all problems", "method": "d-ipg", "model": ""}
    theirs = paper_value("Figure 6", "spearman", **everywhere).value
    for model, plain in WITHOUT_JCP.items():
        points = between_models(query, (model, plain))
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
    for problem in query.problems:
        if "d-ipg" in query.planned_methods(problem, "standard"):
            rows = query.trials(problem, "standard", "d-ipg").rows
            found = spearman(rows["rjcp"], rows["rmse"])
            within += [found] if not math.isnan(found.rho) else []
    if within:
        clear = sum(found.p < SIGNIFICANT and found.rho > 0 for found in within)
        answers.append(
            "Between the instances of one standard model, a larger RJCP goes with a larger error "
            f"(rho > 0, p < {SIGNIFICANT}) on {clear} of {_problems(len(within))}; median rho "
            f"{number(float(np.median([found.rho for found in within])))}."
        )
    return answers


def _amortisation(query: Query) -> list[str]:
    answers = []
    for baseline in ("wiener", "lm", "lm-tuned", "l-bfgs-tuned", "lm-true", "gn-prior"):
        counts = [Purchase(query, p, "standard", baseline).alone for p in query.problems]
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


def _problems(count: int) -> str:
    return "1 problem" if count == 1 else f"{count} problems"
