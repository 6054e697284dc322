"""Sentences that several captions need, computed from what the records say of their methods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from deceptron.report.query import Query
from deceptron.study.statistics import ORACLE, RESIDUAL_LIMIT, STRICT_FACTOR

RESIDUAL_RULE = (
    f"Success rule residual: solved once r_t / r_0 <= {RESIDUAL_LIMIT:.2f}, r_0 the residual at "
    "x = 0."
)
INTERVALS = (
    "Brackets hold 95% bootstrap intervals over instances (means BCa, rates percentile, exact "
    "where all instances agree); p is of a paired sign-flip permutation test on shared instances; "
    "* marks fewer than 30 instances."
)
PUBLISHED_LIMIT = "allen-cahn-2d"  # the only problem whose threshold the paper gives


def rmse_limits(query: Query) -> str:
    """The thresholds of the rule rmse, the most common one first."""
    named: dict[float, list[str]] = defaultdict(list)
    for problem, limit in query.limits.items():
        named[limit].append(problem)
    if not named:
        return "RMSE"
    usual, *others = sorted(named, key=lambda limit: -len(named[limit]))
    rest = "".join(f", {' and '.join(named[limit])} {limit:.2f}" for limit in others)
    return f"RMSE <= {usual:.2f}{rest}"


def rmse_rule(query: Query) -> str:
    """The rule rmse in a sentence."""
    rule = f"Success rule rmse: {rmse_limits(query)}"
    if PUBLISHED_LIMIT not in query.limits:
        return f"{rule}."
    return (
        f"{rule} (the paper publishes only the threshold of {PUBLISHED_LIMIT}, "
        f"{query.limits[PUBLISHED_LIMIT]:.2f})."
    )


def strict_rule(query: Query) -> str:
    """The rule strict, and how many instances its threshold rests on."""
    rule = f"Success rule strict: RMSE <= {STRICT_FACTOR} x the mean of {ORACLE} on the same set"
    counts = query.oracle_counts()
    if counts.empty:
        return f"{rule}, which was not run."
    few, many = int(counts.min()), int(counts.max())
    instances = str(few) if few == many else f"{few} to {many}"
    return f"{rule}, over its {instances} instances, so that the threshold has an error too."


def starts_and_objectives(query: Query, methods: Iterable[str]) -> str:
    """Where iterative methods start, whose misfit they minimise, and what is not charged."""
    names = [name for name in methods if name in query.methods]
    starts, misfits = defaultdict(list), defaultdict(list)
    for name in names:
        method = query.methods[name]
        if method.direct:
            continue
        starts[method.begins].append(name)
        if method.physics == "true":
            misfits["the simulator's" + (" with the prior" if method.prior else "")].append(name)
        elif method.prior:
            misfits["the surrogate's with the prior"].append(name)
    starts.pop("x0 = 0", None)
    begin = "".join(f", {_joined(group)} from {where}" for where, group in starts.items())
    misfit = "".join(f", {_joined(group)} {whose}" for whose, group in misfits.items())
    return (
        f"Iterative methods start from x0 = 0{begin}; they minimise the surrogate's misfit"
        f"{misfit}.{uncharged(query, names)}"
    )


def uncharged(query: Query, methods: Iterable[str]) -> str:
    """A sentence, after a space, on starts that cost something and are not counted."""
    known = (query.methods[name] for name in methods if name in query.methods)
    free = [method.name for method in known if method.start == "wiener"]
    return f" The wiener start of {_joined(free)} is not charged." if free else ""


def simulator_evaluations(query: Query) -> str:
    """What f, jvp and vjp are evaluations of."""
    true = [name for name, method in query.methods.items() if method.physics == "true"]
    whose = f" (of the simulator for {_joined(true)})" if true else ""
    return (
        f"f, jvp and vjp are evaluations of the forward map and its derivatives{whose}, g those of "
        "the reverse network, its jvps included."
    )


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
