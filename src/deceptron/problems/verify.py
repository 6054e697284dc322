"""Checks a simulator the way a careful colleague would, and says in words what is wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from deceptron.core.box import Box
from deceptron.core.differentiate import jvp
from deceptron.core.errors import DeceptronError
from deceptron.problems.base import Problem

_STEPS = [2.0**-k for k in range(4, 11)]


@dataclass(frozen=True)
class Report:
    """What ``verify`` found: ``problems`` in words, ``passed`` checks by name, the rest skipped."""

    name: str
    passed: tuple[str, ...]
    problems: tuple[str, ...]
    skipped: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        verdict = "all checks passed" if self.ok else f"{len(self.problems)} check(s) failed"
        lines = [f"{self.name}: {verdict}"]
        lines += [f"  wrong: {text}" for text in self.problems]
        lines += [f"  passed: {', '.join(self.passed)}"] if self.passed else []
        lines += [f"  skipped: {text}" for text in self.skipped]
        return "\n".join(lines)


def verify(problem: Problem, *, rows: int = 3, seed: int = 0, quiet: bool = False) -> Report:
    """Check samples, bounds, dtype, batching and derivatives; print what is wrong and return it."""
    passed: list[str] = []
    wrong: list[str] = []
    skipped: list[str] = []

    def check(name: str, text: str | None) -> bool:
        if text is None:
            passed.append(name)
        else:
            wrong.append(text)
        return text is None

    try:
        x = problem.sample(rows, generator=Generator().manual_seed(seed), dtype=torch.float64)
        inside = check("samples in the box", _samples(problem, x))
        x = (
            Box.parse(problem.bounds, problem.x_shape, x)
            .project(x.nan_to_num().flatten(1))
            .reshape(x.shape)
        )
        y = problem.simulate(x)
        sound = check("finite output", _finite(y))
        check("dtype kept", _dtypes(problem, x))
        if sound and inside:
            check("rows independent", _independent(problem, x, y))
            check("same answer twice", _repeatable(problem, x, y))
        if not problem.differentiable:
            skipped.append("derivatives (differentiable=False)")
        elif sound:
            inner = _inner(problem, x)
            generator = Generator().manual_seed(seed + 1)
            direction = torch.randn(x.shape, dtype=x.dtype, generator=generator)
            probe = torch.randn(y.shape, dtype=y.dtype, generator=generator)
            if check("Taylor test of the jvp", _taylor(problem, inner, direction)):
                check("adjoint test of the vjp", _adjoint(problem, inner, direction, probe))
            else:
                skipped.append("adjoint test of the vjp (the jvp is wrong)")
    except DeceptronError as error:
        wrong.append(f"it raised an error of the library: {error}")
    report = Report(problem.name, tuple(passed), tuple(wrong), tuple(skipped))
    if not quiet:
        print(report)
    return report


def _samples(problem: Problem, x: Tensor) -> str | None:
    if not bool(x.isfinite().all()):
        return "sample returns NaN or infinity"
    box = Box.parse(problem.bounds, problem.x_shape, x)
    distance = (box.project(x.flatten(1)) - x.flatten(1)).abs().max()
    if float(distance) > 1e-6:
        return f"sample leaves the bounds, by up to {float(distance):.3g}"
    return None


def _finite(y: Tensor) -> str | None:
    bad = int((~y.isfinite()).flatten(1).any(1).sum())
    return f"simulate returns NaN or infinity in {bad} of {len(y)} rows" if bad else None


def _dtypes(problem: Problem, x: Tensor) -> str | None:
    for dtype in (torch.float32, torch.float64):
        got = problem.simulate(x.to(dtype)).dtype
        if got != dtype:
            return f"simulate returns {got} for {dtype} latents; it must keep the dtype"
    return None


def _independent(problem: Problem, x: Tensor, y: Tensor) -> str | None:
    alone = torch.cat([problem.simulate(row) for row in x.split(1)])
    error = float((alone - y).abs().max() / y.abs().max().clamp_min(1e-300))
    if error > 1e-8:
        return (
            f"rows are not independent: simulating a row alone changes it by {error:.2g} of the "
            "largest value; look for a mean, a norm or a stopping rule over the whole batch"
        )
    return None


def _repeatable(problem: Problem, x: Tensor, y: Tensor) -> str | None:
    error = float((problem.simulate(x) - y).abs().max())
    if error > 1e-8 * float(y.abs().max()):
        return f"two calls differ by {error:.2g}: simulate must be noise-free; noise_std adds noise"
    return None


def _inner(problem: Problem, x: Tensor) -> Tensor:
    """Points from which the Taylor steps stay in the box (where the box has an inside)."""
    low, high = (
        s.to(x) if isinstance(s, Tensor) else torch.tensor(s).to(x) for s in problem.bounds
    )
    bounded = low.isfinite() & high.isfinite()
    middle = torch.where(bounded, 0.5 * (low + high), x)
    return torch.where(bounded, middle + 0.6 * (x - middle), x)


def _scaled(problem: Problem, direction: Tensor) -> Tensor:
    low, high = (torch.as_tensor(s, dtype=direction.dtype) for s in problem.bounds)
    width = torch.where((high - low).isfinite(), high - low, 1.0)
    return 2 * width * direction / direction.abs().flatten(1).amax(1).max()


def _taylor(problem: Problem, x: Tensor, direction: Tensor) -> str | None:
    """|F(x + h d) - F(x) - h J d| falls like h^2; less only at round-off."""
    direction = _scaled(problem, direction)
    try:
        y, slope = jvp(problem.simulate, x, direction)
    except (RuntimeError, NotImplementedError) as error:
        return f"the jvp fails: {str(error).splitlines()[0]}"
    remainders = [
        float((problem.simulate(x + h * direction) - y - h * slope).norm()) for h in _STEPS
    ]
    floor = 1e-9 * float(y.norm())
    if remainders[0] <= floor * 10:
        return None
    order = taylor_order(remainders, floor)
    if order < 1.8:
        return (
            f"the jvp is wrong: the Taylor remainder falls like h^{order:.2f} instead of h^2 "
            f"(relative remainder {remainders[0] / max(float(y.norm()), 1e-300):.2g} at h = 1/16); "
            "look for detach(), in-place writes, kinks or a derivative written by hand"
        )
    return None


def taylor_order(remainders: list[float], floor: float) -> float:
    """The slope between the last two steps (each half of the one before) above round-off."""
    above = [r for r in remainders if r > floor]
    if len(above) < 2:
        return math.inf
    return math.log2(above[-2] / above[-1])


def _adjoint(problem: Problem, x: Tensor, direction: Tensor, probe: Tensor) -> str | None:
    """<J d, p> = <d, J' p>, row by row."""
    _, forward = jvp(problem.simulate, x, direction)
    leaf = x.detach().requires_grad_()
    try:
        (backward,) = torch.autograd.grad(problem.simulate(leaf), leaf, probe)
    except RuntimeError as error:
        return f"the vjp fails: {str(error).splitlines()[0]}"
    left = (forward * probe).flatten(1).sum(1)
    right = (direction * backward).flatten(1).sum(1)
    scale = (forward.flatten(1).norm(dim=1) * probe.flatten(1).norm(dim=1)).clamp_min(1e-300)
    gap = float(((left - right).abs() / scale).max())
    if gap > 1e-8:
        return (
            f"the vjp is not the adjoint of the jvp: they differ by {gap:.2g} (relative); "
            "one of the two is wrong"
        )
    return None
