"""What a solve returns: the answers, how each row ended, what it cost and how it got there."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core import html
from deceptron.core.arrays import no_autocast
from deceptron.core.error_bars import ErrorBars, JoinedBars, NoRows
from deceptron.core.errors import ConfigError, SolveFailed
from deceptron.core.history import Cost, History
from deceptron.core.selecting import chosen_rows
from deceptron.core.status import Reason, Status
from deceptron.core.trust import Trust

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# Draws that a deviation is estimated from; the calibration is for so many.
DRAWS = 32


@dataclass(frozen=True, repr=False)
class Solution:
    """The result of ``dc.solve``; every tensor has one entry per row of the observations.

    Attributes:
        x: the answers, in the units of the latents.
        status: how each row ended, a number of ``dc.Status``; its ``advice`` says what to do.
        reason: why, a number of the finer ``dc.Reason``; its ``words`` say what happened.
        iterations: steps that were taken.
        residual: root mean square of prediction minus data, in normalised units; where the noise is
            known, each component counts by its noise.
        relative_residual: the residual over that of the start.
        over_noise: root mean square of prediction minus data over the measurement noise: about 1
            where the answer agrees with the data; NaN where no noise is known.
        explained: whether ``over_noise`` is within what 99% of pure noise stays below.
        rule: which rule made the last step, an index into ``history.rules``; -1 without a step.
        loss: the objective over the number of observed components.
        cost: evaluations of the simulator and the networks, row by row.
        method: the name of the method.
        seconds: wall time of all rows together.
        record: makes ``history``; None if switched off.
        error_bars: makes ``std``, ``interval`` and ``posterior``; None if the pair has no
            calibration.
        judge: makes ``trust``; None if the pair has no calibration.
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

    @no_autocast()
    def posterior(
        self, samples: int = DRAWS, *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "S B *x"]:
        """Plausible latents for each row: draws from the approximate posterior about ``x``.

        Args:
            samples: how many for each row.
            generator: of the draws; without one they differ from call to call. All rows share their
                random numbers.

        Returns:
            ``(samples, *x.shape)``, inside the bounds.
        """
        return self._bars().sample(samples, generator=generator)

    @cached_property
    @no_autocast()
    def std(self) -> Float[Tensor, "B *x"]:
        """Calibrated standard deviation of each component of ``x``.

        Worked out when first asked for, and kept. The same rows have the same values.
        """
        return self._bars().std(DRAWS, generator=_fixed())

    @no_autocast()
    def interval(
        self, level: float = 0.9, *, samples: int = DRAWS
    ) -> tuple[Float[Tensor, "B *x"], Float[Tensor, "B *x"]]:
        """Ends ``(low, high)`` of an interval for each component of ``x``, inside the bounds (of a
        solution from a file, which does not know them, not cut off there).

        Args:
            level: the share of the true components that the intervals hold, on average, for data
                like the training data. They were calibrated at 0.9.
            samples: draws that the spread is estimated from; the calibration is for 32.
        """
        bars = self._bars()
        std = self.std if samples == DRAWS else bars.std(samples, generator=_fixed())
        return bars.ends(std, level, samples=samples)

    @cached_property
    @no_autocast()
    def trust(self) -> Trust:
        """Whether each observation looks like what the pair was trained on; see ``dc.trust``."""
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
        """A pandas table, a line per row: how it ended, its residual, its trust, what it cost.

        ``trust`` is the score, above 1 where a row does not look like the training data; there is
        none without a calibrated pair.
        """
        import pandas as pd

        columns: dict[str, object] = {
            "method": self.method,
            "status": [Status(k).name for k in self.status.tolist()],
            "reason": [Reason(k).name for k in self.reason.tolist()],
        }
        names = ("iterations", "residual", "relative_residual", "over_noise", "explained", "loss")
        columns |= {name: getattr(self, name).cpu().numpy() for name in names}
        if self.judge is not None:
            columns["trust"] = self.trust.score.cpu().numpy()
        columns |= {f.name: getattr(self.cost, f.name).cpu().numpy() for f in fields(self.cost)}
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

    def plot(self, truth: Any = None, *, rows: Any = None, kind: str = "answers") -> Figure:
        """A picture, as a matplotlib Figure; ``.savefig(path)`` writes it to a file.

        Args:
            truth: true latents, one for each row, drawn beside the answers.
            rows: which, as ``solution[rows]`` takes them; by default the first few.
            kind: ``"answers"`` with their 90% intervals; ``"residual"``, what is left over the
                noise, of all rows unless told which; ``"history"``, the same by iteration.
        """
        from deceptron.plot import plot_solution

        return plot_solution(self, truth=truth, rows=rows, kind=kind)

    def save(self, path: str | os.PathLike[str], *, error_bars: bool = True) -> None:
        """Write ``.npz``, ``.zarr`` or ``.h5``: the columns of ``dc.solve_file``, and more.

        Draws and history stay behind. ``dc.Solution.load`` reads it, and what ``dc.solve_file`` and
        ``deceptron solve`` wrote.
        """
        from deceptron.solve.saved import save

        save(self, path, error_bars=error_bars)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Solution:
        """What ``save``, ``dc.solve_file`` or ``deceptron solve`` wrote, whole in memory."""
        from deceptron.solve.saved import load

        return load(path)

    def __getitem__(self, rows: Any) -> Solution:
        """Some of the rows: ``solution[3]``, ``solution[3:5]``, ``solution[solution.converged]``.

        They keep their error bars, trust and history. ``seconds`` is still that of all rows.
        """
        index = chosen_rows(rows, len(self))
        here = index.to(self.x.device)
        columns: dict[str, Any] = {
            field.name: getattr(self, field.name)[here]
            for field in fields(self)
            if isinstance(getattr(self, field.name), Tensor)
        }
        bars = self.error_bars
        if bars is not None:
            bars = bars.at(here) if len(index) else NoRows(columns["x"])
        return replace(
            self,
            **columns,
            cost=self.cost.at(here),
            record=None if self.record is None else lambda: cast(History, self.history).at(here),
            error_bars=bars,
            judge=None if self.judge is None else lambda: self.trust.at(here),
        )

    def __getstate__(self) -> dict[str, Any]:
        """What was to be worked out later and cannot travel is worked out now."""
        state = dict(self.__dict__)
        if self.record is not None:
            state["record"] = _Kept(self.history)
        if self.judge is not None:
            state["judge"] = _Kept(self.trust)
        return state

    def __repr__(self) -> str:
        title = f"Solution by {self.method}, x {tuple(self.x.shape)}"
        if not len(self):
            return f"{title}: no rows"
        counts = ", ".join(
            f"{int((self.status == s).sum())} {s.name.lower().replace('_', ' ')}"
            for s in Status
            if bool((self.status == s).any())
        )
        return f"{title}\n  {self._share()}\n  {counts}; {self._work()}"

    def _repr_html_(self) -> str:
        """For notebooks: how the rows ended and why."""
        title = f"Solution by {self.method}: {len(self)} rows of shape {tuple(self.x.shape[1:])}"
        if not len(self):
            return html.facts(title, {"rows": "none"})
        ends = {}
        for status in Status:
            words = [
                f"{int((self.reason == reason).sum())} {reason.words}"
                for reason in Reason
                if reason.status == status and bool((self.reason == reason).any())
            ]
            if words:
                ends[status.name.lower().replace("_", " ")] = "; ".join(words)
        lines = {
            "data": self._share(),
            **ends,
            "residual": f"median {_typical(self.residual)}, normalised units",
            "work": self._work(),
            "error bars": "none: the pair is not calibrated"
            if self.error_bars is None
            else ".std, .interval(), .posterior()",
        }
        if "trust" in self.__dict__:
            lines["trust"] = f"{int(self.trust.flag.sum())} of {len(self)} rows flagged"
        return html.facts(title, lines)

    def _work(self) -> str:
        steps, runs = torch.median(self.iterations), torch.median(self.cost.forward)
        words = f"median iterations {steps.item()}, forward runs {runs.item()}"
        # A file solve does not note the time of its rows.
        return words if math.isnan(self.seconds) else f"{words}; {html.brief(self.seconds)} s"

    def _share(self) -> str:
        known = self.over_noise.isfinite()
        if not bool(self.residual.isfinite().any()):
            return "no row has a prediction to compare with its data"
        if not bool(known.any()):
            return f"noise not known, median residual {_typical(self.residual)}"
        part = float(self.explained.double().mean())
        typical = float(self.over_noise[known].median())
        share = f"{part:.0%} explained to the noise"
        return f"{share}, median residual {html.brief(typical)} times the noise"

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
            error_bars=JoinedBars(bars) if len(bars) == len(parts) else None,
            judge=(lambda: Trust.joined([p.trust for p in parts])) if judged else None,
        )


def _fixed() -> torch.Generator:
    """The same answers have the same bars."""
    return torch.Generator().manual_seed(0)


def _typical(residual: Float[Tensor, " B"]) -> str:
    finite = residual[residual.isfinite()]
    return f"{finite.median():.3g} (max {finite.max():.3g})" if len(finite) else "none finite"


T = TypeVar("T")


@dataclass(frozen=True)
class _Kept(Generic[T]):
    """What is known already, where a function is expected that works it out."""

    value: T

    def __call__(self) -> T:
        return self.value
