"""What rows may be, fitted: laws and their tables, the odds of each kind, how wide bars must be.

The rows that decide are validation rows, which are like the training data, and half as many that
are not: latents moved by a draw of one of the laws of corrections, within the bounds.
Each is answered in every way, and the odds are those under which the truths are likeliest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.arrays import rms
from deceptron.core.bases import EigenBasis, GridBasis
from deceptron.core.differentiate import Linearisation, jacobian_of_row
from deceptron.core.protocols import RowMap
from deceptron.core.solution import Solution
from deceptron.geometry.bars import NORMAL_90, AnswerBars
from deceptron.geometry.posterior import conformal
from deceptron.laws import tables
from deceptron.laws.beliefs import Beliefs
from deceptron.laws.data import DataLaws
from deceptron.laws.law import Laws
from deceptron.laws.odds import CORRECTION, EVERYTHING, FAMILY, START, Odds, fit_odds
from deceptron.laws.shapes import corrections_of, roughened
from deceptron.laws.start import StartLaw, fit_start_law
from deceptron.maps import Deceptron
from deceptron.problems import Problem
from deceptron.solve import solve
from deceptron.solve.descents.posterior import BY_START, COMPLETE
from deceptron.solve.first_fits import features, first_fits
from deceptron.train.families import data_laws, reflected
from deceptron.train.streams import stream

# Jacobians that tables are averaged over.
POINTS = 2
# Unknowns up to which they are formed. CPU seconds on darcy-2d, dense and by a sketch: 1.5 and 3.0
# at 256, 8.5 and 5.6 at 1024; a sketch takes 17 at 4096 (python -m benchmarks.grids growth), the 16
# dense decompositions would cost 64 times those at 1024.
LARGEST_DENSE = 1024
# Numbers that go through the simulator at a time as dual numbers, and as a graph, which may hold
# every step that it takes.
HELD, HELD_GRAPH = 2**18, 2**16
# Rows like the training data for each that is widened, and the sizes that those are widened by.
PER_WIDENED, WIDENED = 2, (0.1, 0.3, 1.0)
# Rows that are solved on the surrogate, and by a simulator without derivatives, which may take its
# time.
CALLED_ROWS = 48
# Draws that a deviation at a start comes from: odds need no better ones.
FEW_SAMPLES = 16
# Rows from which on a factor or a law of the start can be told.
FEWEST, FEWEST_STARTS = 16, 32
# Rows that are linearised at a time, and the share that judges the law of the start.
BATCH, SHARE_LEFT_OUT = 48, 0.25
# What the law of the start must lower the error of rows left out by: it costs them an evaluation.
WORTH = 0.05


def fit_beliefs(
    pair: Deceptron,
    problem: Problem,
    family: Float[Tensor, "N *x"],
    x: Float[Tensor, "B *x"],
    y: Float[Tensor, "B *y"],
    listener: tables.Listener,
) -> Beliefs | None:
    """By samples of the family and validation rows; ``pair.calibration`` has its bars already.
    None where there are no coordinates for corrections.
    """
    corrections = corrections_of(family)
    if corrections is None:
        return None
    known = pair.calibration.family
    laws = [corrections] + ([] if known is None else [roughened(known)])
    laws = _with_tables(laws, pair, problem, x, lambda share: listener(0.5 * share))
    data: tuple[DataLaws, ...] = ()
    if known is not None and pair.calibration.observations is not None:
        observations = pair.calibration.observations
        data = data_laws(
            _map(pair, problem, problem.has_simulator), laws[1], observations, pair.bounds, x
        )
    beliefs = Beliefs(
        laws[0], laws[1] if len(laws) > 1 else None, data, None, Odds.expected(), Odds.expected()
    )
    asked = slice(None if problem.differentiable else CALLED_ROWS)
    listener(0.5)
    if problem.has_simulator and problem.differentiable and x[0].numel() > COMPLETE:
        start = _start_law(beliefs, pair, problem, x, y)
        beliefs = replace(beliefs, start=start)
    listener(0.6)
    few, their_y = x[:CALLED_ROWS], y[:CALLED_ROWS]
    wider = _widened(corrections, pair, problem, few, their_y)
    trial = _Trial.of(beliefs, pair, None, few, their_y, *wider)
    # What a surrogate cannot explain it may not have learned: beyond what was seen of that nothing
    # is expected.
    odds = replace(trial.odds(), seen=EVERYTHING.clone())
    beliefs = replace(beliefs, surrogate=odds, simulator=odds)
    listener(0.8)
    if problem.has_simulator:
        x, y = x[asked], y[asked]
        wider = _widened(corrections, pair, problem, x, y)
        trial = _Trial.of(beliefs, pair, problem, x, y, *wider)
        beliefs = replace(beliefs, simulator=trial.odds())
    _, corrected, by_family = trial.factors().tolist()
    listener(1.0)
    return replace(
        beliefs,
        corrections=replace(beliefs.corrections, factor=corrected),
        family=beliefs.family and replace(beliefs.family, factor=by_family),
    )


def believing(pair: Deceptron, beliefs: Beliefs) -> Deceptron:
    """The pair if these were its beliefs."""
    other = pair.replaced(calibration=replace(pair.calibration, beliefs=beliefs))
    return other.train(pair.training)


@dataclass(frozen=True, eq=False)
class _Trial:
    """Rows of known truth, answered in every way: features, and errors and bars of each kind."""

    surprise: Float[Tensor, " B"]
    misfit: Float[Tensor, " B"]
    errors: Float[Tensor, "kinds B n"]
    std: Float[Tensor, "kinds B n"]
    rule: Float[Tensor, "kinds B"]
    like_training: int  # rows, the first

    @staticmethod
    def of(
        beliefs: Beliefs,
        pair: Deceptron,
        forward: Problem | None,
        x: Tensor,
        y: Tensor,
        wider: Tensor,
        their_y: Tensor,
    ) -> _Trial:
        """Of validation rows, and of wider ones."""
        truth, y = torch.cat([x, wider]), torch.cat([y, their_y])
        solutions: list[Solution] = []
        for kind in (START, CORRECTION, FAMILY):
            if kind == FAMILY and beliefs.family is None:
                solutions.append(solutions[START])
                continue
            odds = Odds.only(kind)
            tried = believing(pair, replace(beliefs, surrogate=odds, simulator=odds))
            solutions.append(solve(tried, y, forward=forward, history=False))
        seen = features(believing(pair, beliefs), y, forward=forward)
        return _Trial(
            *seen,
            torch.stack([(s.x - truth).flatten(1).double().abs() for s in solutions]),
            torch.stack(_deviations(solutions)),
            torch.stack([s.rule for s in solutions]),
            len(x),
        )

    def factors(self) -> Float[Tensor, " kinds"]:
        """What makes 90% intervals of each kind of answer hold 90% of the validation rows."""
        found = torch.ones(len(self.errors), dtype=torch.float64)
        for kind in (CORRECTION, FAMILY):
            answered = self.rule[kind] >= 0
            if kind == CORRECTION:
                answered &= self.rule[kind] != BY_START
            answered[self.like_training :] = False
            if int(answered.sum()) >= FEWEST:
                found[kind] = bar_factor(self.errors[kind][answered], self.std[kind][answered])
        return found

    def odds(self) -> Odds:
        """Under which answers are closest, and the truths likeliest."""
        std = self.std * self.factors()[:, None, None]
        # Another kind that has left a row at its start says no more of it than the start.
        kept = (self.rule < 0)[:, :, None] & (torch.arange(len(std)) != START)[:, None, None]
        return fit_odds(self.surprise, self.misfit, self.errors, torch.where(kept, 1e3 * std, std))


def _deviations(solutions: list[Solution]) -> list[Float[Tensor, "B n"]]:
    """Of answers of each kind. Those of starts cost many passes through the networks, so one set of
    draws counts for all; what a start leaves unexplained widens its own bars only.
    """
    bars = cast(AnswerBars, solutions[START].error_bars)
    explained = replace(bars.at_start, misfit=None)
    start = explained.complete_std(FEW_SAMPLES).flatten(1).double()
    found = [bars.std(samples=FEW_SAMPLES).flatten(1).double()]
    for solution in solutions[1:]:
        laws = cast(AnswerBars, solution.error_bars).laws
        found.append(start if laws is None else laws(start))
    return found


def bar_factor(error: Float[Tensor, "N *x"], std: Tensor) -> float:
    """What makes 90% intervals of these deviations hold 90% of the errors."""
    return conformal(error.abs() / std) / NORMAL_90


def _widened(
    corrections: Laws, pair: Deceptron, problem: Problem, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Rows that were moved by corrections, inside the bounds; those that the simulator cannot run
    are left out.
    """
    if not problem.has_simulator:
        return x[:0], y[:0]
    draw = stream(7, "widened")
    count = len(x) // PER_WIDENED
    moved = x[:count].flatten(1).double()
    shapes = torch.randint(len(corrections.shapes), (count,), generator=draw)
    sizes = torch.tensor(WIDENED)[torch.randint(len(WIDENED), (count,), generator=draw)]
    white = torch.randn(moved.shape, dtype=torch.float64, generator=draw)
    for row, number in enumerate(shapes.tolist()):
        by = corrections.shapes[number].root(white[row][None])[0]
        moved[row] += float(sizes[row]) * corrections.scale * by
    latents = reflected(moved.reshape(count, *x.shape[1:]).to(x), pair.bounds)
    clean = problem.simulate(latents)
    good = clean.flatten(1).isfinite().all(1)
    noisy = problem.add_noise(clean[good], generator=draw)
    return latents[good], noisy.to(x)


def _start_law(
    beliefs: Beliefs, pair: Deceptron, problem: Problem, x: Tensor, y: Tensor
) -> StartLaw | None:
    """The law of the start that lowers the error of rows left out the most, if by enough."""
    laws = beliefs.corrections
    found = [
        first_fits(pair, laws, part, forward=problem.simulate, first=place)
        for place, part in zip(range(0, len(y), BATCH), y.split(BATCH), strict=True)
    ]
    rows = torch.cat([part.rows for part in found])
    if len(rows) < FEWEST_STARTS:
        return None
    start = torch.cat([part.start for part in found]).double()
    truth = x[rows].flatten(1).double()
    judged = slice(int((1 - SHARE_LEFT_OUT) * len(rows)), None)
    seen = slice(judged.start)

    def error(answer: Tensor) -> float:
        return float(rms((answer - truth[judged])[:, None]).mean())

    best: tuple[float, int, int] | None = None
    for shape in range(len(laws.shapes)):
        for size in range(0, len(laws.sizes), laws.stride):
            fit = torch.cat([part.fit(laws, shape, size) for part in found])
            law = fit_start_law(laws, shape, size, start[seen], fit[seen], truth[seen])
            reached = error(law.answer(laws, start[judged], fit[judged]))
            if best is None or reached < best[0]:
                best = reached, shape, size
    assert best is not None
    _, shape, size = best
    fit = torch.cat([part.fit(laws, shape, size) for part in found])
    law = fit_start_law(laws, shape, size, start[seen], fit[seen], truth[seen])
    only = replace(beliefs, simulator=Odds.only(CORRECTION))
    plain, guessed = (
        solve(
            believing(pair, replace(only, start=start_law)),
            y[rows[judged]],
            forward=problem,
            history=False,
        )
        for start_law in (None, law)
    )
    errors = [error(s.x.flatten(1).double()) for s in (plain, guessed)]
    if errors[1] > (1 - WORTH) * errors[0]:
        return None
    law = fit_start_law(laws, shape, size, start, fit, truth)
    factor = bar_factor(law.answer(laws, start, fit) - truth, law.std)
    return replace(law, factor=factor)


def _map(pair: Deceptron, problem: Problem, simulated: bool) -> RowMap:
    """The simulator in the pair's units, or the surrogate."""
    if not simulated:
        return pair.f
    simulate = problem.unchecked().simulate
    return lambda rows: pair.scaler.normalise(simulate(rows)).to(rows)


def _with_tables(
    laws: list[Laws],
    pair: Deceptron,
    problem: Problem,
    x: Float[Tensor, "B *x"],
    listener: tables.Listener,
) -> list[Laws]:
    """By the simulator's Jacobian where it has one and by the surrogate's where it has not."""
    y_shape = tuple(pair.f(x[:1]).shape[1:])
    noise = pair.scaler.noise(problem.noise_std, y_shape).double().flatten()
    noise = noise / laws[0].scale  # x in units of its own spread
    forward = _map(pair, problem, problem.differentiable)
    # Vectors have powers of their covariance too, which are not diagonal in waves.
    bases = [shape.basis for law in laws for shape in law.shapes]
    grid = next((basis for basis in bases if isinstance(basis, GridBasis)), None)
    formed = x[0].numel() <= LARGEST_DENSE or any(isinstance(b, EigenBasis) for b in bases)
    points: list[Any] = []
    for place, row in enumerate(x[:POINTS].split(1)):
        if formed or grid is None:
            jacobian = jacobian_of_row(forward, row, max(1, HELD // row.numel()))
            points.append(tables.Formed(jacobian.cpu() / noise.cpu()[:, None]))
        else:
            products = _Products(forward, row, noise)
            points.append(
                tables.sketched(laws[0], grid, products, generator=stream(0, "sketch", place))
            )
        listener(0.3 * (place + 1) / POINTS)
    found = []
    for place, law in enumerate(laws):

        def share(done: float, place: int = place) -> None:
            listener(0.3 + 0.7 * (place + done) / len(laws))

        tabled = tables.tabled(law, points, listener=share)
        # Points were in units of the first laws' scale.
        assert tabled.tables is not None
        found.append(replace(tabled, tables=replace(tabled.tables, unit=laws[0].scale)))
    return found


class _Products:
    """The Jacobian at one row in units of the noise, several products at a time."""

    def __init__(self, forward: RowMap, row: Float[Tensor, "1 *x"], noise: Tensor) -> None:
        self._noise, self._rows = noise.cpu(), max(1, HELD_GRAPH // row.numel())
        self._x = row.expand(self._rows, *row.shape[1:]).contiguous()
        self._y_shape: tuple[int, ...] = tuple(forward(row).shape[1:])
        self._linear = Linearisation(forward, self._x)

    def forward(self, v: Float[Tensor, "k n"]) -> Float[Tensor, "k m"]:
        """``J v`` of each."""
        return self._each(self._linear.jvp, v, tuple(self._x.shape[1:])) / self._noise

    def back(self, w: Float[Tensor, "k m"]) -> Float[Tensor, "k n"]:
        """``J' w`` of each."""
        return self._each(self._linear.vjp, w / self._noise, self._y_shape)

    def _each(self, product: RowMap, rows: Tensor, shape: tuple[int, ...]) -> Tensor:
        found = []
        for some in rows.split(self._rows):
            full = self._x.new_zeros(self._rows, *shape)
            full[: len(some)] = some.reshape(-1, *shape).to(full)
            found.append(product(full)[: len(some)].detach().flatten(1).double().cpu())
        return torch.cat(found)
