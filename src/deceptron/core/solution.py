"""What a solve returns: the answers, how each row ended, what it cost and how it got there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.errors import ConfigError, SolveFailed
from deceptron.core.status import Reason, Status
from deceptron.core.trust import Trust

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Cost:
    """Evaluations each row asked for; work done for its neighbours is not charged to it.

    Attributes:
        f: of the forward map, with ``forward=`` the simulator.
        g: passes through the reverse map, its jvps included.
        jvp: products of the forward map's Jacobian with a vector.
        vjp: products of its transpose with a vector.
        surrogate: f, jvp and vjp of the pair's f where ``forward=`` is another: surrogate steps,
            and derivatives that it lends.
        linear_steps: of inner linear solvers; what they evaluate is in ``jvp`` and ``vjp`` already.
    """

    f: Int[Tensor, " B"]
    g: Int[Tensor, " B"]
    jvp: Int[Tensor, " B"]
    vjp: Int[Tensor, " B"]
    surrogate: Int[Tensor, " B"]
    linear_steps: Int[Tensor, " B"]

    @property
    def evaluations(self) -> Int[Tensor, " B"]:
        """f, g, jvp and vjp counted alike, the surrogate's too."""
        return self.f + self.g + self.jvp + self.vjp + self.surrogate

    @property
    def forward(self) -> Int[Tensor, " B"]:
        """f, jvp and vjp: what the forward map was asked for, with ``forward=`` the simulator."""
        return self.f + self.jvp + self.vjp


@dataclass(frozen=True)
class History:
    """One entry per iteration and row; NaN, -1 or False where a row had already stopped.

    Attributes:
        residual: RMS residual after the iteration.
        loss: the objective after it.
        step_size: of the trial that ended it.
        step_norm: length of the step.
        cosine: of the angle between the step and the negative gradient.
        accepted: whether the step was taken; False in the last entry of a row that stalls, which
            records its last rejected trial.
        trials: how many steps were tried.
        rule: which rule proposed the step, a number of ``rules``.
        rules: the names of the rules of this method.
    """

    residual: Float[Tensor, "T B"]
    loss: Float[Tensor, "T B"]
    step_size: Float[Tensor, "T B"]
    step_norm: Float[Tensor, "T B"]
    cosine: Float[Tensor, "T B"]
    accepted: Bool[Tensor, "T B"]
    trials: Int[Tensor, "T B"]
    rule: Int[Tensor, "T B"]
    rules: tuple[str, ...]

    def rule_names(self, row: int) -> list[str]:
        """Which rule proposed each step of one row, in order."""
        return [self.rules[int(k)] for k in self.rule[:, row] if int(k) >= 0]

    def frame(self) -> pd.DataFrame:
        """Long format: a line per iteration of each row."""
        import pandas as pd

        iteration, row = (self.trials > 0).nonzero(as_tuple=True)
        columns: dict[str, object] = {
            "row": row.cpu().numpy(),
            "iteration": iteration.cpu().numpy(),
        }
        for field in fields(self):
            if field.name not in ("rule", "rules"):
                columns[field.name] = getattr(self, field.name)[iteration, row].cpu().numpy()
        columns["rule"] = [self.rules[k] for k in self.rule[iteration, row].tolist()]
        frame: pd.DataFrame = pd.DataFrame(columns)
        return frame.sort_values(["row", "iteration"], ignore_index=True)

    @staticmethod
    def joined(parts: Sequence[History | None]) -> History:
        """The rows of all parts; the shorter ones end earlier."""
        known = [part for part in parts if part is not None]
        length = max(len(part.residual) for part in known)
        blank = {"accepted": False, "trials": 0, "rule": -1}
        columns = {}
        for field in fields(History):
            if field.name == "rules":
                continue
            padded = []
            for part in known:
                value = getattr(part, field.name)
                room = (length - len(value), value.shape[1])
                rest = value.new_full(room, blank.get(field.name, float("nan")))
                padded.append(torch.cat([value, rest]))
            columns[field.name] = torch.cat(padded, 1)
        return History(**columns, rules=known[0].rules)


class ErrorBars(Protocol):
    """How far the answers may be off; worked out when somebody asks."""

    def sample(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "S B *x"]:
        """Draws about each answer."""

    def std(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "B *x"]:
        """Standard deviation of each component."""

    def interval(
        self, level: float, *, samples: int, generator: torch.Generator | None
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        """Lower and upper ends."""


@dataclass(frozen=True, repr=False)
class Solution:
    """The result of ``dc.solve``; every tensor has one entry per row of the observations.

    Attributes:
        x: the answers.
        status: a ``dc.Status`` each; its ``advice`` says what to do.
        reason: a finer ``Reason`` each; its ``words`` say what happened.
        iterations: accepted steps.
        residual: RMS of what is left, normalised units, each component by its noise where known.
        relative_residual: that over its value at the start.
        over_noise: RMS of what is left over the measurement noise; NaN where no noise is known.
        explained: whether that is within what 99% of pure noise stays below.
        rule: which rule made the last accepted step, -1 if there was none; see ``history.rules``.
        loss: the objective over the number of observed components.
        cost: evaluations.
        method: the name of the method.
        seconds: how long it took, all rows together.
        record: makes ``history``; None if switched off.
        error_bars: makes ``std``, ``interval``, ``posterior``; None if the pair knows too little.
        judge: makes ``trust``; None if the pair is not calibrated.
    """

    x: Float[Tensor, "B *x"]
    status: Int[Tensor, " B"]
    reason: Int[Tensor, " B"]
    iterations: Int[Tensor, " B"]
    residual: Float[Tensor, " B"]
    relative_residual: Float[Tensor, " B"]
    over_noise: Float[Tensor, " B"]
    explained: Bool[Tensor, " B"]
    rule: Int[Tensor, " B"]
    loss: Float[Tensor, " B"]
    cost: Cost
    method: str
    seconds: float
    record: Callable[[], History] | None = None
    error_bars: ErrorBars | None = None
    judge: Callable[[], Trust] | None = None

    @cached_property
    def history(self) -> History | None:
        """What each iteration of each row did; laid out on first use, None if switched off."""
        return None if self.record is None else self.record()

    @property
    def converged(self) -> Bool[Tensor, " B"]:
        """Mask of the rows that met a stopping rule."""
        return self.status == Status.CONVERGED

    def posterior(
        self, samples: int = 32, *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "S B *x"]:
        """Draws from the approximate posterior about ``x``, clipped to the box."""
        return self._bars().sample(samples, generator=generator)

    @cached_property
    def std(self) -> Float[Tensor, "B *x"]:
        """Calibrated standard deviation of each component of ``x``; the same for the same rows."""
        return self._bars().std(32, generator=_fixed())

    def interval(
        self, level: float = 0.9, *, samples: int = 32
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        """Ends of intervals that hold 90% of the components of data like the training data."""
        return self._bars().interval(level, samples=samples, generator=_fixed())

    @cached_property
    def trust(self) -> Trust:
        """Whether each observation looks like what the pair was trained on."""
        if self.judge is None:
            raise ConfigError("trust needs a calibrated pair, as dc.train and dc.load give it")
        return self.judge()

    def _bars(self) -> ErrorBars:
        if self.error_bars is None:
            raise ConfigError(
                "error bars need a calibrated pair, as dc.train and dc.load give it, or one with "
                "g, noise_std > 0 and a prior that has variance and sqrt, as problem.prior has: "
                "dc.solve(pair, y, prior=..., noise_std=...). For answers from elsewhere use "
                "deceptron.geometry.Posterior"
            )
        return self.error_bars

    def frame(self) -> pd.DataFrame:
        """A tidy table, a line per instance."""
        import pandas as pd

        columns: dict[str, object] = {
            "method": self.method,
            "status": [Status(k).name for k in self.status.tolist()],
            "reason": [Reason(k).name for k in self.reason.tolist()],
            "iterations": self.iterations.cpu().numpy(),
            "residual": self.residual.cpu().numpy(),
            "relative_residual": self.relative_residual.cpu().numpy(),
            "over_noise": self.over_noise.cpu().numpy(),
            "explained": self.explained.cpu().numpy(),
            "loss": self.loss.cpu().numpy(),
        }
        for field in fields(self.cost):
            columns[field.name] = getattr(self.cost, field.name).cpu().numpy()
        frame: pd.DataFrame = pd.DataFrame(columns)
        return frame.rename_axis("row")

    def raise_if_failed(self) -> Solution:
        """Return self when every row converged; else raise, naming rows and what to do."""
        if bool(self.converged.all()):
            return self
        lines = [f"{int((~self.converged).sum())} of {len(self.status)} rows did not converge."]
        for status in Status:
            rows = (self.status == status).nonzero().flatten().tolist()
            if status is not Status.CONVERGED and rows:
                shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
                lines.append(f"{status.name} ({len(rows)}; rows {shown}): {status.advice}")
        raise SolveFailed("\n".join(lines))

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{int((self.status == s).sum())} {s.name.lower().replace('_', ' ')}"
            for s in Status
            if bool((self.status == s).any())
        )
        finite = self.residual[self.residual.isfinite()]
        residual = (
            f"{finite.median():.3g} (max {finite.max():.3g})" if len(finite) else "none finite"
        )
        iterations = torch.median(self.iterations).item()
        known = self.over_noise.isfinite()
        share = "noise not known"
        if bool(known.any()):
            part = float(self.explained[known].double().mean())
            typical = float(self.over_noise[known].median())
            share = f"{part:.0%} explained to the noise (median residual {typical:.2g} times it)"
        return (
            f"Solution({self.method}, x {tuple(self.x.shape)}: {share}; {counts}; "
            f"median iterations {iterations}, median residual {residual}; {self.seconds:.2g} s)"
        )

    def __len__(self) -> int:
        return len(self.x)

    @staticmethod
    def joined(parts: Sequence[Solution]) -> Solution:
        """The rows of all parts, in order; they come from one call."""
        first = parts[0]
        if len(parts) == 1:
            return first
        rows: dict[str, Any] = {
            field.name: torch.cat([getattr(part, field.name) for part in parts])
            for field in fields(first)
            if isinstance(getattr(first, field.name), Tensor)
        }
        cost = {
            field.name: torch.cat([getattr(part.cost, field.name) for part in parts])
            for field in fields(Cost)
        }
        bars = [part.error_bars for part in parts if part.error_bars is not None]
        judged = all(part.judge is not None for part in parts)
        recorded = all(part.record is not None for part in parts)
        return replace(
            first,
            **rows,
            cost=Cost(**cost),
            seconds=sum(part.seconds for part in parts),
            record=(lambda: History.joined([p.history for p in parts])) if recorded else None,
            error_bars=_JoinedBars(bars) if len(bars) == len(parts) else None,
            judge=(lambda: Trust.joined([p.trust for p in parts])) if judged else None,
        )


@dataclass(frozen=True)
class _JoinedBars:
    """The bars of rows that were solved in parts."""

    parts: Sequence[ErrorBars]

    def sample(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "S B *x"]:
        return torch.cat([p.sample(samples, generator=g) for p, g in self._alike(generator)], 1)

    def std(self, samples: int, *, generator: torch.Generator | None) -> Float[Tensor, "B *x"]:
        return torch.cat([p.std(samples, generator=g) for p, g in self._alike(generator)])

    def interval(
        self, level: float, *, samples: int, generator: torch.Generator | None
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        ends = [p.interval(level, samples=samples, generator=g) for p, g in self._alike(generator)]
        return torch.cat([low for low, _ in ends]), torch.cat([high for _, high in ends])

    def _alike(
        self, generator: torch.Generator | None
    ) -> Iterator[tuple[ErrorBars, torch.Generator]]:
        """Every part with the same random numbers, as if all rows were in one."""
        if generator is None:
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        state = generator.get_state()
        for part in self.parts:
            generator.set_state(state)
            yield part, generator


def _fixed() -> torch.Generator:
    """The same answers have the same bars."""
    return torch.Generator().manual_seed(0)
