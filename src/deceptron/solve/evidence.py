"""Which correction the data of a row ask for: its shape and size by the evidence, then its mean.

With r the residual in units of the noise, A the Jacobian in those units and e ~ N(0, t K), the
evidence of (K, t) is the likelihood of r under N(0, t A K A' + 1), and minus twice its logarithm is
``min_e |r - A e|^2 + |e|^2_K / t  +  log det (1 + t K^(1/2) A'A K^(1/2))``. The minimum is taken in
a span of directions q with images A q: it needs no product beyond those that made the span. The
second term comes from a table, or from the row itself where the span is the whole space.

Where nobody has told the noise, it may be larger than the pair was trained for by a factor v >= 1:
the same data then cost ``min / v^2 + m log v^2``, least at ``v^2 = min / m``, for the same K and
ratio of t to v^2. What no plausible correction explains is then noise. Where a correction looks
like noise the data cannot tell them apart, and what was said of the noise is believed: v has the
prior ``v^-PREFERENCE``, which a handful of data outweigh where they can.

One row in a hundred misses the limit by chance, and the likeliest correction of such a row is too
large: of many that explain nothing it looks best. A pair knows the odds of that on data like its
training data. The correction is multiplied by the probability, given those odds and the evidence,
that there is something to correct.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.corrections import FINENESS, SIZES, Corrections, Member
from deceptron.solve.rows import RowData

# With 10 a correction outweighs noise of ten times the stated one where sensors are few: errors of
# 1.3 to 1.5 times that of g(y) on three problems with 6 to 20 of them. The seven are the same.
PREFERENCE = 3.0


@dataclass(frozen=True)
class Chosen(RowData):
    """The correction of each row in the coordinates of its span, and what it rests on.

    ``noise`` is v, ``spread`` the standard deviation of each coordinate where the span is the whole
    space (else it has no columns). ``score`` is minus twice the logarithm of the evidence, and
    ``nothing`` the same of no correction at all.
    """

    z: Float[Tensor, "B k"]
    member: Int[Tensor, " B"]
    size: Float[Tensor, " B"]
    noise: Float[Tensor, " B"]
    spread: Float[Tensor, "B ?k"]
    score: Float[Tensor, " B"]
    nothing: Float[Tensor, " B"]

    def shared(self, chance: float) -> Float[Tensor, "B k"]:
        """As much of the correction as is likely not to be chance; ``chance`` are the log odds that
        there is nothing to correct.
        """
        if chance == -math.inf:
            return self.z
        return torch.sigmoid((self.nothing - self.score) / 2 - chance)[:, None] * self.z


@dataclass(frozen=True)
class Quadratics:
    """``|r - A Q z|^2 + |Q z|^2_K / t`` in the coordinates z of a span, for any member and t.

    ``stiffness`` is ``Q' K^-1 Q`` of each member.
    """

    hessian: Float[Tensor, "B k k"]
    slope: Float[Tensor, "B k"]
    square: Float[Tensor, " B"]
    stiffness: Float[Tensor, "M B k k"]

    def take(self, rows: Int[Tensor, " r"]) -> Quadratics:
        """Of some rows."""
        return Quadratics(
            self.hessian[rows], self.slope[rows], self.square[rows], self.stiffness[:, rows]
        )

    def minimise(
        self, stiffness: Float[Tensor, "B k k"], t: Float[Tensor, "S B"]
    ) -> tuple[Float[Tensor, "S B k"], Float[Tensor, "S B"], Float[Tensor, "S B k k"]]:
        """Where the least value is, that value, and the Cholesky factor of each system.

        The systems are scaled to a unit diagonal first (a direction that is zero gets one), and
        the factor is of those; ``scaling`` undoes it.
        """
        system = stiffness / t[:, :, None, None]
        system += self.hessian
        scaling = self.scaling(system)
        system *= scaling[..., :, None]
        system *= scaling[..., None, :]
        # Ten times round-off; directions that are this dependent tell nothing apart.
        system.diagonal(dim1=-2, dim2=-1).add_(1e-13)
        factor, failed = torch.linalg.cholesky_ex(system)
        right = (scaling * self.slope)[..., None]
        z = torch.cholesky_solve(right, factor)[..., 0] * scaling
        value = self.square - (z * self.slope).sum(-1)
        usable = (failed == 0) & z.isfinite().all(-1)
        z = torch.where(usable[..., None], z, 0.0)
        return z, torch.where(usable, value.clamp_min(0.0), torch.inf), factor

    @staticmethod
    def scaling(system: Float[Tensor, "*B k k"]) -> Float[Tensor, "*B k"]:
        """One over the root of the diagonal."""
        diagonal = system.diagonal(dim1=-2, dim2=-1)
        return torch.where(diagonal > 0, diagonal, 1.0).rsqrt()


def choose(
    corrections: Corrections,
    quadratics: Quadratics,
    *,
    precision: Float[Tensor, " B"],
    count: Float[Tensor, " B"],
    free_noise: bool,
    complete: bool,
) -> tuple[Chosen, Float[Tensor, "B k"] | None]:
    """The (K, t) of the largest evidence for each row, and the fit that a regression starts from.

    ``precision`` is that of the row's data relative to the table's, ``count`` how many there are.
    ``complete`` says that the span is the whole space.
    """
    t = corrections.strengths(torch.ones_like(precision))
    determinants = None
    if not complete:
        determinants = corrections.log_determinant(t * precision)
    regression, guess = corrections.regression, None
    best: Chosen | None = None
    nothing, _ = misfit(quadratics.square, count, free_noise)
    sizes = torch.tensor(SIZES, dtype=nothing.dtype, device=nothing.device)
    rows = torch.arange(len(nothing), device=nothing.device)
    marks = torch.arange(0, len(SIZES), FINENESS, device=nothing.device)[:, None]
    around = torch.arange(1 - FINENESS, FINENESS, device=nothing.device)[:, None]
    for number, member in enumerate(corrections.members):
        stiffness = quadratics.stiffness[number]
        if regression is not None and regression.member == number:
            size = SIZES.index(regression.size)
            guess = quadratics.minimise(stiffness, t[size : size + 1])[0][0]
        # The score is smooth in the size: its least value is next to the best of the marks.
        places = marks.expand(-1, len(rows))
        for _ in range(2):
            strength = t.gather(0, places)
            z, value, factor = quadratics.minimise(stiffness, strength)
            if determinants is not None:
                determinant = determinants[number].gather(0, places)
            else:
                determinant = _determinant(quadratics, stiffness, strength, factor, member)
            cost, noise = misfit(value, count, free_noise)
            score = cost + determinant
            score = torch.where(score.isfinite(), score, torch.inf)
            lowest, place = score.min(0)
            spread = z.new_empty(len(place), 0)
            if complete:
                spread = spread_of(
                    quadratics, stiffness, strength[place, rows], factor[place, rows]
                )
            found = Chosen(
                z=z[place, rows],
                member=torch.full_like(place, number),
                size=sizes[places[place, rows]],
                noise=noise[place, rows],
                spread=spread,
                score=lowest,
                nothing=nothing,
            )
            best = found if best is None else found.where(lowest < best.score, best)
            places = (places[place, rows] + around).clamp(0, len(SIZES) - 1)
    assert best is not None
    return best, guess


def misfit(
    value: Float[Tensor, "*S B"], count: Float[Tensor, " B"], free_noise: bool
) -> tuple[Float[Tensor, "*S B"], Float[Tensor, "*S B"]]:
    """What these squares cost at the likeliest noise, and that noise."""
    if not free_noise:
        return value, torch.ones_like(value)
    noise = (value / count).clamp_min(1.0).sqrt()
    return value / noise.square() + 2 * (count + PREFERENCE) * noise.log(), noise


def _determinant(
    quadratics: Quadratics, stiffness: Tensor, t: Tensor, factor: Tensor, member: Member
) -> Float[Tensor, "S B"]:
    """``log det (H + K^-1 / t) - log det (K^-1 / t)``, the span being the whole space."""
    scaling = quadratics.scaling(quadratics.hessian + stiffness / t[:, :, None, None])
    both = 2 * (factor.diagonal(dim1=-2, dim2=-1).log() - scaling.log()).sum(-1)
    n = len(member.spectrum)
    return both + n * t.log() + member.spectrum.to(t).log().sum()


def spread_of(
    quadratics: Quadratics, stiffness: Tensor, t: Tensor, factor: Tensor
) -> Float[Tensor, "B k"]:
    """Standard deviations under the posterior whose systems have these factors."""
    scaling = quadratics.scaling(quadratics.hessian + stiffness / t[:, None, None])
    return posterior_spread(factor)[0] * scaling


def posterior_spread(
    factor: Float[Tensor, "B k k"],
) -> tuple[Float[Tensor, "B k"], Bool[Tensor, " B"]]:
    """Roots of the diagonal of (L L')^-1, and where it exists. Data that are far off the scale can
    make a factor singular or not finite; it counts as the identity then, and others do not suffer.
    """
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    sound = (diagonal > 0).all(-1) & factor.isfinite().all(-1).all(-1)
    usable = torch.where(sound[:, None, None], factor, torch.eye(factor.shape[-1]).to(factor))
    variances = torch.cholesky_inverse(usable).diagonal(dim1=-2, dim2=-1)
    return variances.clamp_min(0.0).sqrt(), sound
