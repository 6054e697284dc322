"""What a study must know of a method to run it and to show it: one entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

from torch import Tensor

from deceptron import methods
from deceptron.problems import Problem
from deceptron.work import plain
from deceptron_paper.study.entries import problem_entry

# Where a descent depends on the number of unknowns: the fewest of any problem.
UNKNOWNS = 64
# Dashes of a line in points: on, off, ...
SOLID: tuple[float, ...] = ()
DASHED, DOTTED, DASHDOT = (4, 1.6), (1, 1.4), (5, 1.4, 1, 1.4)
DASHDOTDOT = (5, 1.4, 1, 1.4, 1, 1.4)


@dataclass(frozen=True)
class MethodEntry:
    """A method as a study runs and shows it.

    ``stop`` names the rule: the paper's tolerance, the noise level, or none but the step limit and
    a vanishing gradient; ``limit`` is the step limit where the paper has none. ``physics`` says
    whether f of the pair or the simulator is in the objective, ``start`` whether rows begin where
    the method would have them or at the wiener estimate. ``alone`` says whether instances are also
    solved one at a time, for the latency: a row alone can cost as much as a batch of six.

    ``words`` and ``operation`` say what it does and what an iteration computes. Hue says the
    algorithm; a solid line is the paper's setting, a dashed one tuned, a dash-dotted one works on
    the true simulator, with two dots from the prior's mean. Without ``color`` a report chooses one.
    """

    method: Callable[[], methods.Method]
    stop: Literal["paper", "noise", "never"]
    words: str
    physics: Literal["surrogate", "true"] = "surrogate"
    prior: bool = False
    limit: int | None = None
    start: Literal["own", "wiener"] = "own"
    alone: bool = True
    operation: str = ""
    color: str = ""
    dashes: tuple[float, ...] = SOLID
    marker: str = "o"
    filled: bool = True
    width: float = 1.1

    @property
    def uses_reverse(self) -> bool:
        """Whether the answer depends on g."""
        return self.method().needs_reverse

    def document(self) -> dict[str, Any]:
        """Every setting that a result depends on, as JSON values; read from the method it makes."""
        own = {name: getattr(self, name) for name in DECISIVE}
        return plain({**own, "method": _made(self.method())}, exact=True)

    def shown(self) -> dict[str, Any]:
        """What a report needs to know of the method, as JSON values."""
        own = {e.name: getattr(self, e.name) for e in fields(self) if e.name not in HIDDEN}
        method = self.method()
        own |= {"direct": method.direct, "uses_reverse": self.uses_reverse, "begins": self._begins}
        return plain(own)

    @property
    def _begins(self) -> str:
        own = self.method().start
        if "wiener" in (self.start, own):
            return "the wiener estimate"
        if own != "zero":
            return "g(y)"
        return "the prior's mean" if self.prior else "x0 = 0"

    def settings(
        self, problem: Problem, *, noise_std: float | Tensor, max_iterations: int | None
    ) -> dict[str, Any]:
        """Arguments of ``dc.solve`` beside the pair and the observations."""
        chosen: dict[str, Any] = {"method": self.method()}
        limit = max_iterations or self.limit
        if self.stop == "paper":
            entry = problem_entry(problem.name)
            chosen["tolerance"] = entry.tolerance
            limit = limit or entry.iterations
        elif self.stop == "noise" or self.prior:
            chosen["noise_std"] = noise_std
        if self.physics == "true":
            chosen["forward"] = problem.simulate
        if self.prior:
            chosen["prior"] = problem.prior
        return chosen if limit is None else {**chosen, "max_iterations": limit}


DECISIVE = ("stop", "physics", "prior", "limit", "start", "alone")
HIDDEN = ("method", "stop", "limit", "alone")


def _made(method: methods.Method) -> dict[str, Any]:
    """A method's settings, with those of a method that it may hand over to."""
    made = {e.name: getattr(method, e.name) for e in fields(method)}
    made["descent"] = method.descent(UNKNOWNS)
    return {name: _made(v) if isinstance(v, methods.Method) else v for name, v in made.items()}
