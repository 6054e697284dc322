"""When a row is done: the rules a user can state, each decided row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.checks import check_range
from deceptron.core.errors import ConfigError
from deceptron.core.status import Reason
from deceptron.solve.methods import Method
from deceptron.solve.model import Point
from deceptron.solve.objective import LeastSquares
from deceptron.solve.protocols import Rule, Step
from deceptron.solve.rows import RowData, dot, norm

RUNNING = -1


@dataclass(frozen=True)
class Path(RowData):
    """What the step rule remembers: the largest |x| so far, and whether the last step was short."""

    largest_x: Float[Tensor, " B"]
    short: Bool[Tensor, " B"]


@dataclass(frozen=True)
class Stopping:
    """Thresholds; None switches a rule off. Residuals are RMS in normalised units.

    ``discrepancy`` ends a row that is explained.
    ``gradient_tolerance`` compares the projected gradient |x - P(x - grad)| with its start.
    ``progress`` gives a row up when a step lowers its misfit by less than this share: what f cannot
    explain in large steps it will not explain in small ones.

    A row is at a minimum if a step lowers its misfit by at most the share ``decrease_tolerance``
    and its local model has no more to offer (SMALL_DECREASE), if the step to the minimum of that
    model is at most the share ``step_tolerance`` of x (SMALL_STEP), or if |J'r| is at most
    ``decrease_tolerance`` |J| |r| (GRADIENT): the tests of MINPACK, of which none depends on the
    start. What the model would do counts, not what damping or a line search left of it. With 0 only
    what is below round-off ends a row.
    """

    tolerance: float | None = None
    relative_tolerance: float | None = None
    discrepancy: bool = False
    gradient_tolerance: float | None = None
    progress: float | None = None
    decrease_tolerance: float | None = None
    step_tolerance: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name != "discrepancy":
                check_range(field.name, value, low=0)

    @property
    def any_residual_rule(self) -> bool:
        """Whether the user asked for a residual."""
        rules = (self.tolerance, self.relative_tolerance)
        return self.discrepancy or any(rule is not None for rule in rules)

    def residual_rules(
        self,
        point: Point,
        residual: Float[Tensor, " B"],
        first: Float[Tensor, " B"],
    ) -> Iterator[Rule]:
        """Each rule that is on, with the rows that meet it; the first to fire names the reason."""
        if self.tolerance is not None:
            yield Reason.TOLERANCE, residual <= self.tolerance
        if self.discrepancy:
            yield Reason.DISCREPANCY, point.explained
        if self.relative_tolerance is not None:
            yield Reason.RELATIVE_TOLERANCE, residual <= self.relative_tolerance * first

    def drowned(
        self, step: Step, trials: Int[Tensor, " B"] | None, round_off: Float[Tensor, " B"]
    ) -> Bool[Tensor, " B"]:
        """Trials of which the model expects less than the misfit's round-off: whether they lower it
        is a toss of a coin, and a shorter one has even less to show.
        """
        attainable, _, telling = _left_to_gain(step, trials)
        lost = attainable <= round_off
        return lost if telling is None else lost & telling

    def at_minimum(
        self,
        before: Point,
        after: Point,
        step: Step,
        *,
        accepted: Bool[Tensor, " B"] | None,
        trials: Int[Tensor, " B"] | None,
        path: Path,
        drowned: Bool[Tensor, " B"],
        round_off: Float[Tensor, " B"],
    ) -> tuple[list[Rule], Path]:
        """SMALL_DECREASE and SMALL_STEP; ``after`` is where rows are, ``trials`` what the search
        had rejected before this one. None: all were accepted, none was rejected.

        A short step that still changes the misfit, but does not remove it, may be the way back to
        the floor of a valley: it takes a second one.
        """
        assert self.decrease_tolerance is not None
        assert self.step_tolerance is not None
        attainable, reach, telling = _left_to_gain(step, trials)
        few = self.decrease_tolerance * before.misfit
        actual = before.misfit - after.misfit
        predicted = step.proposal.predicted
        if predicted is not None and trials is not None:
            # Where a little less damping has just failed, the model is good for this step only,
            # if the step has shown, beyond round-off, that it is.
            needed = (trials > 0) & (trials <= 5) & (predicted > round_off)
            needed = needed & (actual >= 0.25 * predicted)
            attainable = torch.where(needed, predicted, attainable)
        small = (torch.maximum(attainable, actual) <= few) & (reach < torch.inf)
        if accepted is not None:
            small = torch.where(accepted, small, drowned)
        share = max(self.step_tolerance, torch.finfo(reach.dtype).eps)
        size = norm(after.x)
        largest_x = torch.maximum(path.largest_x, size)
        # The largest x that was met stands for the unit of x where the minimum is at zero; by
        # default share^1.5 is the precision.
        short = reach <= torch.add(share * size, largest_x, alpha=share**1.5)
        if telling is not None:
            short = short & telling
        settled = (actual <= few + round_off) | (after.misfit <= 0.01 * before.misfit)
        rules: list[Rule] = [
            (Reason.SMALL_DECREASE, small),
            (Reason.SMALL_STEP, short & (settled | path.short)),
        ]
        return rules, Path(largest_x, short)

    def flat(
        self, before: Point, after: Point, step: Step, objective: LeastSquares
    ) -> Float[Tensor, " B"]:
        """The gradient at which r, stacked with the prior's part, is orthogonal to J to within the
        tolerance: |J'r| <= tolerance |J| |r|, and r is no larger than the round-off of f.

        The step measures |J| from below: |J p| / |p|.
        """
        assert self.decrease_tolerance is not None
        moved = norm(objective.weigh(after.y - before.y))
        if objective.has_prior:
            square = objective.stiffness * dot(step.p, objective.metric(step.p))
            moved = torch.hypot(moved, square.sqrt())
        # A row that has not moved measures nothing, and its gradient has been judged before.
        stretch = moved / norm(step.p).clamp_min(torch.finfo(moved.dtype).tiny)
        error = 4 * torch.finfo(stretch.dtype).eps * norm(objective.weigh(after.y))
        tolerance = self.decrease_tolerance
        return stretch * (tolerance * (2 * after.misfit).sqrt() + (error if tolerance else 0.0))


def stationarity(
    method: Method,
    dtype: torch.dtype,
    gradient: float | None,
    decrease: float | None,
    step: float | None,
) -> dict[str, float | None]:
    """The tolerances by which rows of ``method`` are at a minimum, from what was asked for."""
    eps = float(torch.finfo(dtype).eps)
    rule = method.gradient_tolerance if gradient is None else gradient
    if not method.knows_minima:
        for name, asked in (("decrease_tolerance", decrease), ("step_tolerance", step)):
            if asked is not None:
                raise ConfigError(
                    f"{name} has no use in method {method.name!r}, whose steps do not tell how far "
                    f"a minimum is; got {asked}"
                )
        rule = eps**0.5 if rule is None else rule
        return {"gradient_tolerance": rule or None}
    default = eps ** (2 / 3) if gradient is None else 0.0
    return {
        "gradient_tolerance": rule or 0.0,  # a gradient of zero ends a row in any case
        "decrease_tolerance": default if decrease is None else decrease,
        "step_tolerance": default if step is None else step,
    }


def _left_to_gain(
    step: Step, trials: Int[Tensor, " B"] | None
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"], Bool[Tensor, " B"] | None]:
    """The decrease and the length of what the model would do, and where they tell something even
    if the trial was rejected; None: everywhere.
    """
    proposal = step.proposal
    if proposal.attainable is None or proposal.reach is None:
        # No model but the slope: half of it, unless backtracking has shortened the step. It tells
        # what drowns in round-off, but not how far the minimum is.
        unknown = torch.full_like(step.slope, torch.inf)
        return -0.5 * step.slope, unknown, None if trials is None else trials == 0
    return proposal.attainable, proposal.reach, None
