"""Sentences that several captions need, computed where they depend on the study."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from deceptron.report.index import Index
from deceptron.study.methods import SOLVERS
from deceptron.study.records import Records
from deceptron.study.statistics import ORACLE, RESIDUAL_LIMIT, STRICT_FACTOR, rmse_limit

RMSE_LIMITS = f"RMSE <= {rmse_limit('allen-cahn-2d'):.2f}, heat-1d {rmse_limit('heat-1d'):.2f}"
RMSE_RULE = (
    f"Success rule rmse: {RMSE_LIMITS} (the paper publishes only the threshold of allen-cahn-2d, "
    "0.10)."
)
RESIDUAL_RULE = (
    f"Success rule residual: solved once r_t / r_0 <= {RESIDUAL_LIMIT:.2f}, r_0 the residual at "
    "x = 0."
)
INTERVALS = (
    "Brackets hold 95% bootstrap intervals over instances (means BCa, rates percentile, exact "
    "where all instances agree); p is of a paired sign-flip permutation test on shared instances; "
    "* marks fewer than 30 instances."
)


def strict_rule(index: Index) -> str:
    """The rule strict, and how many instances its threshold rests on."""
    rule = f"Success rule strict: RMSE <= {STRICT_FACTOR} x the mean of {ORACLE} on the same set"
    counts = index.oracle_counts
    if counts.empty:
        return f"{rule}, which was not run."
    few, many = int(counts.min()), int(counts.max())
    instances = str(few) if few == many else f"{few} to {many}"
    return f"{rule}, over its {instances} instances, so that the threshold has an error too."


def grounds(methods: Collection[str]) -> str:
    """Where iterative methods start, whose misfit they minimise, and what is not charged."""
    starts, misfits = defaultdict(list), defaultdict(list)
    for name in methods:
        solver = SOLVERS[name]
        if solver.method().direct:
            continue
        starts[_start(name)].append(name)
        if solver.physics == "true":
            misfits["the simulator's" + (" with the prior" if solver.prior else "")].append(name)
        elif solver.prior:
            misfits["the surrogate's with the prior"].append(name)
    starts.pop("x0 = 0", None)
    begin = "".join(f", {_names(names)} from {where}" for where, names in starts.items())
    misfit = "".join(f", {_names(names)} {whose}" for whose, names in misfits.items())
    return (
        f"Iterative methods start from x0 = 0{begin}; they minimise the surrogate's misfit"
        f"{misfit}.{uncharged(methods)}"
    )


def uncharged(methods: Iterable[str]) -> str:
    """A sentence, after a space, on starts that cost something and are not counted."""
    free = [name for name in methods if SOLVERS[name].start == "wiener"]
    return f" The wiener start of {_names(free)} is not charged." if free else ""


def versions(records: Records) -> str | None:
    """A warning if cells were solved by different versions of the library."""
    counts = records.cells["library"].value_counts().sort_index()
    if len(counts) < 2:
        return None
    each = ", ".join(f"{name} ({count} cells)" for name, count in counts.items())
    return f"Solved by different versions of the library, which may differ in results: {each}."


def simulator_evaluations(methods: Iterable[str]) -> str:
    """What f, jvp and vjp are evaluations of."""
    true = [name for name in methods if SOLVERS[name].physics == "true"]
    whose = f" (of the simulator for {_names(true)})" if true else ""
    return (
        f"f, jvp and vjp are evaluations of the forward map and its derivatives{whose}, g those of "
        "the reverse network, its jvps included."
    )


def _start(name: str) -> str:
    solver, start = SOLVERS[name], SOLVERS[name].method().start
    if solver.start == "wiener" or start == "wiener":
        return "the wiener estimate"
    if start != "zero":
        return "g(y)"
    return "the prior's mean" if solver.prior else "x0 = 0"


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
