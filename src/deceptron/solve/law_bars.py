"""Standard deviations of answers that a law gave, and of what is left open between laws.

The law that a row took has a posterior: that of its own linearisation where its subspace was all of
space, else the one tabled for such data. About its start, what the start may have been off by is
added where the data have not decided: in the share of the law's variance that they leave. A row of
the start's law errs as validation rows did. Data that are left unexplained widen bars by that ratio
(the Birge ratio), up to what the family allows.

Where the odds leave the family open beside the kind that a row was answered by, a bar is that of
the mixture of both: what data hide differs from law to law, and no run can tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.geometry.bars import NORMAL_90
from deceptron.geometry.noise_aware import Covariance
from deceptron.geometry.posterior import widened, widest
from deceptron.laws.beliefs import Beliefs
from deceptron.laws.law import Laws
from deceptron.laws.odds import FAMILY
from deceptron.solve.descents.posterior import BY_START
from deceptron.solve.outcome import Outcome
from deceptron.solve.plan import Plan
from deceptron.solve.rows import RowData

# What an interval of so many deviations holds of a normal law.
HELD = math.erf(NORMAL_90 / 2**0.5)
# Halvings of what lies between two deviations: to round-off.
BISECTIONS = 40
# Odds of the family below which its law widens no bar by a percent.
LEAST_OPEN = 1e-4


@dataclass(frozen=True, eq=False)
class LawBars(RowData):
    """See the module's text.

    ``ratio`` is the residual over the level that counts as explained, ``seen`` the information of
    the sensors that a row has, 1 with all of them at the noise of the tables; ``spread`` is the
    row's own posterior spread, without columns where it is not known.
    """

    beliefs: Beliefs
    rule: Int[Tensor, " B"]  # -1 at the start
    kind: Int[Tensor, " B"]
    family: Float[Tensor, " B"]
    family_shape: Int[Tensor, " B"]
    family_size: Int[Tensor, " B"]
    shape: Int[Tensor, " B"]
    size: Int[Tensor, " B"]
    noise: Float[Tensor, " B"]
    ratio: Float[Tensor, " B"]
    seen: Float[Tensor, " B"]
    spread: Float[Tensor, "B ?n"]
    widest: Float[Tensor, "B n"]

    @staticmethod
    def of(plan: Plan, outcome: Outcome, prior: Covariance) -> LawBars:
        """Of all rows of a run."""
        assert plan.beliefs is not None
        notes = outcome.notes
        weight = plan.objective.whiten(torch.ones_like(plan.target))
        return LawBars(
            beliefs=plan.beliefs,
            rule=outcome.rule,
            noise=notes["noise"].double().clamp_min(1.0),
            ratio=plan.objective.over_level(outcome.residual).double(),
            seen=(weight * plan.table_noise.to(weight)).double().square().mean(1),
            spread=notes["spread"].double(),
            widest=widest(prior, outcome.x.reshape(-1, *plan.x_shape)).flatten(1).double(),
            **{
                name: notes[name]
                for name in ("kind", "family", "family_shape", "family_size", "shape", "size")
            },
        )

    @property
    def answered(self) -> Bool[Tensor, " B"]:
        """Rows that have left their start."""
        return self.rule >= 0

    def __call__(self, at_start: Float[Tensor, "B n"]) -> Float[Tensor, "B n"]:
        """Of all rows."""
        std = at_start.double().clone()
        corrections, family, start = (
            self.beliefs.corrections,
            self.beliefs.family,
            self.beliefs.start,
        )
        by_start = self.rule == BY_START
        rows = (self.answered & (self.kind != FAMILY) & ~by_start).nonzero().flatten()
        if len(rows):
            mine = self.take(rows)
            share, after = mine._posterior(corrections)
            mixed = torch.hypot(after, share * std[rows])
            std[rows] = corrections.factor * mine._widened(after, mixed)
        rows = (self.answered & (self.kind == FAMILY)).nonzero().flatten()
        if len(rows) and family is not None:
            mine = self.take(rows)
            after = mine._posterior(family)[1]
            std[rows] = family.factor * mine._widened(after, after)
        rows = by_start.nonzero().flatten()
        if len(rows) and start is not None:
            mine = self.take(rows)
            # Calibrated with all sensors: fewer of them tell less.
            own = start.factor * start.std.to(std) * mine.seen.clamp(max=1.0).rsqrt()[:, None]
            std[rows] = mine._widened(own, own)
        rows = ((self.family > LEAST_OPEN) & (self.kind != FAMILY)).nonzero().flatten()
        if family is not None and family.tables is not None and len(rows):
            mine = self.take(rows)
            _, open_ = family.std(mine.family_shape, mine.family_size, mine.seen)
            open_ = family.factor * mine.noise[:, None] * open_
            std[rows] = _mixed(std[rows], open_, mine.family[:, None])
        return std

    def _posterior(self, laws: Laws) -> tuple[Float[Tensor, "k n"], Float[Tensor, "k n"]]:
        """Which share of a law's deviations the data leave, and what that is at the row's noise,
        which cannot leave more than there was.
        """
        if self.spread.shape[1]:
            size = laws.strengths(self.noise)[self.size].sqrt()[:, None] / laws.scale
            before, after = size * laws.spread.to(size)[self.shape], self.spread
        else:
            before, after = laws.std(self.shape, self.size, self.seen)
        louder = self.noise[:, None] * after
        return (after / before).clamp(max=1.0), torch.minimum(louder, torch.maximum(before, after))

    def _widened(
        self, own: Float[Tensor, "k n"], std: Float[Tensor, "k n"]
    ) -> Float[Tensor, "k n"]:
        wide = std * (self.ratio / self.noise).clamp_min(1.0)[:, None]
        return widened(own, wide, self.widest)

    def white_to_errors(self, white: Float[Tensor, "S n"]) -> Float[Tensor, "S B n"]:
        """Draws of unit variance whose components go together as those of each row's law do."""
        found = white.new_zeros(len(white), len(self.rule), white.shape[1])
        for laws, of_family in ((self.beliefs.corrections, False), (self.beliefs.family, True)):
            mine = (self.kind == FAMILY) == of_family
            for number in self.shape[mine].unique().tolist() if laws is not None else ():
                assert laws is not None
                rows = (mine & (self.shape == number)).nonzero().flatten()
                shape = laws.shapes[number]
                spread = shape.basis.diagonal(shape.spectrum[None].to(white.device))[0].sqrt()
                found[:, rows] = (shape.root(white) / spread)[:, None]
        return found


def _mixed(
    a: Float[Tensor, "k n"], b: Float[Tensor, "k n"], share: Float[Tensor, "k 1"]
) -> Float[Tensor, "k n"]:
    """The deviation whose 90% interval holds 90% of a mixture with this share of b: what is
    improbable makes tails, not bars.
    """
    least, most = torch.minimum(a, b), torch.maximum(a, b)
    for _ in range(BISECTIONS):
        middle = (least + most) / 2
        held = [torch.erf(NORMAL_90 / 2**0.5 * middle / part) for part in (a, b)]
        less = (1 - share) * held[0] + share * held[1] < HELD
        least, most = torch.where(less, middle, least), torch.where(less, most, middle)
    return (least + most) / 2
