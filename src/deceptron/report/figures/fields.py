"""Figure 8 of the paper: what the answers look like."""

from __future__ import annotations

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
    made = (_example(shelf, problem) for problem in MAIN_PROBLEMS)
    examples = [example for example in made if example is not None]
    if not examples:
        raise NothingToDraw(
            f"no answers kept with the model {shelf.family} on {', '.join(MAIN_PROBLEMS)}"
        )
    found = {label for example in examples for label in example.reconstructions}
    methods = [series.label for series in SHOWN if series.label in found]
    return Drawing(
        compact_figure(examples, methods, width=PAGE),
        caption(
            "Truth, noisy observation and answers for the first test instance of the first seed;",
            "the numbers are the RMSE of that instance. All latents of a row share the scale on",
            "the right, heat-3d shows its middle slice. One instance proves nothing by itself.",
            models_used(shelf),
        ),
    )


def _example(shelf: Shelf, problem: str) -> Example | None:
    """The first instance of the first seed of which truth and answers were kept."""
    for seed in sorted({seed for series in SHOWN for seed in shelf.seeds(problem, series)}):
        truth = shelf.index.records.truth(problem, "test", seed) or {}
        found = _answers(shelf, problem, seed)
        if found and {"x", "y"} <= truth.keys():
            x, y = (torch.from_numpy(truth[name][0]) for name in ("x", "y"))
            return Example(short(problem), x, y, found)
    return None


def _answers(shelf: Shelf, problem: str, seed: int) -> dict[str, tuple[Tensor, float]]:
    found = {}
    for series in SHOWN:
        kept = shelf.answers(problem, series, seed)
        if kept is not None:
            error = float(shelf.instances(problem, series).xs(seed)["rmse"].iloc[0])
            found[series.label] = (torch.from_numpy(kept[0]), error)
    return found
