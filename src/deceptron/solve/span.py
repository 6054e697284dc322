"""The best step in a span of learned directions, from products J d alone: no adjoint is needed.

Generalised conjugate residuals with the learned inverse as preconditioner (Eisenstat, Elman and
Schultz 1983): each direction is what g makes of the residual that the linearised problem still has,
``-J_g(y_t) (r + J d)``, made conjugate to those before it, and the quadratic model of the objective
is minimised over all of them. An exact inverse needs one direction; a rough one is corrected by the
next. Every step lies in the range of J_g, so it looks like what g was trained on, which regularises
where the data do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.checks import check_count, check_range
from deceptron.solve.model import Model, Point
from deceptron.solve.objective import LeastSquares
from deceptron.solve.rows import RowData, dot, norm

# What a descent makes of the residual that is left: (model, point, residual) -> direction.
Pull = Callable[[Model, Point, Float[Tensor, "B m"]], Float[Tensor, "B n"]]


@dataclass(frozen=True)
class Span(RowData):
    """A step d, its image J d, and the misfit that the quadratic model has there.

    ``scale`` multiplies the direction if there is only one, else 0; ``count`` says how many there
    are, ``kind`` whose the last one was. A row without a usable direction stays where it is.
    """

    d: Float[Tensor, "B n"]
    image: Float[Tensor, "B m"]
    misfit: Float[Tensor, " B"]
    scale: Float[Tensor, " B"]
    count: Int[Tensor, " B"]
    kind: Int[Tensor, " B"]

    @staticmethod
    def empty(point: Point) -> Span:
        """No direction yet: no step."""
        zero = torch.zeros_like(point.misfit)
        none = torch.zeros_like(zero, dtype=torch.int64)
        return Span(
            torch.zeros_like(point.x), torch.zeros_like(point.r), point.misfit, zero, none, none
        )

    def left(self, point: Point) -> Float[Tensor, " B"]:
        """Share of the residual that the quadratic model keeps; 1 without a direction."""
        return (self.misfit / point.misfit).clamp(0.0, 1.0).sqrt()


def learned_pull(model: Model, point: Point, residual: Tensor) -> Float[Tensor, "B n"]:
    """``-J_g(y_t) residual``."""
    return -model.g_jvp(point.y, residual)


def feasible(
    x: Float[Tensor, "B n"], step: Float[Tensor, "B n"], box: Box | None
) -> Float[Tensor, "B n"]:
    """The step that ends in the box; every shorter one does too. Not finite: no step."""
    step = torch.where(step.isfinite().all(1)[:, None], step, 0.0)
    return step if box is None else box.project(x + step) - x


@dataclass(frozen=True)
class Directions:
    """How many directions a learned step may combine.

    Attributes:
        most: at most so many.
        pays: one that lowers the quadratic model by less than this share is the last of its kind.
        enough: once no more than this share of the residual is left, no further one is tried.
    """

    most: int = 12
    pays: float = 0.02
    enough: float = 0.1

    def __post_init__(self) -> None:
        check_count("Directions(most=...)", self.most)
        check_range("Directions(pays=...)", self.pays, low=0, high=1)
        check_range("Directions(enough=...)", self.enough, low=0, high=1)

    def span(
        self,
        model: Model,
        point: Point,
        box: Box | None,
        pulls: Sequence[Pull],
        asking: Bool[Tensor, " B"],
    ) -> Span:
        """Of the rows that ask: pulled by the first of ``pulls`` until it no longer pays, then by
        the next; a row is done at the noise. Rows that do not ask cost nothing.
        """
        span = Span.empty(point)
        kind = torch.where(asking, 0, len(pulls))
        basis: list[tuple[Tensor, Tensor]] = []
        for _ in range(self.most):
            rows = (kind < len(pulls)).nonzero().flatten()
            if len(rows) == 0:
                break
            sub, here, so_far = model.at(rows), point.take(rows), span.take(rows)
            objective = sub.objective
            pulled = _pulled(sub, here, so_far, pulls, kind[rows])
            d = feasible(here.x, pulled, box)
            q = sub.image(here, d)
            descends = _slope(objective, here, so_far, d, q) < 0
            smallest = _smallest(objective, here, (d, q))
            for old_d, old_q in basis:
                shared = _inner(objective, (old_d[rows], old_q[rows]), (d, q))[:, None]
                d, q = d - shared * old_d[rows], q - shared * old_q[rows]
            size = _inner(objective, (d, q), (d, q)).sqrt()
            usable = descends & (size > smallest) & size.isfinite()
            size = torch.where(usable, size, 1.0)[:, None]
            d = torch.where(usable[:, None], d / size, 0.0)
            q = torch.where(usable[:, None], q / size, 0.0)
            basis.append((_spread(point.x, rows, d), _spread(point.r, rows, q)))
            scale = -_slope(objective, here, so_far, d, q)
            fall = 0.5 * scale.square()
            longer = Span(
                d=so_far.d + scale[:, None] * d,
                image=so_far.image + scale[:, None] * q,
                misfit=so_far.misfit - fall,
                scale=torch.where(so_far.count == 0, scale / size[:, 0], 0.0),
                count=so_far.count + usable,
                kind=torch.where(usable, kind[rows], so_far.kind),
            ).where(usable, so_far)
            span = span.put(rows, longer)
            pays_too_little = ~usable | (fall < self.pays * so_far.misfit)
            kind[rows] += pays_too_little
            done = objective.only_noise(objective.weigh(here.r + longer.image))
            done = done | (longer.left(here) <= self.enough)
            kind[rows[done]] = len(pulls)
        return span


def _pulled(
    model: Model, point: Point, span: Span, pulls: Sequence[Pull], kind: Int[Tensor, " B"]
) -> Float[Tensor, "B n"]:
    pulled = torch.zeros_like(point.x)
    for number, pull in enumerate(pulls):
        rows = (kind == number).nonzero().flatten()
        if len(rows):
            left = point.r[rows] + span.image[rows]
            pulled[rows] = pull(model.at(rows), point.take(rows), left)
    return pulled


def _smallest(
    objective: LeastSquares, point: Point, direction: tuple[Tensor, Tensor]
) -> Float[Tensor, " B"]:
    """What is not more than this, once made conjugate to the others, is made of round-off."""
    eps = torch.finfo(point.y.dtype).eps
    difference = 4 * eps * (norm(objective.weigh(point.y)) + norm(objective.weigh(point.r)))
    return difference + eps**0.5 * _inner(objective, direction, direction).sqrt()


def _inner(
    objective: LeastSquares, a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]
) -> Float[Tensor, " B"]:
    """In the Hessian of the quadratic model, of directions given with their images."""
    product = dot(objective.weigh(a[1]), objective.weigh(b[1]))
    if not objective.has_prior:
        return product
    return product + objective.stiffness * dot(a[0], objective.metric(b[0]))


def _slope(
    objective: LeastSquares, point: Point, span: Span, d: Tensor, q: Tensor
) -> Float[Tensor, " B"]:
    """Of the quadratic model along d, where the span has led."""
    slope = dot(objective.weigh(point.r + span.image), objective.weigh(q))
    pull = objective.pull(point.x + span.d)
    return slope if pull is None else slope + dot(pull, d)


def _spread(like: Tensor, rows: Int[Tensor, " k"], values: Tensor) -> Tensor:
    spread = torch.zeros_like(like)
    spread[rows] = values
    return spread
