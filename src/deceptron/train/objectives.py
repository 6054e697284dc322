"""What the stages minimise and how an epoch is judged: task loss for f, reverse losses for g."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from deceptron.core.differentiate import jvp
from deceptron.core.errors import ConfigError
from deceptron.core.pieces import rows_at_a_time
from deceptron.core.protocols import RowMap
from deceptron.geometry import draw_probes
from deceptron.maps import MLP
from deceptron.train.data import TrainingData, mapped
from deceptron.train.recipe import Recipe
from deceptron.train.streams import stream
from deceptron.train.team import Team

Term = tuple[str, float, Tensor]  # name, weight, value
Measured = dict[str, float]

FORWARD, REVERSE, CONTINUATION = range(1, 4)
ALONE = Team()


class Objective(Protocol):
    """The loss of a stage, the module it trains and the judgement of an epoch."""

    module: nn.Module
    # Names the random streams of the stage; both continuations share theirs, so that they see
    # the same batches in the same order.
    stage_number: int

    def begin(self, epoch: int) -> None:
        """Draw what lasts an epoch."""

    def terms(self, rows: Int[Tensor, " b"], team: Team = ALONE) -> list[Term]:
        """Name, weight and value of each loss term on these training rows.

        In a team it is this process's part of the value: they add up to it.
        """

    def validate(self) -> Measured:
        """Measurements on the validation rows, without a graph."""

    def score(self, measured: Measured) -> float:
        """What model selection minimises."""

    def eligible(self, measured: Measured) -> bool:
        """Whether an epoch may be selected at all."""


class ForwardObjective:
    """Stage 1: mean of |f(x) - y|^2, noise-free pairs, normalised units."""

    stage_number = FORWARD

    def __init__(self, data: TrainingData, recipe: Recipe, f: nn.Module) -> None:
        self.module, self._data, self._weight = f, data, recipe.weights.task

    def begin(self, epoch: int) -> None:
        """Nothing is drawn."""

    def terms(self, rows: Int[Tensor, " b"], team: Team = ALONE) -> list[Term]:
        """The task loss."""
        train = self._data.train
        part, share = team.part(len(rows))
        own = rows[part]
        return [("task", self._weight, share * mse_loss(self.module(train.x[own]), train.y[own]))]

    def validate(self) -> Measured:
        """The same loss on the validation rows."""
        val = self._data.val
        return {"val_task": float(mse_loss(mapped(self.module, val.x), val.y))}

    def score(self, measured: Measured) -> float:
        """The task loss."""
        return measured["val_task"]

    def eligible(self, measured: Measured) -> bool:
        """Every epoch is."""
        return True


class ReverseObjective:
    """Stages 2 and 3: g with f frozen, so that f(x) is computed once for all rows."""

    def __init__(
        self,
        data: TrainingData,
        recipe: Recipe,
        f: nn.Module,
        g: nn.Module,
        *,
        stage_number: int,
        jcp: bool = False,
        guard_limit: float | None = None,
    ) -> None:
        self.module, self.stage_number = g, stage_number
        self._data, self._recipe, self._f = data, recipe, f
        self._guard_limit = guard_limit
        self._fx, self._val_fx = mapped(f, data.train.x), mapped(f, data.val.x)
        self._stabilisers = _stabilisers(recipe, f, g) if stage_number == CONTINUATION else []
        real = recipe.probe_map == "simulator"
        if real and not data.problem.differentiable:
            raise ConfigError(
                f"Recipe(probe_map='simulator') needs a differentiable one; {data.problem.name}'s "
                "is not"
            )
        self._seen, self._val_seen = (
            (data.train.y, data.val.y) if real else (self._fx, self._val_fx)
        )
        self._probes = Probes(data, recipe, data.simulate if real else f)
        self._val_probes = self._probes.for_validation()
        self._jcp = jcp and recipe.weights.jcp > 0
        if self._jcp and recipe.probe_bank:
            self._probes.fill_bank()

    def begin(self, epoch: int) -> None:
        """Fresh noise on the pairs; streams for the cycle noise and the probes."""
        data, number = self._data, self.stage_number
        self._cycle_stream = stream(data.seed, "cycle", number, epoch)
        self._probes.begin(number, epoch)
        self._ratio = self._noise_ratios(stream(data.seed, "noise-levels", number, epoch))
        if self._recipe.noisy_pairs:
            pairs = stream(data.seed, "pairs", number, epoch)
            self._noisy = data.noisy(data.train, pairs, self._ratio)

    def terms(self, rows: Int[Tensor, " b"], team: Team = ALONE) -> list[Term]:
        """Every loss of non-zero weight."""
        weights, recipe, g = self._recipe.weights, self._recipe, self.module
        part, share = team.part(len(rows))
        own = rows[part]
        x, y, fx = self._data.train.x[own], self._data.train.y[own], self._fx[own]
        levels = () if self._ratio is None else (self._ratio[own],)
        found: list[Term] = []
        if weights.reconstruction:
            found.append(("reconstruction", weights.reconstruction, share * mse_loss(g(fx), x)))
        if weights.cycle:
            # Drawn whether or not the noise is zero: a setting must not move other streams.
            whole = (len(rows), *y.shape[1:])
            white = torch.randn(whole, generator=self._cycle_stream, dtype=y.dtype)[part].to(y)
            near = y + recipe.cycle_noise * white
            found.append(("cycle", weights.cycle, share * mse_loss(self._f(g(near)), near)))
        if recipe.noisy_pairs and weights.pairs:
            missed = mse_loss(g(self._noisy[own], *levels), x)
            found.append(("pairs", weights.pairs, share * missed))
        if self._jcp:
            few = rows[: recipe.train_probe_rows]
            part, share = team.part(len(few))
            ratio = None if self._ratio is None else self._ratio[few][part]
            xi, tangents = self._probes.draw(few, ratio, part)
            defect = composition_defect(g, self._seen[few[part]], tangents, xi, ratio)
            found.append(("jcp", weights.jcp, share * (defect.mean() / self._probes.variance)))
        for name, weight, value in self._stabilisers:
            found.append((name, weight, value() / team.size))
        return found

    def _noise_ratios(self, generator: torch.Generator) -> Float[Tensor, " N"] | None:
        """Noise of each row over the problem's, log-uniform, where g is told of it."""
        if self._recipe.noise_range is None:
            return None
        low, high = (math.log(side) for side in self._recipe.noise_range)
        x = self._data.train.x
        share = torch.rand(len(x), generator=generator, dtype=torch.float64)
        return (low + (high - low) * share).exp().to(x)

    def validate(self) -> Measured:
        """Reconstruction, error on noisy pairs when they are trained on, and RJCP."""
        val, g = self._data.val, self.module
        measured = {"val_reconstruction": float(mse_loss(mapped(g, self._val_fx), val.x))}
        if self._recipe.noisy_pairs:
            measured["val_pairs"] = float(mse_loss(mapped(g, self._data.val_noisy), val.x))
        xi, tangents = self._val_probes
        with torch.no_grad():
            defect = composition_defect(g, self._val_seen[: len(xi)], tangents, xi)
        measured["rjcp"] = float(defect.mean()) / self._probes.variance
        return measured

    def score(self, measured: Measured) -> float:
        """State error plus a multiple of RJCP."""
        recipe, last = self._recipe, self.stage_number == CONTINUATION
        weight = recipe.selection_rjcp if last else recipe.reverse_selection_rjcp
        return state_error(self._recipe, measured) + weight * measured["rjcp"]

    def eligible(self, measured: Measured) -> bool:
        """The reconstruction guard."""
        return self._guard_limit is None or state_error(self._recipe, measured) <= self._guard_limit


def state_error(recipe: Recipe, measured: Measured) -> float:
    """Validation error in x: on noisy pairs when they are trained on, else of g(f(x))."""
    return measured["val_pairs" if recipe.noisy_pairs else "val_reconstruction"]


class Probes:
    """Probes xi and their images J_f(x) xi, drawn for a batch or taken from a bank."""

    def __init__(self, data: TrainingData, recipe: Recipe, f: RowMap) -> None:
        self._data, self._recipe, self._f = data, recipe, f
        self._bank: tuple[Tensor, Tensor] | None = None
        # The prior's probes are small; divided by their variance, g = 0 scores 1 under every law.
        noise_aware = recipe.probe_law == "prior"
        self.variance = float(data.train.x.var(0).mean()) if noise_aware else 1.0

    def begin(self, stage_number: int, epoch: int) -> None:
        """Open the streams of an epoch."""
        self._stream = stream(self._data.seed, "probes", stage_number, epoch)
        self._noise_stream = stream(self._data.seed, "probe-noise", stage_number, epoch)

    def fill_bank(self) -> None:
        """J_f xi of ``probe_bank`` probes for every training row, once."""
        x, count = self._data.train.x, self._recipe.probe_bank
        xi = self._law(x, count, stream(self._data.seed, "bank"))
        most = rows_at_a_time(x)
        parts = zip(x.split(most), xi.split(most), strict=True)
        with torch.no_grad():
            self._bank = xi, torch.cat([_pushed(self._f, rows, some) for rows, some in parts])

    def draw(
        self,
        rows: Int[Tensor, " b"],
        ratio: Float[Tensor, " own"] | None = None,
        part: slice = slice(None),
    ) -> tuple[Tensor, Tensor]:
        """``xi`` and ``J_f xi``, each ``(own, probes, ...)``, of a part of these training rows.

        Drawn for all of them, so that the part does not depend on how many there are.
        """
        count = self._recipe.train_probes
        if self._bank is None:
            x = self._data.train.x[rows]
            xi = self._law(x, count, self._stream)[part]
            with torch.no_grad():
                tangents = _pushed(self._f, x[part], xi)
        else:
            size = self._recipe.probe_bank
            pick = torch.randint(size, (len(rows), count), generator=self._stream)[part].to(rows)
            xi, tangents = (held[rows[part][:, None], pick] for held in self._bank)
        return xi, self._with_noise(tangents, self._noise_stream, ratio, part, len(rows))

    def for_validation(self) -> tuple[Tensor, Tensor]:
        """Probes of the first validation rows, the same in every epoch and stage."""
        x = self._data.val.x[: self._recipe.val_probe_rows]
        generator = stream(self._data.seed, "val-probes")
        xi = self._law(x, self._recipe.val_probes, generator)
        with torch.no_grad():
            tangents = _pushed(self._f, x, xi)
        return xi, self._with_noise(tangents, generator)

    def _law(self, x: Tensor, count: int, generator: torch.Generator) -> Tensor:
        law = self._recipe.probe_law
        kind = "rademacher" if law == "rademacher" else "normal"
        xi = draw_probes(x, probes=count, kind=kind, generator=generator)
        if law == "prior":
            xi = self._data.problem.prior.sqrt(xi.flatten(0, 1)).reshape(xi.shape).to(x)
        return xi

    def _with_noise(
        self,
        tangents: Tensor,
        generator: torch.Generator,
        ratio: Tensor | None = None,
        part: slice = slice(None),
        count: int | None = None,
    ) -> Tensor:
        if self._recipe.probe_law != "prior":
            return tangents
        whole = (len(tangents) if count is None else count, *tangents.shape[1:])
        white = torch.randn(whole, generator=generator, dtype=tangents.dtype)[part].to(tangents)
        if ratio is not None:
            white = white * ratio.reshape(-1, *(1,) * (white.ndim - 1))
        return tangents + self._data.noise * white


def composition_defect(
    g: nn.Module,
    y: Float[Tensor, "B *y"],
    tangents: Float[Tensor, "B k *y"],
    xi: Float[Tensor, "B k *x"],
    ratio: Float[Tensor, " B"] | None = None,
) -> Float[Tensor, "B k *x"]:
    """``(J_g(y) t - xi)^2`` for the tangents ``t`` of each row; one jvp through g."""
    points = y.repeat_interleave(xi.shape[1], dim=0)
    levels = () if ratio is None else (ratio.repeat_interleave(xi.shape[1]),)
    _, returned = jvp(lambda rows: g(rows, *levels), points, tangents.flatten(0, 1))
    return (returned.reshape(xi.shape) - xi).square()


def _pushed(f: RowMap, x: Tensor, xi: Tensor) -> Tensor:
    points = x.repeat_interleave(xi.shape[1], dim=0)
    _, tangents = jvp(f, points, xi.flatten(0, 1))
    return tangents.reshape(*xi.shape[:2], *tangents.shape[1:])


def _stabilisers(
    recipe: Recipe, f: nn.Module, g: nn.Module
) -> list[tuple[str, float, Callable[[], Tensor]]]:
    weights = recipe.weights
    if not (weights.bias_tie or weights.composition):
        return []
    if not (isinstance(f, MLP) and isinstance(g, MLP)):
        raise ConfigError(
            "Weights(bias_tie=..., composition=...) are for two maps.MLP; got "
            f"{type(f).__name__} and {type(g).__name__}"
        )
    first_f, first_g = f.layers[0], g.layers[0]
    assert isinstance(first_f, nn.Linear)
    assert isinstance(first_g, nn.Linear)
    n = math.prod(f.in_shape)
    if len(first_g.weight) < n:
        raise ConfigError(
            f"Weights(composition=...) needs at least {n} units in g's first layer; "
            f"got {len(first_g.weight)}"
        )
    identity = torch.eye(n).to(first_f.weight)

    def bias_tie() -> Tensor:
        return (first_f.bias.mean() + first_g.bias.mean()).square()

    def composition() -> Tensor:
        return (first_g.weight[:n] @ first_f.weight - identity).square().mean()

    terms = [
        ("bias_tie", weights.bias_tie, bias_tie),
        ("composition", weights.composition, composition),
    ]
    return [term for term in terms if term[1]]
