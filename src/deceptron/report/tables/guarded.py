"""Past the paper: the guarded solver on the true simulator against everything it competes with.

Seeds are pooled: a trial is a seed and an instance, and two methods are compared on the trials
that both were run on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from deceptron.report.query import Query, Trials
from deceptron.report.tables import case
from deceptron.report.tables.case import Case
from deceptron.report.tables.table import Column, Count, Line, Value, measured, p_value, table
from deceptron.report.trials import shared
from deceptron.study.statistics import Interval, ratio_interval

OURS, NETWORK, COLD = "guarded-true", "one-shot", "gn-cold"
COMPETITORS = (NETWORK, "wiener", "d-ipg", COLD, "lm-cold", "l-bfgs-cold")
VARIANTS = (OURS, "guarded-prior")

MARGIN = 1.05  # how many times the error of another method counts as no worse
UNEXPLAINED = 1.2  # residuals above this many times the noise are not noise alone
CHANCE = 0.01
SHARE = 1 / 5  # of the cold start's simulator evaluations that guarded may use


@dataclass(frozen=True)
class Contest(Case):
    """The guarded solver on one set of a problem, and whom it meets there; all seeds."""

    method: str = OURS
    pooled: bool = True

    @cached_property
    def network(self) -> Trials:
        """Of the network alone."""
        return self.of(NETWORK)

    @cached_property
    def cold(self) -> Trials:
        """Of Gauss-Newton from the prior's mean."""
        return self.of(COLD)

    @cached_property
    def best(self) -> str | None:
        """The competitor whose error is hardest to match."""
        found = {method: self.trials.ratio(self.of(method)) for method in COMPETITORS}
        known = {method: ratio.value for method, ratio in found.items() if ratio is not None}
        return max(known, key=known.__getitem__, default=None)

    def against_best(self, method: str) -> Interval | None:
        """The error of a method over that of the best competitor."""
        return None if self.best is None else self.of(method).ratio(self.of(self.best))

    @property
    def best_rmse(self) -> Value:
        """Mean error of the best competitor on shared trials."""
        if self.best is None:
            return None
        theirs = self.of(self.best).rows["rmse"]
        return float(shared(self.trials.rows["rmse"], theirs)[1].mean())

    @property
    def must_win(self) -> Value:
        """Whether ours is clearly better where the network leaves more than noise."""
        left = self.network.in_noise("true_residual")
        found = self.trials.against(self.network)
        if left is None or found is None:
            return None
        lower = found.difference.value < 0 and found.p < CHANCE
        return _yes(lower) if left.value > UNEXPLAINED else "need not"

    @property
    def ratio_cold(self) -> Interval | None:
        """Error over that of the cold start."""
        return self.trials.ratio(self.cold)

    @cached_property
    def share_own_stop(self) -> float:
        """Of the evaluations that the cold start spends to its own end."""
        return ratio_interval(*shared(_simulator(self.trials), _simulator(self.cold))).value

    @cached_property
    def share_best_stop(self) -> float:
        """Of those it needs for the first point that is as good as its last."""
        steps = self.cold.steps
        last = self.cold.rows["rmse"].reindex(steps.index)
        good = steps[steps["rmse"] <= MARGIN * last]
        first = good.groupby(level=[0, 1])["evaluations"].min().astype(float)
        return ratio_interval(*shared(_simulator(self.trials), first)).value


def _simulator(trials: Trials) -> pd.Series:
    rows = trials.rows
    return (rows["f"] + rows["jvp"] + rows["vjp"]).astype(float)


def _within(value: Interval | float | None, limit: float) -> str | None:
    number = value.value if isinstance(value, Interval) else value
    return None if number is None or np.isnan(number) else _yes(number <= limit)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _compared(ratio: Interval | None) -> Value:
    return None if ratio is None else Count(ratio.count)


def _shared(key: str, title: str, measure: Callable[[Contest], Value]) -> Column:
    """A column on the trials that ours and the best competitor share."""
    return Column(key, title, "shared trials", measure)


@table(
    "guarded-in-distribution",
    "Guarded on the true simulator, in distribution",
    (
        case.PROBLEM,
        case.N,
        replace(case.SUCCESS, title="success (rmse)", group=""),
        case.RMSE,
        Column("best", "best competitor", value=lambda c: c.best),
        _shared("shared", "n", lambda c: _compared(c.against_best(OURS))),
        _shared("rmse_best", "its RMSE", lambda c: c.best_rmse),
        _shared("ratio", "RMSE / its", lambda c: c.against_best(OURS)),
        _shared("no_worse", f"<= {MARGIN}", lambda c: _within(c.against_best(OURS), MARGIN)),
        _shared(
            "ratio_prior",
            "guarded-prior's RMSE / its",
            lambda c: c.against_best("guarded-prior"),
        ),
    ),
    competitors=COMPETITORS,
    ours=OURS,
    margin=MARGIN,
)
def guarded_in_distribution(query: Query) -> Iterator[Contest]:
    """Test sets: success, and the error relative to the best competitor."""
    return (Contest(query, problem) for problem in query.problems)


SIMULATOR_RESIDUAL = replace(case.TRUE_RESIDUAL, title="simulator residual / noise", group="")
SHARES = f"share of {COLD}'s evaluations"
OFF_DISTRIBUTION = (
    case.PROBLEM,
    case.SET,
    case.METHOD,
    case.N,
    case.RMSE,
    SIMULATOR_RESIDUAL,
    replace(
        SIMULATOR_RESIDUAL,
        key="one_shot_residual",
        group="one-shot",
        value=lambda c: c.network.in_noise("true_residual") if len(c.trials) else None,
    ),
    Column("ratio_one_shot", "RMSE / its", "one-shot", lambda c: c.trials.ratio(c.network)),
    Column("p", "p", "one-shot", lambda c: p_value(c.trials.against(c.network))),
    Column("beats_one_shot", "lower where it must be", "one-shot", lambda c: c.must_win),
    Column("shared", "shared trials", COLD, lambda c: _compared(c.ratio_cold)),
    Column("ratio_cold", "RMSE / its", COLD, lambda c: c.ratio_cold),
    Column("no_worse", f"<= {MARGIN}", COLD, lambda c: _within(c.ratio_cold, MARGIN)),
    Column("g", "g", value=lambda c: c.trials.average("g")),
    Column(
        "evaluations", "simulator evaluations", value=lambda c: float(_simulator(c.trials).mean())
    ),
    Column("share_own_stop", "own stop", SHARES, lambda c: c.share_own_stop),
    Column("share_best_stop", "in its favour", SHARES, lambda c: c.share_best_stop),
    Column("a_fifth", "<= 1/5", SHARES, lambda c: _within(c.share_best_stop, SHARE)),
)


@table(
    "guarded-off-distribution",
    "Guarded on the true simulator, off distribution",
    OFF_DISTRIBUTION,
    unexplained=UNEXPLAINED,
    chance=CHANCE,
    cold=COLD,
    margin=MARGIN,
)
def guarded_off_distribution(query: Query) -> Iterator[Line]:
    """Shifted and extreme sets: one-shot where it fails, and what a cold start costs."""
    contests = [
        Contest(query, problem, set=set, method=method)
        for set in ("shifted", "extreme")
        for problem in query.problems
        for method in VARIANTS
        if query.planned_seeds(problem, "standard", method, set=set)
    ]
    yield from (measured(OFF_DISTRIBUTION, contest) for contest in contests)
    for set, method in dict.fromkeys((contest.set, contest.method) for contest in contests):
        yield _medians(set, method, contests)


def _medians(set: str, method: str, contests: list[Contest]) -> Line:
    own = [c for c in contests if (c.set, c.method) == (set, method)]
    ratios = [np.nan if c.ratio_cold is None else c.ratio_cold.value for c in own]
    ratio = _median(ratios)
    best_stop = _median([c.share_best_stop for c in own])
    return {
        "problem": "median",
        "set": set,
        "method": method,
        "ratio_cold": ratio,
        "no_worse": _within(ratio, MARGIN),
        "share_own_stop": _median([c.share_own_stop for c in own]),
        "share_best_stop": best_stop,
        "a_fifth": _within(best_stop, SHARE),
    }


def _median(values: list[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.median(known)) if known else np.nan
