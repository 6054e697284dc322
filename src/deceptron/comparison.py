"""Methods beside each other on somebody's own observations: a table and a picture."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from deceptron.core import html
from deceptron.core.arrays import rows_like
from deceptron.core.errors import ConfigError
from deceptron.core.protocols import Pair
from deceptron.core.solution import Solution
from deceptron.laws.calibration import calibration_of
from deceptron.problems import Problem
from deceptron.solve import solve
from deceptron.solve.methods import Method, get_method, levenberg_marquardt

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# Inner solves to 1e-3 are enough for steps to a minimum; exact ones cost many times more.
DEFAULT = ("one-shot", "guarded", levenberg_marquardt(cg_steps=30, cg_tolerance=1e-3))
CLASSICAL = ("gd", "gn", "lm", "l-bfgs")
LEVEL = 0.9


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What each method made of the same rows; print it for a table.

    Attributes:
        solutions: the ``Solution`` of each method, by its label.
        truth: the true latents, if they were given.
        left_out: methods that could not be run, and why.
    """

    solutions: dict[str, Solution]
    truth: Float[Tensor, "B *x"] | None
    left_out: dict[str, str]

    def frame(self) -> pd.DataFrame:
        """A line a method: medians over the rows, shares of rows, seconds a row.

        ``error`` is the RMSE against the truth, ``coverage`` the share of its components within the
        90% intervals; both are NaN where they are not known. ``forward`` counts runs of the
        simulator, or of the surrogate in its place; ``evaluations`` adds those of g.
        """
        import pandas as pd

        index = pd.Index(list(self.solutions), name="method")
        frame: pd.DataFrame = pd.DataFrame(self._lines, index=index)
        return frame

    def plot(self, *, rows: Any = None) -> Figure:
        """The answers of all methods to some rows, by default the first few."""
        from deceptron.plot import plot_comparison

        return plot_comparison(self.solutions, truth=self.truth, rows=rows)

    @cached_property
    def _lines(self) -> list[dict[str, float]]:
        return [self._line(solution) for solution in self.solutions.values()]

    def _line(self, solution: Solution) -> dict[str, float]:
        error = coverage = float("nan")
        if self.truth is not None:
            truth = self.truth.to(solution.x)
            miss = (solution.x - truth).flatten(1).double()
            error = float(miss.square().mean(1).sqrt().nanmedian())
            if solution.error_bars is not None:
                low, high = solution.interval(LEVEL)
                coverage = float(((low <= truth) & (truth <= high)).double().mean())
        known = solution.over_noise.isfinite()
        explained = solution.explained[known].double()
        return {
            "error": error,
            "over_noise": float(solution.over_noise.nanmedian()),
            "explained": float(explained.mean()) if len(explained) else float("nan"),
            "coverage": coverage,
            "converged": float(solution.converged.double().mean()),
            "evaluations": float(solution.cost.evaluations.median()),
            "forward": float(solution.cost.forward.median()),
            "seconds": solution.seconds / len(solution),
        }

    def _cells(self) -> list[list[str]]:
        """The table in words, without the columns that nobody knows."""
        lines = self._lines
        known = [name for name in _HEADS if any(line[name] == line[name] for line in lines)]
        rows = [["method", *(_HEADS[name][0] for name in known)]]
        for name, line in zip(self.solutions, lines, strict=True):
            cells = ["" if line[k] != line[k] else _HEADS[k][1].format(line[k]) for k in known]
            rows.append([name, *cells])
        return rows

    def __repr__(self) -> str:
        rows = self._cells()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        return "\n".join([*lines, *self._absent()])

    def _repr_html_(self) -> str:
        heads, *rows = self._cells()
        count = len(next(iter(self.solutions.values())))
        title = f"{count} rows by each method: medians, and shares of rows"
        return html.grid(title, heads, rows) + "".join(map(html.sentence, self._absent()))

    def _absent(self) -> list[str]:
        return [f"{name} is left out: {why}" for name, why in self.left_out.items()]


_HEADS = {
    "error": ("RMSE", "{:.3g}"),
    "over_noise": ("residual / noise", "{:.2f}"),
    "explained": ("explained", "{:.0%}"),
    "coverage": ("truth in 90% intervals", "{:.0%}"),
    "converged": ("converged", "{:.0%}"),
    "forward": ("forward runs", "{:.0f}"),
    "seconds": ("seconds a row", "{:.2g}"),
}


def compare(
    subject: Problem | Pair,
    y: Any,
    *,
    truth: Any = None,
    methods: Sequence[str | Method] | Mapping[str, Mapping[str, Any]] | None = None,
    forward: Any = None,
    noise_std: Any = None,
    **settings: Any,
) -> Comparison:
    """Solve the same rows by several methods, to compare them on your own data.

    Args:
        subject: a pair, or a problem; without a pair only classical methods can be had.
        y: observations, as ``dc.solve`` takes them.
        truth: the latents behind them, where they are known.
        methods: names, or labels with settings of ``dc.solve``: ``{"LM": {"method": "lm"}}``, or
            with a method alone; these win over settings for all. By default one-shot, guarded and
            Levenberg-Marquardt. Classical methods by name are regularised by the prior of the pair
            or the problem.
        forward: the simulator, for every method; without it a pair is solved on its surrogate.
        noise_std: of the observations, by default that of the pair or the problem.
        settings: anything else that ``dc.solve`` takes, for every method.
    """
    known = _known(subject)
    shared = {"history": False, "forward": forward, **settings}
    unknown = set(shared) - set(inspect.signature(solve).parameters)
    if unknown:
        raise ConfigError(f"compare takes what dc.solve takes; got {', '.join(sorted(unknown))}")
    plans: dict[str, dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    if isinstance(methods, Mapping):
        for label, own in methods.items():
            named = own if isinstance(own, Mapping) else {"method": own}
            plans[label] = {"noise_std": noise_std, **named}
    else:
        listed = [methods] if isinstance(methods, (str, Method)) else methods
        for method in DEFAULT if listed is None else listed:
            chosen = get_method(method)
            if not known.has_pair and chosen.name not in CLASSICAL:
                left_out[chosen.name] = "it needs a pair, as dc.train and dc.load give it"
                continue
            label, plan = known.plan(chosen, noise_std)
            if label in plans:
                raise ConfigError(
                    f"methods must differ in their names; {label!r} comes twice: give each a label "
                    'of its own, methods={"mine": {"method": ...}}'
                )
            plans[label] = plan
    if not plans:
        raise ConfigError("compare needs one method or more that the subject can be solved by")
    found = {label: solve(known.maps, y, **{**shared, **plan}) for label, plan in plans.items()}
    answers = next(iter(found.values())).x
    known_truth = None if truth is None else rows_like("truth", truth, answers)
    return Comparison(found, known_truth, left_out)


@dataclass(frozen=True)
class _Known:
    """What to solve with, and what is known of the latents and the noise."""

    maps: Any
    has_pair: bool
    prior: Any
    noise_std: Any
    bounds: Any

    def plan(self, method: Method, noise_std: Any) -> tuple[str, dict[str, Any]]:
        """A label, and the settings under which a method is at its best."""
        plan = {"method": method, "noise_std": noise_std}
        if self.bounds is not None:
            plan["bounds"] = self.bounds
        if method.name not in CLASSICAL:
            return method.name, plan
        noise = self.noise_std if noise_std is None else noise_std
        if self.prior is None or noise is None:
            return method.name, {**plan, "noise_std": noise}
        return f"{method.name}, prior", {**plan, "noise_std": noise, "prior": self.prior}


def _known(subject: Problem | Pair) -> _Known:
    if isinstance(subject, Problem):
        if not subject.has_simulator:
            raise ConfigError(
                f"{subject.name} was made from data and has no simulator: train a pair on it"
            )
        noise = subject.noise_std
        return _Known(subject.simulate, False, subject.prior, noise, subject.bounds)
    if isinstance(subject, Pair):
        calibration = calibration_of(subject)
        return _Known(subject, True, calibration.family, calibration.noise_std, None)
    raise ConfigError(f"compare needs a pair or a problem; got {type(subject).__name__}")
