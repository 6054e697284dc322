"""Past the paper: the guarded solver on the true simulator against everything it competes with.

Seeds are pooled: a trial is a seed and an instance, and two methods are compared on the trials
that both were run on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from deceptron.report.index import Index
from deceptron.report.tables.paired import paired, shared
from deceptron.report.tables.table import Cell, Column, Count, Probability, Table
from deceptron.report.tables.view import View, in_noise, mean
from deceptron.report.words import INTERVALS, RMSE_LIMITS
from deceptron.study.statistics import Interval, ratio_interval

OURS, NETWORK, COLD = "guarded-true", "one-shot", "gn-cold"
COMPETITORS = (NETWORK, "wiener", "d-ipg", COLD, "lm-cold", "l-bfgs-cold")
VARIANTS = (OURS, "guarded-prior")

MARGIN = 1.05  # how many times the error of another method counts as no worse
UNEXPLAINED = 1.2  # residuals above this many times the noise are not noise alone
CHANCE = 0.01
SHARE = 1 / 5  # of the cold start's simulator evaluations that guarded may use


def guarded_in_distribution(index: Index) -> Table:
    """Test sets: success, and the error relative to the best competitor."""
    trials = Trials(View(index))
    rows = [_in_distribution(trials, problem) for problem in index.problems]
    return Table(
        "guarded-in-distribution",
        "Guarded on the true simulator, in distribution",
        "Test set, model standard, seeds pooled. Ratios of mean RMSE are those of "
        "the trials that both were run on, with 95% percentile bootstrap intervals, instances "
        f"resampled within seeds. The best competitor is the one of {', '.join(COMPETITORS)} "
        f"with the largest ratio; {OURS} should have at most {MARGIN} times its error. "
        f"Success (rmse): {RMSE_LIMITS}. {INTERVALS}",
        (
            Column("problem", "problem"),
            Column("n", "n"),
            Column("success_rmse", "success (rmse)"),
            Column("rmse", "RMSE"),
            Column("best", "best competitor"),
            Column("shared", "n", "shared trials"),
            Column("rmse_best", "its RMSE", "shared trials"),
            Column("ratio", "RMSE / its", "shared trials"),
            Column("no_worse", f"<= {MARGIN}", "shared trials"),
            Column("ratio_prior", "guarded-prior's RMSE / its", "shared trials"),
        ),
        tuple(rows),
        trials.view.notes(),
    )


def guarded_off_distribution(index: Index) -> Table:
    """Shifted and extreme sets: one-shot where it fails, and what a cold start costs."""
    trials = Trials(View(index))
    made = [
        _off_distribution(trials, problem, set, method)
        for set in ("shifted", "extreme")
        for problem in index.problems
        for method in VARIANTS
        if trials.planned(problem, set, method)
    ]
    groups = dict.fromkeys((line.set, line.method) for line in made)
    medians = [
        _median(*group, [line for line in made if (line.set, line.method) == group])
        for group in groups
    ]
    return Table(
        "guarded-off-distribution",
        "Guarded on the true simulator, off distribution",
        "Model standard, seeds pooled. Simulator residuals are in units of the noise; where "
        f"one-shot's exceeds {UNEXPLAINED}, guarded must have the lower RMSE (paired sign-flip "
        f"permutation, p < {CHANCE}). {COLD} starts at the prior's mean. Ratios of mean RMSE are "
        "those of the shared trials, with 95% percentile bootstrap intervals, instances resampled "
        f"within seeds; no worse: at most {MARGIN}. Simulator evaluations are f, jvp and vjp, "
        f"counted alike; {COLD}'s are counted to its own stop and, in its favour, to its first "
        f"point within {MARGIN - 1:.0%} of its final error. g counts passes of the network. Last "
        f"lines: medians over problems. {INTERVALS}",
        (
            Column("problem", "problem"),
            Column("set", "set"),
            Column("method", "method"),
            Column("n", "n"),
            Column("rmse", "RMSE"),
            Column("true_residual", "simulator residual / noise"),
            Column("one_shot_residual", "simulator residual / noise", "one-shot"),
            Column("ratio_one_shot", "RMSE / its", "one-shot"),
            Column("p", "p", "one-shot"),
            Column("beats_one_shot", "lower where it must be", "one-shot"),
            Column("shared", "shared trials", COLD),
            Column("ratio_cold", "RMSE / its", COLD),
            Column("no_worse", f"<= {MARGIN}", COLD),
            Column("g", "g"),
            Column("evaluations", "simulator evaluations"),
            Column("share_own_stop", "own stop", f"share of {COLD}'s evaluations"),
            Column("share_best_stop", "in its favour", f"share of {COLD}'s evaluations"),
            Column("a_fifth", "<= 1/5", f"share of {COLD}'s evaluations"),
        ),
        (*(line.cells for line in made), *medians),
        trials.view.notes(),
    )


class Trials:
    """The instances of a method on all seeds, indexed by seed and instance."""

    def __init__(self, view: View) -> None:
        self.view = view

    def of(self, problem: str, set: str, method: str) -> pd.DataFrame:
        """Of the model standard; empty, and noted, where a planned cell is not there."""
        seeds = self.planned(problem, set, method)
        cells = [self.view.instances(problem, "standard", method, set=set, seed=s) for s in seeds]
        return _pooled([self.view.index.records.instances.iloc[:0], *cells])

    def steps(self, problem: str, set: str, method: str) -> pd.DataFrame:
        """Every accepted point of these trials."""
        seeds = self.planned(problem, set, method)
        cells = [self.view.steps(problem, "standard", method, set=set, seed=s) for s in seeds]
        return _pooled([self.view.index.records.steps.iloc[:0], *cells])

    def planned(self, problem: str, set: str, method: str) -> list[int]:
        """Seeds that the study was to run."""
        index = self.view.index
        return [
            seed
            for seed in index.seeds
            if (problem, set, "standard", seed, method) in index.planned
        ]


def _pooled(cells: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(cells).set_index(["seed", "instance"])


@dataclass(frozen=True)
class _Line:
    """A row of the table, and the numbers its medians are taken of."""

    set: str
    method: str
    cells: tuple[Cell, ...]
    ratio: float
    share_own_stop: float
    share_best_stop: float


def _in_distribution(trials: Trials, problem: str) -> tuple[Cell, ...]:
    ours = trials.of(problem, "test", OURS)
    if ours.empty:
        return (problem, *[None] * 9)
    own = (Count(len(ours)), trials.view.rate(ours, "rmse"), mean(ours, "rmse"))
    others = {method: trials.of(problem, "test", method) for method in COMPETITORS}
    ratios = {method: _ratio(ours, found) for method, found in others.items()}
    known = [method for method, ratio in ratios.items() if not np.isnan(ratio.value)]
    if not known:
        return (problem, *own, *[None] * 6)
    best = max(known, key=lambda method: ratios[method].value)
    ratio, theirs = ratios[best], others[best]["rmse"]
    prior = trials.of(problem, "test", "guarded-prior")
    return (
        problem,
        *own,
        best,
        Count(ratio.count),
        float(shared(ours["rmse"], theirs)[1].mean()),
        ratio,
        _verdict(ratio.value, MARGIN),
        _ratio(prior, others[best]) if len(prior) else None,
    )


def _off_distribution(trials: Trials, problem: str, set: str, method: str) -> _Line:
    ours, network, cold = (trials.of(problem, set, m) for m in (method, NETWORK, COLD))
    label: tuple[Cell, ...] = (problem, set, method)
    if ours.empty:
        return _Line(set, method, (*label, *[None] * 15), np.nan, np.nan, np.nan)
    ratio = _ratio(ours, cold)
    beside: tuple[Cell, ...] = (None,) * 3
    if ratio.count:
        beside = (Count(ratio.count), ratio, _verdict(ratio.value, MARGIN))
    spent = _simulator(ours)
    shares = [
        ratio_interval(*shared(spent, theirs)).value
        for theirs in (_simulator(cold), _best_stop(cold, trials.steps(problem, set, COLD)))
    ]
    cells = (
        *label,
        Count(len(ours)),
        mean(ours, "rmse"),
        in_noise(ours, "true_residual"),
        *_against_network(ours, network),
        *beside,
        float(ours["g"].mean()),
        float(spent.mean()),
        *shares,
        _verdict(shares[1], SHARE),
    )
    return _Line(set, method, cells, ratio.value, *shares)


def _against_network(ours: pd.DataFrame, network: pd.DataFrame) -> tuple[Cell, ...]:
    """What the network alone leaves unexplained, and whether ours is better where it must be."""
    if network.empty:
        return (None,) * 4
    left = in_noise(network, "true_residual")
    change = paired(ours["rmse"], network["rmse"])
    lower = change.difference.value < 0 and change.p < CHANCE
    verdict = _yes(lower) if left.value > UNEXPLAINED else "need not"
    return left, _ratio(ours, network), Probability(change.p), verdict


def _median(set: str, method: str, lines: list[_Line]) -> tuple[Cell, ...]:
    ratio, own_stop, best_stop = (
        _known_median([getattr(line, name) for line in lines])
        for name in ("ratio", "share_own_stop", "share_best_stop")
    )
    return (
        "median",
        set,
        method,
        *[None] * 8,
        ratio,
        _verdict(ratio, MARGIN),
        None,
        None,
        own_stop,
        best_stop,
        _verdict(best_stop, SHARE),
    )


def _ratio(ours: pd.DataFrame, theirs: pd.DataFrame) -> Interval:
    """Of the mean errors on shared trials."""
    own, other = shared(ours["rmse"], theirs["rmse"])
    return ratio_interval(own, other, groups=own.index.get_level_values("seed"))


def _simulator(table: pd.DataFrame) -> pd.Series:
    return (table["f"] + table["jvp"] + table["vjp"]).astype(float)


def _best_stop(cold: pd.DataFrame, steps: pd.DataFrame) -> pd.Series:
    """Evaluations of each trial up to its first point that is as good as its last."""
    last = cold["rmse"].reindex(steps.index)
    good = steps[steps["rmse"] <= MARGIN * last]
    return good.groupby(level=["seed", "instance"])["evaluations"].min().astype(float)


def _known_median(values: list[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.median(known)) if known else np.nan


def _verdict(value: float, limit: float) -> str | None:
    return None if np.isnan(value) else _yes(value <= limit)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
