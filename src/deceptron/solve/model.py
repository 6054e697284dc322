"""The maps of one solve on flat rows, with every evaluation charged to the row that asked."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from deceptron.core.box import Box
from deceptron.core.differentiate import Linearisation, dense_jacobian, jvp, pull_back
from deceptron.core.errors import ConfigError, ShapeError
from deceptron.core.history import Cost
from deceptron.core.pieces import in_pieces
from deceptron.core.protocols import RowMap
from deceptron.solve.objective import LeastSquares
from deceptron.solve.rows import RowData, norm


@dataclass(frozen=True)
class Point(RowData):
    """Rows at their current iterates; ``misfit`` is the objective, ``gradient`` its gradient.

    ``fit`` is the part of the misfit that the data make, 0.5 |w r|^2, without a prior all of it;
    ``explained`` says whether the RMS of w r is down to the noise, if that is known. The loss that
    users see is misfit over the number of observed components. Every test the loop makes is
    homogeneous in it, so the factor is applied once, at the end.
    """

    x: Float[Tensor, "B n"]
    y: Float[Tensor, "B m"]
    r: Float[Tensor, "B m"]
    fit: Float[Tensor, " B"]
    misfit: Float[Tensor, " B"]
    known_explained: Bool[Tensor, " B"] | None = None
    known_gradient: Float[Tensor, "B n"] | None = None

    @property
    def explained(self) -> Bool[Tensor, " B"]:
        """For those who know that the noise is known."""
        assert self.known_explained is not None
        return self.known_explained

    @property
    def gradient(self) -> Float[Tensor, "B n"]:
        """Of the objective, for those who have seen to it that it is known."""
        assert self.known_gradient is not None
        return self.known_gradient

    def free(self, box: Box | None) -> Float[Tensor, "B n"]:
        """1 where a step may move, 0 where -gradient pushes against a bound that is already
        reached.

        Restricting the quadratic model to the free components is what keeps a projected Newton
        step a descent step (Bertsekas 1982).
        """
        if box is None:
            return torch.ones_like(self.x)
        return box.free(self.x, self.gradient).to(self.x.dtype)


KINDS = tuple(entry.name for entry in fields(Cost))


class Tally:
    """Running counts of the live rows.

    What the whole batch is charged is one integer, added when a row leaves: rows start together,
    so it is the same for all that are still there. Only unequal charges make a tensor.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self._common = dict.fromkeys(KINDS, 0)
        self._own: dict[str, Tensor] = {}
        self._rows, self._device = rows, device

    def charge(self, kind: str, amount: int | Tensor, rows: Tensor | None) -> None:
        """Add ``amount`` to the live rows ``rows``, or to all of them."""
        if rows is None and isinstance(amount, int):
            self._common[kind] += amount
            return
        if kind not in self._own:
            self._own[kind] = torch.zeros(self._rows, dtype=torch.int64, device=self._device)
        if rows is None:
            self._own[kind] += amount
        else:
            self._own[kind][rows] += amount

    def table(self) -> Int[Tensor, "B kinds"]:
        """Totals of the live rows, a column for each of ``KINDS``."""
        common = torch.tensor([self._common[kind] for kind in KINDS], device=self._device)
        totals = common.repeat(self._rows, 1)
        for kind, own in self._own.items():
            totals[:, KINDS.index(kind)] += own
        return totals

    def evaluations(self) -> Int[Tensor, " B"]:
        """All that the live rows asked of a map, counted alike."""
        return self.table()[:, :-1].sum(1)  # linear steps are made of these

    def keep(self, index: Int[Tensor, " k"]) -> None:
        """Only the rows at ``index`` stay."""
        self._own = {kind: own.index_select(0, index) for kind, own in self._own.items()}
        self._rows = len(index)


# Rows from which on a call for one of them by itself costs little.
_MANY = 64


@dataclass(frozen=True)
class Trial:
    """A freshly evaluated point that still holds its graph, so that its gradient is one vjp.

    ``point.known_gradient`` is None until somebody asks for ``Model.gradient``. Where a surrogate
    gives the derivatives there is no graph to hold yet, and where nobody will ask there is none.
    """

    point: Point
    leaf: Tensor
    output: Tensor | None


class Model:
    """f and g on flat rows. ``at(rows)`` charges the evaluations of a sub-batch to those rows.

    With a ``surrogate``, f is only ever evaluated, and every derivative is the surrogate's: at x
    the gradient is J_surrogate(x)' (f(x) - y*). What the surrogate is asked for is counted apart.
    """

    def __init__(
        self,
        f: RowMap,
        g: RowMap | None,
        *,
        x_shape: tuple[int, ...],
        y_shape: tuple[int, ...],
        tally: Tally,
        objective: LeastSquares,
        surrogate: RowMap | None = None,
    ) -> None:
        self._f, self._g, self._surrogate = f, g, surrogate
        self.x_shape, self.y_shape = x_shape, y_shape
        self.tally = tally
        self.objective = objective
        self._rows: Tensor | None = None

    @property
    def has_derivatives(self) -> bool:
        """Whether f itself can be differentiated."""
        return self._surrogate is None

    def at(self, rows: Int[Tensor, " k"]) -> Model:
        """The same maps for a sub-batch that consists of the live rows ``rows``."""
        other = copy(self)
        other.objective = self.objective.at(rows)
        other._rows = rows if self._rows is None else self._rows[rows]
        return other

    def keep(self, index: Int[Tensor, " k"]) -> None:
        """Only the live rows at ``index`` stay."""
        self.tally.keep(index)
        self.objective = self.objective.at(index)

    def charge(self, kind: str, amount: int | Tensor = 1) -> None:
        """Add to the count ``kind`` of every row of this (sub-)batch."""
        if self._surrogate is not None and kind in ("jvp", "vjp"):
            kind = "surrogate"
        self.tally.charge(kind, amount, self._rows)

    def values(self, x: Float[Tensor, "B n"], target: Float[Tensor, "B m"]) -> Point:
        """f at ``x``, without a graph."""
        self.charge("f")
        with torch.no_grad():
            y = self._rows_of_y(self._f, x.detach()).detach()
        return self._point(x, y, target)

    def evaluate(
        self, x: Float[Tensor, "B n"], target: Float[Tensor, "B m"], *, taped: bool = True
    ) -> Trial:
        """f at ``x``, keeping the graph for a later vjp.

        Without ``taped`` none is kept, and of many rows only the first shows that there is one: a
        graph of all would hold every state of a simulation for nothing.
        """
        self.charge("f")
        leaf, output = x.detach(), None
        if self._surrogate is not None:
            y = self._rows_of_y(self._f, leaf).detach()
        elif taped or len(x) < _MANY:
            leaf = leaf.requires_grad_()
            output = self._with_graph(leaf)
            y = output.detach()
        else:
            first = self._with_graph(leaf[:1].clone().requires_grad_()).detach()
            y = torch.cat([first, self._rows_of_y(self._f, leaf[1:]).detach()])
        return Trial(self._point(x, y, target), leaf, output if taped else None)

    def _with_graph(self, leaf: Tensor) -> Tensor:
        try:
            with torch.enable_grad():
                output = self._rows_of_y(self._f, leaf)
        except RuntimeError as error:
            if "requires grad" not in str(error):  # torch to NumPy code that meets a graph
                raise
            raise _no_graph() from error
        if not output.requires_grad:
            raise _no_graph()
        return output

    def _point(self, x: Tensor, y: Tensor, target: Tensor) -> Point:
        objective = self.objective
        if objective.observed is not None:
            y = torch.where((objective.observed > 0) | y.isfinite(), y, target)
        r = objective.difference(y, target)
        fit = objective.fit(r)
        known = objective.tau is not None
        explained = objective.explained(objective.residual(fit)) if known else None
        return Point(x, y, r, fit, objective.value(x, fit), explained)

    def gradient(
        self, trial: Trial, wanted: Bool[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B n"]:
        """Of the objective at the trial's point, charged to the ``wanted`` rows (default: all)."""
        amount = 1 if wanted is None else wanted.to(torch.int64)
        leaf, output = trial.leaf, trial.output
        if self._surrogate is not None:
            self.charge("surrogate", amount)
            with torch.enable_grad():
                leaf = leaf.requires_grad_()
                output = self._rows_of_y(self._surrogate, leaf)
        assert output is not None
        if not output.requires_grad:  # of a surrogate
            raise _no_graph()
        self.charge("vjp", amount)
        weigh = self.objective.weigh
        gradient = pull_back(output, leaf, weigh(weigh(trial.point.r)))
        pull = self.objective.pull(trial.point.x)
        return gradient if pull is None else gradient + pull

    def g(self, y: Float[Tensor, "B m"], amount: int | Tensor = 1) -> Float[Tensor, "B n"]:
        """The reverse map."""
        self.charge("g", amount)
        return self._flat_g(y)

    def g_jvp(self, y: Tensor, tangent: Tensor, amount: int | Tensor = 1) -> Float[Tensor, "B n"]:
        """J_g(y) times a measurement-space direction: a pass through g, and charged to it."""
        self.charge("g", amount)
        return jvp(self._flat_g, y, tangent)[1]

    def f_jvp(self, x: Tensor, tangent: Tensor) -> Float[Tensor, "B m"]:
        """J_f(x) times a direction."""
        self.charge("jvp")
        return self.objective.seen(jvp(self._differentiable, x, tangent)[1])

    def image(self, point: Point, d: Float[Tensor, "B n"]) -> Float[Tensor, "B m"]:
        """J_f(x) d; of an f without derivatives the secant f(x + d) - f(x), which ``d`` spans."""
        if self._surrogate is None:
            return self.f_jvp(point.x, d)
        self.charge("f")
        return self.objective.seen(self._rows_of_y(self._f, point.x + d).detach() - point.y)

    def linearise(self, x: Float[Tensor, "B n"], *, charged: bool = True) -> Linearisation:
        """J_f(x) for repeated products, for the price of a forward and a backward pass.

        The products are not charged: rows finish one by one, and the caller knows whom a product
        serves.
        """
        if charged:
            self.charge("f" if self._surrogate is None else "surrogate")
            self.charge("vjp")
        return Linearisation(self._differentiable, x)

    def f_jacobian(self, x: Float[Tensor, "B n"]) -> Float[Tensor, "B m n"]:
        """Dense J_f, charged as n jvps a row."""
        self.charge("jvp", x.shape[1])
        jacobian = dense_jacobian(self._differentiable, x, math.prod(self.y_shape))
        observed = self.objective.observed
        return jacobian if observed is None else torch.where(observed[..., None] > 0, jacobian, 0.0)

    def _differentiable(self, x: Tensor) -> Tensor:
        return self._rows_of_y(self._f if self._surrogate is None else self._surrogate, x)

    def _rows_of_y(self, f: RowMap, x: Tensor) -> Tensor:
        y = f(_shaped(x, self.x_shape))
        if y.shape[1:] != self.y_shape or y.shape[0] != x.shape[0]:
            raise ShapeError(
                f"f must map {tuple(x.shape[:1]) + self.x_shape} to rows of y's shape "
                f"{self.y_shape}; it returned {tuple(y.shape)}"
            )
        return y if y.ndim == 2 else y.reshape(x.shape[0], -1)

    def _flat_g(self, y: Tensor) -> Tensor:
        if self._g is None:
            raise ConfigError(
                "this method needs a reverse map: pass a pair with .g, not a callable"
            )
        x = in_pieces(self._g, _shaped(y, self.y_shape))
        if x.shape[1:] != self.x_shape or x.shape[0] != y.shape[0]:
            raise ShapeError(
                f"g must return rows of x's shape {self.x_shape}; it returned {tuple(x.shape)}"
            )
        return x if x.ndim == 2 else x.reshape(y.shape[0], -1)


def _shaped(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    # A view that changes nothing takes as long as arithmetic on a few rows, and again in its vjp.
    return rows if len(shape) == 1 else rows.reshape(-1, *shape)


def _no_graph() -> ConfigError:
    return ConfigError(
        "f must be differentiable by torch for this method: its output carries no graph. Wrap "
        "NumPy or external code, forward=dc.simulators.wrap(...), beside a pair whose f lends its "
        "derivatives; for torch code without derivatives pass differentiable=False. one-shot and "
        "wiener need none"
    )


def round_off(point: Point, objective: LeastSquares) -> Float[Tensor, " B"]:
    """How far two evaluations of phi may differ.

    Sums lose a few eps of phi. Each component of w f(x) is off by a few eps of itself, which moves
    0.5 |w r|^2 by up to |w r| e + e^2 / 2 with e = 4 eps |w f(x)|.
    """
    eps = 4 * torch.finfo(point.misfit.dtype).eps
    error = eps * norm(objective.weigh(point.y))
    size = torch.add((2 * point.fit).sqrt(), error, alpha=0.5)
    return torch.addcmul(eps * point.misfit, error, size)
