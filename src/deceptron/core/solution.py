"""What a solve returns: the answers, how each row ended, what it cost and how it got there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

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

    ``f``, ``jvp`` and ``vjp`` are those of the forward map, with ``forward=`` the simulator; ``g``
    counts passes through the reverse map, its jvps included. ``surrogate`` counts f, jvp and vjp of
    the pair's f where ``forward=`` is another: surrogate steps, and derivatives that it lends.
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

    ``residual`` and ``loss`` hold the state after the iteration, ``step_norm`` and ``cosine`` are
    of the step alone: what shrinks an answer after its last one is not part of it. A row that
    stalls has a last entry with ``accepted`` False, which records its last rejected trial.
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

    ``shrunk`` marks the answers to which the pair's ``shrinkage`` was applied.
    """

    x: Float[Tensor, "B *x"]
    status: Int[Tensor, " B"]
    reason: Int[Tensor, " B"]
    iterations: Int[Tensor, " B"]
    residual: Float[Tensor, " B"]
    relative_residual: Float[Tensor, " B"]
    loss: Float[Tensor, " B"]
    cost: Cost
    shrunk: Bool[Tensor, " B"]
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
        """Draws from the approximate posterior about ``x``, clipped to the box: two jvps each."""
        return self._bars().sample(samples, generator=generator)

    @cached_property
    def std(self) -> Float[Tensor, "B *x"]:
        """Calibrated standard deviation of each component of ``x``, from 32 draws of fixed seed."""
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
                "error bars need a pair with g, noise_std > 0 and a prior that has variance and "
                "sqrt, as problem.prior has: dc.solve(pair, y, prior=..., noise_std=...). For "
                "answers from elsewhere use deceptron.geometry.Posterior"
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
            "loss": self.loss.cpu().numpy(),
            "shrunk": self.shrunk.cpu().numpy(),
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
        return (
            f"Solution({self.method}, x {tuple(self.x.shape)}: {counts}; "
            f"median iterations {iterations}, median residual {residual}; {self.seconds:.2g} s)"
        )


def _fixed() -> torch.Generator:
    """The same answers have the same bars."""
    return torch.Generator().manual_seed(0)
