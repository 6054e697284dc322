"""What stands below each table and figure: ``captions.jinja``, filled from the records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from deceptron_paper import statistics
from deceptron_paper.report.query import Query


def caption(name: str, query: Query, **facts: object) -> str:
    """The caption of the table or figure ``name``; ``facts`` are what only its maker knows."""
    words = _template().make_module({"query": query, **facts})
    return " ".join(str(getattr(words, name.replace("-", "_"))()).split())


@cache
def _template() -> Template:
    environment = Environment(undefined=StrictUndefined)
    environment.globals |= {
        "rmse_limits": rmse_limits,
        "starts_and_objectives": starts_and_objectives,
        "uncharged": uncharged,
        "true_methods": true_methods,
        "rules": statistics,
    }
    source = (files("deceptron_paper.report") / "captions.jinja").read_text(encoding="utf-8")
    return environment.from_string(source)


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


def starts_and_objectives(query: Query, methods: Iterable[str]) -> str:
    """Where iterative methods start, whose misfit they minimise, and what is not counted."""
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
        f"{misfit}. {uncharged(query, names)}"
    ).rstrip()


def uncharged(query: Query, methods: Iterable[str]) -> str:
    """A sentence on starts that cost something and are not counted; empty if there are none."""
    known = (query.methods[name] for name in methods if name in query.methods)
    free = [method.name for method in known if method.start == "wiener"]
    return f"The wiener start of {_joined(free)} is not counted." if free else ""


def true_methods(query: Query) -> str:
    """Methods whose f is the simulator."""
    return _joined([name for name, method in query.methods.items() if method.physics == "true"])


def _joined(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
