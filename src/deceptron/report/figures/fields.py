"""Figure 8 of the paper: what the answers look like."""

from __future__ import annotations

import torch
from torch import Tensor

from deceptron.report.figures.family import Family
from deceptron.report.figures.sheet import Drawing, NothingToDraw, caption, models_used
from deceptron.report.figures.style import PAGE, Series, short
from deceptron.report.published import MAIN_PROBLEMS
from deceptron.report.reconstructions import Example, compact_figure
from deceptron.study.methods import METHODS

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
    return Drawing(
        compact_figure(examples, methods, width=PAGE),
        caption(
            "Truth, noisy observation and answers for the first test instance of the first seed;",
            "the numbers are the RMSE of that instance. All latents of a row share the scale on",
            "the right, fields in space show their middle slice. One instance proves nothing by",
            "itself.",
            models_used(family),
        ),
    )


def _shown(family: Family) -> list[Series]:
    """The paper's methods and those that a user declared."""
    return [s for s in family.series if s.jcp and (s.label in SHOWN or s.method not in METHODS)]


def _example(family: Family, problem: str) -> Example | None:
    """The first instance of the first seed of which truth and answers were kept."""
    seeds = {seed for series in _shown(family) for seed in family.trials(problem, series).seeds}
    for seed in sorted(seeds):
        truth = family.query.records.truth(problem, "test", seed) or {}
        found = _answers(family, problem, seed)
        if found and {"x", "y"} <= truth.keys():
            x, y = (torch.from_numpy(truth[name][0]) for name in ("x", "y"))
            return Example(short(problem), x, y, found)
    return None


def _answers(family: Family, problem: str, seed: int) -> dict[str, tuple[Tensor, float]]:
    found = {}
    for series in _shown(family):
        trials = family.trials(problem, series)
        kept = trials.answers(seed)
        if kept is not None:
            error = float(trials.rows.xs(seed)["rmse"].iloc[0])
            found[series.label] = (torch.from_numpy(kept[0]), error)
    return found
