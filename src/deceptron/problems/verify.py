"""Checks a simulator the way a careful colleague would, and says in words what is wrong."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from deceptron.core.box import Box
from deceptron.core.checks import check_count, check_seed
from deceptron.core.differentiate import jvp
from deceptron.core.errors import DeceptronError, in_words
from deceptron.problems.base import Problem
from deceptron.problems.units import unresolved

T = TypeVar("T")

_STEPS = [2.0**-k for k in range(4, 11)]


@dataclass(frozen=True)
class Report:
    """What ``verify`` found.

    Attributes:
        name: of the problem.
        passed: checks that found nothing, by name.
        problems: what is wrong, in words.
        skipped: what could not be checked, and why.
        defect: of the adjoint, ``|<J d, p> - <d, J' p>| / |J d| |p|``, the largest of rows.
    """

    name: str
    passed: tuple[str, ...]
    problems: tuple[str, ...]
    skipped: tuple[str, ...]
    defect: float | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        verdict = "all checks passed" if self.ok else f"{len(self.problems)} check(s) failed"
        lines = [f"{self.name}: {verdict}"]
        lines += [f"  wrong: {text}" for text in self.problems]
        lines += [f"  passed: {', '.join(self.passed)}"] if self.passed else []
        lines += [] if self.defect is None else [f"  defect of the adjoint: {self.defect:.2g}"]
        lines += [f"  skipped: {text}" for text in self.skipped]
        return "\n".join(lines)


# Rows of the tests that call the simulator many times.
_FEW = 3
# Relative; a derivative by differences of values is good to 1e-9, a wrong one to no digit at all.
_DEFECT = 1e-6


def verify(problem: Problem, *, rows: int = 64, seed: int = 0, quiet: bool = False) -> Report:
    """Check samples, bounds, dtype, batching and derivatives; print what is wrong and return it.

    Args:
        problem: yours, from ``dc.problems.define``.
        rows: how many latents of the family, and as many points from all over the bounds, are
            simulated; fewer may miss a place where the simulator has no answer.
        seed: of those.
        quiet: print nothing.

    Returns:
        Report: what was found; ``report.ok`` says whether nothing is wrong.
    """
    check_count("rows", rows)
    check_seed(seed)
    found = _Findings()
    x = found.of("samples in the box", lambda: _samples(problem, rows, seed))
    found.of("samples follow their generator", lambda: _follows_generator(problem, seed))
    if not bool((torch.as_tensor(problem.noise_std) > 0).all()):
        found.skipped.append(
            "error bars, trust and corrections: without noise (noise_std=0) training cannot "
            "calibrate them; state what the sensors have"
        )
    if not problem.has_simulator:
        found.skipped.append("all about simulate (the problem was made from data)")
    elif x is not None:
        _verify_simulator(problem, x, seed, found)
    report = Report(
        problem.name, tuple(found.passed), tuple(found.wrong), tuple(found.skipped), found.defect
    )
    if not quiet:
        print(report)
    return report


def _verify_simulator(problem: Problem, x: Tensor, seed: int, found: _Findings) -> None:
    y = found.of("finite output", lambda: _finite(problem, x))
    found.of("finite all over the box", lambda: _finite_in_box(problem, x, seed))
    if y is None:
        return
    good = y.isfinite().flatten(1).all(1).nonzero().flatten()[:_FEW]
    if not len(good):
        found.skipped.append("all that needs a row with an answer")
        return
    x, y = x[good], y[good].to(x)
    found.of("noise above round-off", lambda: _resolved(problem, y))
    found.of("input left alone", lambda: _leaves_input(problem, x))
    found.of("dtype kept", lambda: _dtypes(problem, x))
    found.of("same answer twice", lambda: _repeatable(problem, x, y))
    found.of("rows independent", lambda: _independent(problem, x, y))
    if not problem.differentiable:
        found.skipped.append("derivatives (differentiable=False)")
        return
    inner = _inner(problem, x)
    generator = Generator().manual_seed(seed + 1)
    direction = torch.randn(x.shape, dtype=x.dtype, generator=generator)
    probe = torch.randn(y.shape, dtype=y.dtype, generator=generator)
    failures = len(found.wrong)
    found.of("Taylor test of the jvp", lambda: _taylor(problem, inner, direction))
    if len(found.wrong) > failures:
        found.skipped.append("adjoint test of the vjp (the jvp is wrong)")
        return
    found.defect = found.of(
        "adjoint test of the vjp", lambda: _adjoint(problem, inner, direction, probe)
    )


class _Wrong(Exception):
    """What a check found, in words; ``value`` is what it has nevertheless."""

    def __init__(self, words: str, value: Any = None) -> None:
        super().__init__(words)
        self.value = value


class _Findings:
    """Names of what passed, words for what is wrong or could not be looked at."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.wrong: list[str] = []
        self.skipped: list[str] = []
        self.defect: float | None = None

    def of(self, name: str, check: Callable[[], T]) -> T | None:
        """What the check returns; an error of the user's code is a finding, not the end."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # failures are told here
            try:
                value = check()
            except _Wrong as error:
                self.wrong.append(str(error))
                return error.value
            except DeceptronError as error:
                self.wrong.append(f"{name}: {error}")
                return None
            except Exception as error:
                self.wrong.append(f"{name}: it raises {in_words(error)}")
                return None
        self.passed.append(name)
        return value


def _samples(problem: Problem, rows: int, seed: int) -> Tensor:
    x = problem.sample(rows, generator=Generator().manual_seed(seed), dtype=torch.float64)
    box = Box.parse(problem.bounds, problem.x_shape, x)
    inside = box.project(x.nan_to_num().flatten(1)).reshape(x.shape)
    if not bool(x.isfinite().all()):
        raise _Wrong("sample returns NaN or infinity", inside)
    distance = (inside - x).abs()
    low, high = (torch.as_tensor(side).to(x) for side in problem.bounds)
    size = torch.where((high - low).isfinite(), high - low, x.abs())
    if bool((distance > 1e-6 * size).any()):
        words = f"sample leaves the bounds, by up to {float(distance.max()):.3g}"
        raise _Wrong(words, inside)
    return inside


def _resolved(problem: Problem, y: Tensor) -> None:
    words = unresolved(y, problem.noise_std, torch.float32)
    if words is not None:
        raise _Wrong(words)


def _follows_generator(problem: Problem, seed: int) -> None:
    first, again, other = (
        problem.sample(_FEW, generator=Generator().manual_seed(s), dtype=torch.float64)
        for s in (seed, seed, seed + 1)
    )
    if not torch.equal(first, again):
        raise _Wrong(
            "sample ignores its generator: the same seed gives other rows each time; draw with "
            "torch.rand(..., generator=generator), or seed NumPy from generator.initial_seed()"
        )
    if torch.equal(first, other):
        raise _Wrong("sample ignores its generator: every seed gives the same rows")


def _finite(problem: Problem, x: Tensor) -> Tensor:
    y = problem.simulate(x).detach()
    bad = int((~y.isfinite()).flatten(1).any(1).sum())
    if bad:
        raise _Wrong(f"simulate returns NaN or infinity in {bad} of {len(y)} rows", y)
    return y


def _finite_in_box(problem: Problem, x: Tensor, seed: int) -> None:
    """Each row moved towards a random corner, by any share of the way: solvers go there."""
    low, high = (torch.as_tensor(s).to(x).broadcast_to(x.shape[1:]) for s in problem.bounds)
    generator = Generator().manual_seed(seed + 2)
    corner = torch.where(torch.rand(x.shape, generator=generator) < 0.5, low, high)
    share = torch.rand(len(x), generator=generator).to(x).reshape(-1, *(1,) * (x.ndim - 1))
    moved = torch.where(corner.isfinite(), x + share * (corner - x), x)
    y = problem.simulate(moved)
    bad = (~y.isfinite()).flatten(1).any(1)
    if bool(bad.any()):
        raise _Wrong(
            f"simulate returns NaN or infinity in {int(bad.sum())} of {len(y)} points of the box, "
            "which a solver may try: narrow the bounds, or return finite values there"
        )


def _leaves_input(problem: Problem, x: Tensor) -> None:
    given = x.clone()
    # A problem may hand its simulator a copy; others may not.
    getattr(problem, "simulator", problem.simulate)(given)
    if not torch.equal(given, x):
        raise _Wrong(
            f"simulate writes to its input, by up to {float((given - x).abs().max()):.2g}: work on "
            "a copy, x = x.clone()"
        )


def _dtypes(problem: Problem, x: Tensor) -> None:
    for dtype in (torch.float32, torch.float64):
        got = problem.simulate(x.to(dtype)).dtype
        if got != dtype:
            raise _Wrong(f"simulate returns {got} for {dtype} latents; it must keep the dtype")


def _independent(problem: Problem, x: Tensor, y: Tensor) -> None:
    alone = torch.cat([problem.simulate(row) for row in x.split(1)])
    error = float((alone - y).abs().max() / y.abs().max().clamp_min(1e-300))
    if error > 1e-8:
        raise _Wrong(
            f"rows are not independent: simulating a row alone changes it by {error:.2g} of the "
            "largest value; look for a mean, a norm or a stopping rule over the whole batch"
        )


def _repeatable(problem: Problem, x: Tensor, y: Tensor) -> None:
    error = float((problem.simulate(x) - problem.simulate(x)).abs().max())
    if error > 1e-8 * float(y.abs().max()):
        raise _Wrong(
            f"two calls differ by {error:.2g}: simulate must be noise-free and deterministic; "
            "noise_std adds noise"
        )


def _inner(problem: Problem, x: Tensor) -> Tensor:
    """Points from which the Taylor steps stay in the box (where the box has an inside)."""
    low, high = (
        s.to(x) if isinstance(s, Tensor) else torch.tensor(s).to(x) for s in problem.bounds
    )
    bounded = low.isfinite() & high.isfinite()
    middle = torch.where(bounded, 0.5 * (low + high), x)
    inner = torch.where(bounded, middle + 0.6 * (x - middle), x)
    # Beside the only side of a box, as far away as the longest step.
    step = _STEPS[0] * _longest(problem, x)
    inner = torch.where(low.isfinite() & ~bounded, inner.maximum(low + step), inner)
    return torch.where(high.isfinite() & ~bounded, inner.minimum(high - step), inner)


def _longest(problem: Problem, x: Tensor) -> Tensor:
    """Twice the width of the box, or about that of the family where the box is open."""
    low, high = (torch.as_tensor(s, dtype=x.dtype) for s in problem.bounds)
    spread = x.std(0, correction=0)
    family = torch.where(spread > 0, 4 * spread, 1.0)
    return 2 * torch.where((high - low).isfinite(), high - low, family)


def _taylor(problem: Problem, x: Tensor, direction: Tensor) -> None:
    """|F(x + h d) - F(x) - h J d| falls like h^2; less only at round-off."""
    direction = _longest(problem, x) * direction / direction.abs().max()
    try:
        y, slope = jvp(problem.simulate, x, direction)
    except (RuntimeError, NotImplementedError) as error:
        raise _Wrong(f"the jvp fails: {str(error).splitlines()[0]}") from error
    _check_answers(problem, "jvp", slope)
    remainders = [
        float((problem.simulate(x + h * direction) - y - h * slope).norm()) for h in _STEPS
    ]
    floor = 1e-9 * float(y.norm())
    if remainders[0] <= floor * 10:
        return
    order = taylor_order(remainders, floor)
    if order < 1.8:
        raise _Wrong(
            f"the jvp is wrong: the Taylor remainder falls like h^{order:.2f} instead of h^2 "
            f"(relative remainder {remainders[0] / max(float(y.norm()), 1e-300):.2g} at h = 1/16); "
            "look for detach(), in-place writes, kinks or a derivative written by hand"
        )


def _check_answers(problem: Problem, kind: str, rows: Tensor) -> None:
    bad = int((~rows.isfinite()).flatten(1).any(1).sum())
    if bad:
        failures: list[str] = getattr(getattr(problem, "simulator", None), "failures", [])
        why = next((f": {words}" for words in failures if words.startswith(kind)), "")
        raise _Wrong(f"the {kind} fails or is not finite in {bad} of {len(rows)} rows{why}")


def taylor_order(remainders: list[float], floor: float) -> float:
    """The slope between the last two steps (each half of the one before) above round-off."""
    above = [r for r in remainders if r > floor]
    if len(above) < 2:
        return math.inf
    return math.log2(above[-2] / above[-1])


def _adjoint(problem: Problem, x: Tensor, direction: Tensor, probe: Tensor) -> float:
    """<J d, p> = <d, J' p>, row by row."""
    _, forward = jvp(problem.simulate, x, direction)
    leaf = x.detach().requires_grad_()
    try:
        (backward,) = torch.autograd.grad(problem.simulate(leaf), leaf, probe)
    except RuntimeError as error:
        raise _Wrong(f"the vjp fails: {str(error).splitlines()[0]}") from error
    _check_answers(problem, "vjp", backward)
    left = (forward * probe).flatten(1).sum(1)
    right = (direction * backward).flatten(1).sum(1)
    scale = (forward.flatten(1).norm(dim=1) * probe.flatten(1).norm(dim=1)).clamp_min(1e-300)
    defect = float(((left - right).abs() / scale).max())
    if not defect <= _DEFECT:
        raise _Wrong(
            f"the vjp is not the adjoint of the jvp: <J d, p> and <d, J' p> differ by "
            f"{defect:.2g} of |J d| |p|; one of the two is wrong. The jvp passed its Taylor test, "
            "so look at the vjp: a transpose of something else, a sign, a missing factor"
        )
    return defect
