"""Which law the data of a row ask for: shape, size and noise by one score, then the answer.

With r what the linearised problem has to explain at a law's mean, in units of the noise, A the
Jacobian in those units and e ~ N(0, t K), minus twice the logarithm of the likelihood of r under
N(0, t A K A' + 1) is ``min_e |r - A e|^2 + |e|^2_K / t  +  log det (1 + t K^(1/2) A'A K^(1/2))``.
The minimum is taken in a span of directions q with images A q: it needs no product beyond those
that made the span. The second term comes from the table of the laws, or from the row itself where
the span is all of space. Noise larger than stated is allowed for as ``laws/noise.py`` has it, for
the same K and ratio of t to v^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.laws.law import Laws
from deceptron.laws.noise import priced


@dataclass(frozen=True)
class Quadratics:
    """``|r - A Q z|^2 + |Q z|^2_K / t`` in the coordinates z of a span, for any shape and t.

    ``stiffness`` is ``Q' K^-1 Q`` of each shape.
    """

    hessian: Float[Tensor, "B k k"]
    slope: Float[Tensor, "B k"]
    square: Float[Tensor, " B"]
    stiffness: Float[Tensor, "K B k k"]

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


@dataclass(frozen=True)
class Chosen:
    """The law of each row and its answer, in the coordinates of the span.

    ``size`` is a place among the sizes, ``noise`` is v, ``value`` the quadratic form. ``freedom``
    is how many numbers the data have decided, ``spread`` the deviation of each coordinate given
    them.
    """

    z: Float[Tensor, "B k"]
    shape: Int[Tensor, " B"]
    size: Int[Tensor, " B"]
    noise: Float[Tensor, " B"]
    value: Float[Tensor, " B"]
    freedom: Float[Tensor, " B"]
    spread: Float[Tensor, "B k"]


def choose(
    laws: Laws,
    quadratics: Quadratics,
    *,
    precision: Float[Tensor, " B"],
    count: Float[Tensor, " B"],
    loudest: Float[Tensor, " B"],
    told: bool,
    complete: bool,
    mass: Float[Tensor, "K S B"] | None = None,
) -> Chosen:
    """The shape and size of the least score for each row.

    ``precision`` is that of the row's data relative to the tables', ``count`` how many there are,
    ``told`` whether somebody stated their noise, ``loudest`` how
    many times that it may be. ``complete`` says that the span is all of space.
    ``mass`` is the logarithm of what each law has within the bounds, by which it is normalised.
    """
    strengths = laws.strengths(precision)
    rows = torch.arange(len(precision), device=precision.device)
    tabled = None if complete else laws.log_determinant(strengths[:, None] * precision)
    last = len(strengths) - 1
    marks = torch.arange(0, last + 1, laws.stride, device=rows.device)[:, None]
    around = torch.arange(1 - laws.stride, laws.stride, device=rows.device)[:, None]
    least = torch.full_like(precision, torch.inf, dtype=torch.float64)
    shape, size = torch.zeros_like(rows), torch.zeros_like(rows)
    for number in range(len(laws.shapes)):
        stiffness = quadratics.stiffness[number]
        places = marks.expand(-1, len(rows))
        for _ in range(1 if laws.stride == 1 else 2):
            t = strengths[places]
            _, value, factor = quadratics.minimise(stiffness, t)
            if tabled is not None:
                determinant = tabled[number].gather(0, places)
            else:
                determinant = _determinant(quadratics, stiffness, t, factor, laws, number)
            score = priced(value, count, loudest, told=told)[0] + determinant
            if mass is not None:
                score = score + 2 * mass[number].gather(0, places)
            score = torch.where(score.isfinite(), score, torch.inf)
            lowest, place = score.min(0)
            place = places[place, rows]
            better = lowest < least
            least = torch.where(better, lowest, least)
            shape, size = torch.where(better, number, shape), torch.where(better, place, size)
            places = (place + around).clamp(0, last)
    return fitted(laws, quadratics, shape, size, count=count, loudest=loudest, told=told)


def fitted(
    laws: Laws,
    quadratics: Quadratics,
    shape: Int[Tensor, " B"],
    size: Int[Tensor, " B"],
    *,
    count: Float[Tensor, " B"],
    loudest: Float[Tensor, " B"],
    told: bool,
) -> Chosen:
    """The answers of given shapes and sizes."""
    rows = torch.arange(len(shape), device=shape.device)
    t = laws.strengths(quadratics.square)[size]
    stiffness = quadratics.stiffness[shape, rows]
    z, value, factor = (part[0] for part in quadratics.minimise(stiffness, t[None]))
    noise = priced(value, count, loudest, told=told)[1]
    scaling = quadratics.scaling(quadratics.hessian + stiffness / t[:, None, None])
    inverse, _ = _inverse(factor)
    scaled = scaling[:, :, None] * quadratics.hessian * scaling[:, None, :]
    return Chosen(
        z=z,
        shape=shape,
        size=size,
        noise=noise,
        value=value,
        # The trace of (H + K^-1 / t)^-1 H.
        freedom=(inverse * scaled).sum((1, 2)),
        spread=inverse.diagonal(dim1=1, dim2=2).clamp_min(0.0).sqrt() * scaling,
    )


def _determinant(
    quadratics: Quadratics, stiffness: Tensor, t: Tensor, factor: Tensor, laws: Laws, number: int
) -> Float[Tensor, "S B"]:
    """``log det (H + K^-1 / t) - log det (K^-1 / t)``, the span being all of space."""
    spectrum = laws.shapes[number].spectrum.to(t)
    scaling = quadratics.scaling(quadratics.hessian + stiffness / t[:, :, None, None])
    both = 2 * (factor.diagonal(dim1=-2, dim2=-1).log() - scaling.log()).sum(-1)
    return both + len(spectrum) * t.log() + spectrum.log().sum()


def _inverse(factor: Float[Tensor, "B k k"]) -> tuple[Float[Tensor, "B k k"], Bool[Tensor, " B"]]:
    """``(L L')^-1``, and where it exists. Data that are far off the scale can make a factor
    singular or not finite; it counts as the identity then, and others do not suffer.
    """
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    sound = (diagonal > 0).all(-1) & factor.isfinite().all(-1).all(-1)
    usable = torch.where(sound[:, None, None], factor, torch.eye(factor.shape[-1]).to(factor))
    return torch.cholesky_inverse(usable), sound
