"""What a study found: numbers from its records for the sentences in ``captions.jinja``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from deceptron_paper.report.captions import caption
from deceptron_paper.report.published import ALLEN_CAHN, paper_value
from deceptron_paper.report.query import WITHOUT_JCP, Query
from deceptron_paper.report.tables.amortisation import Purchase
from deceptron_paper.report.tables.equal_steps import TOLERANCE, errors_by_step
from deceptron_paper.report.tables.rjcp import OUTCOMES, between_models
from deceptron_paper.report.tables.table import Probability, number
from deceptron_paper.statistics import spearman

SIGNIFICANT = 0.05
NEAR = 0.1  # success rates that differ by more do not agree


@dataclass(frozen=True)
class Finding:
    """A question and what the records say about it."""

    question: str
    answers: tuple[str, ...]


def findings(query: Query) -> list[Finding]:
    """Answers to those questions of a reader of the paper that the records can answer."""
    questions: dict[str, Callable[[Query], Iterator[str]]] = {
        "Does the published protocol reproduce?": _reproduction,
        "Does JCP change success at an equal number of steps?": _equal_steps,
        "What does RJCP predict?": _prediction,
        "When has training paid for itself?": _amortisation,
    }
    found = ((question, tuple(answer(query.fresh()))) for question, answer in questions.items())
    return [Finding(question, answers) for question, answers in found if answers]


def _said(name: str, query: Query, **facts: object) -> str:
    return caption(f"finding-{name}", query, number=number, significant=SIGNIFICANT, **facts)


def _reproduction(query: Query) -> Iterator[str]:
    rates = {}
    for problem in query.problems:
        trials = query.trials(problem, "paper", "d-ipg")
        theirs = paper_value("Table 3", "success", problem=problem, method="d-ipg").value
        published = query.preset(problem, "paper").startswith("paper")
        if len(trials) and published and not math.isnan(theirs):
            rates[problem] = (trials.rate_value("rmse"), theirs)
    far = {name: pair for name, pair in rates.items() if abs(pair[0] - pair[1]) > NEAR}
    presets = sorted({query.preset(problem, "paper") for problem in rates})
    yield _said("reproduction", query, rates=rates, far=far, presets=presets, near=NEAR)
    models = ("paper", WITHOUT_JCP["paper"])
    pair = [query.trials(ALLEN_CAHN, model, "d-ipg") for model in models]
    if ALLEN_CAHN in rates and all(map(len, pair)):
        where = {"problem": ALLEN_CAHN, "method": "d-ipg"}
        paper = [paper_value("Table 4", "success", model=model, **where).value for model in models]
        ours = [trials.rate_value("rmse") for trials in pair]
        yield _said("allen-cahn", query, paper=paper, ours=ours)


def _equal_steps(query: Query) -> Iterator[str]:
    for model in WITHOUT_JCP:
        every = (errors_by_step(query, problem, model) for problem in query.problems)
        compared = [
            found
            for found in every
            if len(found) > 1 and not any(errors.jcp.empty for errors in found.values())
        ]
        changed: Counter[str] = Counter()
        for found in compared:
            for steps, errors in found.items():
                changed[steps] += errors.success_p.value < SIGNIFICANT
        if compared:
            facts = {"at_tolerance": changed.pop(TOLERANCE), "changed": changed}
            yield _said("equal-steps", query, model=model, total=len(compared), **facts)


def _prediction(query: Query) -> Iterator[str]:
    everywhere = {"problem": "all problems", "method": "d-ipg", "model": ""}
    paper = paper_value("Figure 6", "spearman", **everywhere).value
    for model, plain in WITHOUT_JCP.items():
        points = between_models(query, (model, plain))
        ranked = {
            words: spearman(points["rjcp"], points[column]) for column, words in OUTCOMES.items()
        }
        found = {
            words: (correlation.rho, str(Probability(correlation.p)))
            for words, correlation in ranked.items()
            if not math.isnan(correlation.rho)
        }
        if len(points) >= 3 and found:
            facts = {"model": model, "points": len(points), "paper": paper}
            yield _said("between-models", query, found=found, **facts)
    within = []
    for problem in query.problems:
        if "d-ipg" in query.planned_methods(problem, "standard"):
            rows = query.trials(problem, "standard", "d-ipg").rows
            correlation = spearman(rows["rjcp"], rows["rmse"])
            within += [] if math.isnan(correlation.rho) else [correlation]
    if within:
        clear = sum(found.p < SIGNIFICANT and found.rho > 0 for found in within)
        median = float(np.median([found.rho for found in within]))
        yield _said("within-models", query, clear=clear, total=len(within), median=median)


def _amortisation(query: Query) -> Iterator[str]:
    for baseline in ("wiener", "lm", "lm-tuned", "l-bfgs-tuned", "lm-true", "gn-prior"):
        counts = [Purchase(query, p, "standard", baseline).alone for p in query.problems]
        counts = [count for count in counts if not math.isnan(count)]
        finite = [math.ceil(count) for count in counts if math.isfinite(count)]
        if counts:
            facts = {"finite": len(finite), "never": len(counts) - len(finite)}
            ends = sorted({min(finite), max(finite)}) if finite else []
            yield _said("amortisation", query, baseline=baseline, ends=ends, **facts)
