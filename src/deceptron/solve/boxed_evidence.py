"""Which correction the data ask for where bounds hold some of its components.

What the evidence of all of space prefers is small and smooth where the truth is rough and held at
its bounds: a free correction explains the data by going beyond them, and one that may not go there
leaves most of the misfit. So rows whose likeliest correction leaves the box are weighed again, by
what corrections are worth that stay inside. With e the least in the box of
``|r - A e|^2 + |e|^2_K / t`` and F the components that no bound holds there, minus twice the
logarithm of the evidence, given those that one does, is that least value plus
``log det (A'A + K^-1 / t)_FF - log det (K^-1 / t)_FF``.

Not all shapes with all sizes, each a problem of its own: the sizes of the likeliest shape, then
the shapes of the best of those sizes, then the sizes around it.

On bent physics a linearisation may lead far beyond the bounds, and nothing inside explains its
residual. With the noise free that looks like noise. Such a row takes the likeliest correction of
all of space as far as the bounds allow, and is linearised anew there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from deceptron.core.corrections import FINENESS, SIZES, Corrections
from deceptron.solve.boxed import least_in_box
from deceptron.solve.evidence import Chosen, Quadratics, misfit, spread_of
from deceptron.solve.rows import RowData

# More noise than without bounds, by this factor, is no noise: 95% of the rows of ``python -m
# benchmarks bounds`` stay below 1.2, half of those of y = x^2 from zero are above 4.
BENT = 1.5


def choose_in_box(
    corrections: Corrections,
    quadratics: Quadratics,
    chosen: Chosen,
    *,
    low: Float[Tensor, "B n"],
    high: Float[Tensor, "B n"],
    count: Float[Tensor, " B"],
    free_noise: bool,
) -> Chosen:
    """``chosen`` with rows that leave the box weighed again. The span must be the whole space,
    in the coordinates of x; the bounds are those of the correction.
    """
    outside = ((chosen.z < low) | (chosen.z > high)) & chosen.z.isfinite()
    rows = outside.any(1).nonzero().flatten()
    if len(rows) == 0:
        return chosen
    problem = _Boxed(
        corrections, quadratics.take(rows), low[rows], high[rows], count[rows], free_noise
    )
    member = chosen.member[rows]
    best = last = problem.weigh(member, torch.zeros_like(member), torch.zeros_like(chosen.z[rows]))
    for mark in range(FINENESS, len(SIZES), FINENESS):
        # From one size to the next few components come to a bound or leave it.
        last = problem.weigh(member, torch.full_like(member, mark), last.z)
        best = best.or_better(last)
    first = best
    for shape in range(len(corrections.members)):
        other = problem.weigh(torch.full_like(member, shape), first.place, first.z)
        best = best.or_better(other)
    first = best
    for step in range(1 - FINENESS, FINENESS):
        around = (first.place + step).clamp(0, len(SIZES) - 1)
        best = best.or_better(problem.weigh(first.member, around, first.z))
    before = chosen.take(rows)
    sizes = torch.tensor(SIZES).to(best.z)
    again = before.changed(
        z=best.z,
        member=best.member,
        size=sizes[best.place],
        noise=best.noise,
        score=best.score,
    )
    if chosen.spread.shape[1]:
        again = again.changed(spread=problem.spread(best))
    place = (sizes - before.size[:, None]).abs().argmin(1)
    cut = before.changed(z=problem.weigh(before.member, place, best.z).z)
    return chosen.put(rows, again.where(best.noise <= BENT * before.noise, cut))


@dataclass(frozen=True)
class _Weighed(RowData):
    """A correction of each row: its shape, the place of its size, and minus twice the logarithm of
    its evidence.
    """

    member: Int[Tensor, " B"]
    place: Int[Tensor, " B"]
    z: Float[Tensor, "B n"]
    noise: Float[Tensor, " B"]
    score: Float[Tensor, " B"]

    def or_better(self, other: _Weighed) -> _Weighed:
        return other.where(other.score < self.score, self)


@dataclass(frozen=True)
class _Boxed:
    corrections: Corrections
    quadratics: Quadratics
    low: Float[Tensor, "B n"]
    high: Float[Tensor, "B n"]
    count: Float[Tensor, " B"]
    free_noise: bool

    def weigh(
        self, member: Int[Tensor, " B"], place: Int[Tensor, " B"], near: Float[Tensor, "B n"]
    ) -> _Weighed:
        """Corrections of these shapes and sizes, sought from ``near``."""
        quadratics = self.quadratics
        stiffness, t = self._prior(member, place)
        prior = stiffness / t[:, None, None]
        system = quadratics.hessian + prior
        z = least_in_box(system, quadratics.slope, self.low, self.high, near)
        curved = (system @ z[:, :, None])[:, :, 0]
        value = quadratics.square + (z * (curved - 2 * quadratics.slope)).sum(1)
        held = (z <= self.low) | (z >= self.high)
        determinant = _log_det(system, held) - _log_det(prior, held)
        cost, noise = misfit(value.clamp_min(0.0), self.count, self.free_noise)
        score = cost + determinant
        return _Weighed(member, place, z, noise, torch.where(score.isfinite(), score, torch.inf))

    def spread(self, best: _Weighed) -> Float[Tensor, "B n"]:
        stiffness, t = self._prior(best.member, best.place)
        factor = self.quadratics.minimise(stiffness, t[None])[2][0]
        return spread_of(self.quadratics, stiffness, t, factor)

    def _prior(self, member: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.arange(len(member), device=member.device)
        t = self.corrections.strengths(torch.ones_like(self.count))[place, rows]
        return self.quadratics.stiffness[member, rows], t


def _log_det(matrix: Float[Tensor, "B n n"], held: Tensor) -> Float[Tensor, " B"]:
    """Of the part that is not held."""
    free = (~held).to(matrix)
    part = matrix * free[:, :, None] * free[:, None, :] + torch.diag_embed(1 - free)
    scaling = Quadratics.scaling(part)
    part = part * scaling[:, :, None] * scaling[:, None, :]
    factor, failed = torch.linalg.cholesky_ex(part)
    found = 2 * (factor.diagonal(dim1=1, dim2=2).log() - scaling.log()).sum(1)
    return torch.where(failed == 0, found, torch.nan)
