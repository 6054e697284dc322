"""Figure 8 of the paper: what the answers look like."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from deceptron.report.figures.sheet import Drawing, NothingToDraw, caption, models_used
from deceptron.report.figures.shelf import Shelf
from deceptron.report.figures.style import PAGE, pick, short
from deceptron.report.published import MAIN_PROBLEMS
from deceptron.report.reconstructions import Example, compact_figure

SHOWN = pick("one-shot", "wiener", "d-ipg", "gn", "lm", "l-bfgs", "lm-tuned", "guarded")


def reconstructions(shelf: Shelf) -> Drawing:
    """Truth, observation and answers of the first instance of the paper's three main problems."""
    answers = {problem: _answers(shelf, problem) for problem in MAIN_PROBLEMS}
    methods = [s.label for s in SHOWN if any(s.label in found for found in answers.values())]
    examples = [
        example
        for problem, found in answers.items()
        if found and (example := _example(shelf, problem, found)) is not None
    ]
    if not examples:
        raise NothingToDraw(
            f"no answers kept with the model {shelf.family} on {', '.join(MAIN_PROBLEMS)}"
        )
    return Drawing(
        compact_figure(examples, methods, width=PAGE),
        caption(
            "Truth, noisy observation and answers for the first test instance of the first seed;",
            "the numbers are the RMSE of that instance. All latents of a row share the scale on",
            "the right, heat-3d shows its middle slice. One instance proves nothing by itself.",
            models_used(shelf),
        ),
    )


def _answers(shelf: Shelf, problem: str) -> Mapping[str, tuple[Tensor, float]]:
    found = {}
    for series in SHOWN:
        kept = shelf.answers(problem, series)
        if kept is not None:
            error = float(shelf.instances(problem, series)["rmse"].iloc[0])
            found[series.label] = (torch.from_numpy(kept[0]), error)
    return found


def _example(
    shelf: Shelf, problem: str, found: Mapping[str, tuple[Tensor, float]]
) -> Example | None:
    first = next(s for s in SHOWN if s.label in found)
    truth = shelf.index.records.truth(problem, "test", shelf.seeds(problem, first)[0])
    if truth is None or not {"x", "y"} <= truth.keys():
        return None
    x, y = (torch.from_numpy(truth[name][0]) for name in ("x", "y"))
    return Example(short(problem), x, y, dict(found))
