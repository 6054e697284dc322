"""What the paper reports, as data: every value with the table, figure or section it comes from.

``published.csv`` has a line per value. ``model`` says with JCP (``paper``) or without
(``paper-plain``); the classical methods, which do not use g, stand under ``paper``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import pandas as pd

from deceptron import ConfigError

_KEY = ("origin", "problem", "model", "method", "quantity")
ALLEN_CAHN = "allen-cahn-2d"
MAIN_PROBLEMS = ("heat-3d", "advection-diffusion-2d", ALLEN_CAHN)  # of the main text


@dataclass(frozen=True)
class PaperValue:
    """One value of the paper; ``spread`` is the standard deviation over its three seeds."""

    value: float
    spread: float


@cache
def table() -> pd.DataFrame:
    """All values: origin, problem, model, method, quantity, value, spread."""
    with (files("deceptron_paper.report") / "published.csv").open(encoding="utf-8") as file:
        return pd.read_csv(
            file, dtype=dict.fromkeys(_KEY, str), keep_default_na=False, na_values={"spread": [""]}
        )


def paper_value(
    origin: str, quantity: str, *, problem: str, method: str, model: str = "paper"
) -> PaperValue:
    """One value of the paper; NaN where it gives none."""
    key = (origin, problem, model, method, quantity)
    return _index().get(key, PaperValue(math.nan, math.nan))


def best_baseline(origin: str, problem: str) -> str | None:
    """The paper's strongest method other than D-IPG on a problem."""
    for place, name, _, method, quantity in _index():
        if (place, name, quantity) == (origin, problem, "best baseline success"):
            return method
    return None


@cache
def _index() -> dict[tuple[str, ...], PaperValue]:
    index: dict[tuple[str, ...], PaperValue] = {}
    for row in table().to_dict("records"):
        key = tuple(row[name] for name in _KEY)
        if key in index:
            raise ConfigError(f"published.csv gives {key} twice")
        index[key] = PaperValue(float(row["value"]), float(row["spread"]))
    return index
