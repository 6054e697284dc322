"""Figure 8 of the paper: what the answers look like."""

from __future__ import annotations

import torch

from deceptron.plot import Example, plot_reconstructions
from deceptron_paper.report.figures.family import PAGE, Family, Series, short
from deceptron_paper.report.figures.sheet import Drawing, NothingToDraw
from deceptron_paper.report.published import MAIN_PROBLEMS
from deceptron_paper.study.methods import METHODS

SHOWN = ("one-shot", "wiener", "d-ipg", "gn", "lm", "l-bfgs", "lm-tuned", "guarded")


def reconstructions(family: Family) -> Drawing:
    """Truth, observation and answers of the first instance of the paper's three main problems.

    A study without them shows the first problems that it has.
    """
    main = [p for p in MAIN_PROBLEMS if p in family.query.problems]
    made = (_example(family, problem) for problem in main or list(family.query.problems)[:3])
    examples = [example for example in made if example is not None]
    if not examples:
        raise NothingToDraw(f"no answers kept with the model {family.name}")
    found = {label for example in examples for label in example.reconstructions}
    methods = [series.label for series in _shown(family) if series.label in found]
    return Drawing(plot_reconstructions(examples, methods, width=PAGE, font=6.5))


def _shown(family: Family) -> list[Series]:
    """The paper's methods and those that a user declared."""
    return [s for s in family.series if s.jcp and (s.label in SHOWN or s.method not in METHODS)]


def _example(family: Family, problem: str) -> Example | None:
    """The first instance of the first seed of which truth and answers were kept."""
    trials = {series.label: family.trials(problem, series) for series in _shown(family)}
    for seed in sorted({seed for own in trials.values() for seed in own.seeds}):
        truth = family.query.records.truth(problem, "test", seed) or {}
        answers = {label: own.answers(seed) for label, own in trials.items()}
        found = {
            label: (torch.from_numpy(x[0]), float(trials[label].rows.xs(seed)["rmse"].iloc[0]))
            for label, x in answers.items()
            if x is not None
        }
        if found and {"x", "y"} <= truth.keys():
            x, y = (torch.from_numpy(truth[name][0]) for name in ("x", "y"))
            return Example(short(problem), x, y, found)
    return None
