"""What a training run does, as frozen settings: the three stages, their losses, how to choose."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from inspect import signature
from typing import Literal, TypeAlias

from torch import nn

from deceptron.core.checks import check_choice, check_count, check_range
from deceptron.core.errors import ConfigError
from deceptron.core.identity import plain
from deceptron.maps.linear_start import check_noise_range

# (problem, data, generator) -> f (latents to normalised measurements) and g (back); may use
# data.train and data.scaler, for example for a closed-form start. The same generator state must
# give the same weights. Recipe(noise_range=...) is handed on by that name.
Build: TypeAlias = Callable[..., tuple[nn.Module, nn.Module]]

SCHEDULES = ("cosine", "one-cycle", "constant")
PROBE_LAWS = ("rademacher", "normal", "prior")
PROBE_MAPS = ("surrogate", "simulator")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of training, with Adam.

    Attributes:
        name: forward, reverse, jcp or plain.
        epochs: passes over the training rows; 0 leaves the maps as they were built.
        learning_rate: the largest.
        batch_size: rows a step.
        schedule: ``cosine`` falls from ``learning_rate`` to zero, one value an epoch, as in the
            paper; ``one-cycle`` rises over the share ``warmup`` of all steps from 1/25 of
            ``learning_rate`` and falls to 1/1000 of it, step by step; ``constant`` stays.
        warmup: of ``one-cycle``.
    """

    name: str
    epochs: int
    learning_rate: float
    batch_size: int
    schedule: Literal["cosine", "one-cycle", "constant"] = "cosine"
    warmup: float = 0.25

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"Stage(name=...) must be a non-empty text; got {self.name!r}")
        check_count("Stage(epochs=...)", self.epochs, low=0)
        check_count("Stage(batch_size=...)", self.batch_size)
        check_range("Stage(learning_rate=...)", self.learning_rate, low=0.0, open_low=True)
        check_choice("Stage(schedule=...)", self.schedule, SCHEDULES)
        check_range("Stage(warmup=...)", self.warmup, low=0.0, high=1.0, open_high=True)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Factors of the loss terms; a term of weight zero is not computed.

    Every square is a mean over components. The last two are stabilisers of the paper's heat-1d, in
    both branches of stage 3.

    Attributes:
        task: ``|f(x) - y|^2``.
        reconstruction: ``|g(f(x)) - x|^2``.
        cycle: ``|f(g(y~)) - y~|^2``.
        jcp: ``|J_g J_f xi - xi|^2``.
        pairs: ``|g(y + eta) - x|^2``, only with ``noisy_pairs``.
        bias_tie: ``(mean b_f + mean b_g)^2`` of the first layers of two MLPs.
        composition: ``|V W - I|^2`` of the same layers.
    """

    task: float = 1.0
    reconstruction: float = 1.0
    cycle: float = 0.0
    jcp: float = 0.0
    pairs: float = 1.0
    bias_tie: float = 0.0
    composition: float = 0.0

    def __post_init__(self) -> None:
        for entry in fields(self):
            check_range(f"Weights({entry.name}=...)", getattr(self, entry.name), low=0.0)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides a run apart from the problem and the seed.

    Args:
        name: of the preset.
        build: makes f and g for a problem.
        forward, reverse, jcp: the three stages.
        weights: of the loss terms.
        train_probes, train_probe_rows: probes of JCP and the rows of each batch they are put to.
        val_probes, val_probe_rows: the same for RJCP in validation.
        probe_law: ``"rademacher"`` (the paper's), ``"normal"``, or ``"prior"`` for noise-aware
            JCP, ``|J_g (J_f xi + eta) - xi|^2 / E|xi|^2`` with xi from the prior covariance and
            eta the measurement noise.
        probe_map: ``"surrogate"`` (the paper's) pushes probes through f and asks g at f(x);
            ``"simulator"`` takes the problem's own Jacobian and y, which is the one to invert where
            f errs by more than the noise.
        probe_bank: keep J_f xi of this many probes a training row, made once, and reuse them in
            every epoch; 0 draws fresh probes for every batch.
        cycle_noise: standard deviation of y~ about y, normalised units.
        noisy_pairs: also fit g to real data, ``|g(y + eta) - x|^2`` with the problem's noise, fresh
            every epoch.
        noise_range: ``(low, high)``: every epoch gives each row a noise level of its own, so many
            times the problem's (log-uniform), and tells g of it; ``pair.at_noise`` chooses one
            later. Needs ``noisy_pairs``; ``build`` is called with ``noise_range=...`` and must
            return a g that takes it (``LinearStart``). Validation is at the problem's own noise.
        weight_decay, clip: of Adam; largest norm of the gradient (``None``: no clipping).
        guard: an epoch of stage 3 is eligible only while the validation state error is at most
            ``guard`` times the best of stage 2 (``None``: always).
        selection_rjcp: stage 3 keeps the eligible epoch of least
            ``state error + selection_rjcp * RJCP``, measured on validation data. The state error
            is that of g(f(x)), or of g(y + eta) with ``noisy_pairs``. Stage 1 keeps the epoch of
            least task loss.
        reverse_selection_rjcp: the same weight for stage 2.
        start_counts: whether a stage may keep the maps it started from. When no epoch of stage 3
            is eligible it does so anyway.
        both: train the continuation without JCP beside the one with it.
        train_rows, val_rows: use only the first rows of the training and validation sets.
        wiener_limit: most entries of the dense ridge estimate that a pair carries; beyond it the
            linear part that g starts from takes its place, if there is one.
        correction_limit: most unknowns for which plausible corrections are calibrated.
    """

    name: str
    build: Build
    forward: Stage
    reverse: Stage
    jcp: Stage
    weights: Weights = Weights()
    train_probes: int = 2
    train_probe_rows: int = 16
    val_probes: int = 4
    val_probe_rows: int = 64
    probe_law: Literal["rademacher", "normal", "prior"] = "rademacher"
    probe_map: Literal["surrogate", "simulator"] = "surrogate"
    probe_bank: int = 0
    cycle_noise: float = 0.02
    noisy_pairs: bool = False
    noise_range: tuple[float, float] | None = None
    weight_decay: float = 1e-6
    clip: float | None = 5.0
    guard: float | None = None
    selection_rjcp: float = 0.0
    reverse_selection_rjcp: float = 0.0
    start_counts: bool = True
    both: bool = False
    train_rows: int | None = None
    val_rows: int | None = None
    wiener_limit: int = 2**19
    correction_limit: int = 2**16

    def __post_init__(self) -> None:
        if not callable(self.build):
            raise ConfigError(f"Recipe(build=...) must be a function; got {self.build!r}")
        for name in ("forward", "reverse", "jcp"):
            if not isinstance(getattr(self, name), Stage):
                raise ConfigError(f"Recipe({name}=...) must be a Stage")
        for name in ("train_probes", "train_probe_rows", "val_probes", "val_probe_rows"):
            check_count(f"Recipe({name}=...)", getattr(self, name))
        for name in ("train_rows", "val_rows"):
            if getattr(self, name) is not None:
                check_count(f"Recipe({name}=...)", getattr(self, name))
        check_count("Recipe(probe_bank=...)", self.probe_bank, low=0)
        check_count("Recipe(wiener_limit=...)", self.wiener_limit, low=0)
        check_count("Recipe(correction_limit=...)", self.correction_limit, low=0)
        check_choice("Recipe(probe_law=...)", self.probe_law, PROBE_LAWS)
        check_choice("Recipe(probe_map=...)", self.probe_map, PROBE_MAPS)
        check_range("Recipe(cycle_noise=...)", self.cycle_noise, low=0.0)
        check_range("Recipe(weight_decay=...)", self.weight_decay, low=0.0)
        check_range("Recipe(selection_rjcp=...)", self.selection_rjcp, low=0.0)
        check_range("Recipe(reverse_selection_rjcp=...)", self.reverse_selection_rjcp, low=0.0)
        if self.noise_range is not None:
            check_noise_range(self.noise_range)
            if not self.noisy_pairs:
                raise ConfigError("Recipe(noise_range=...) needs noisy_pairs=True")
            if "noise_range" not in signature(self.build).parameters:
                raise ConfigError(
                    "Recipe(noise_range=...) needs a build that takes noise_range and conditions g "
                    f"on it; {plain(self.build)} does not"
                )
        if self.clip is not None:
            check_range("Recipe(clip=...)", self.clip, low=0.0, open_low=True)
        if self.guard is not None:
            check_range("Recipe(guard=...)", self.guard, low=1.0)


def learning_rate(stage: Stage, epoch: int, step: int, steps: int) -> float:
    """Rate at ``step`` of ``steps`` in ``epoch``, both from zero; it needs no state to resume."""
    if stage.schedule == "constant":
        return stage.learning_rate
    if stage.schedule == "cosine":
        return stage.learning_rate * _half_cosine(epoch / stage.epochs)
    share = (epoch * steps + step) / max(stage.epochs * steps - 1, 1)
    lowest, last = 1 / 25, 1 / 1000
    if share < stage.warmup:
        factor = 1 - (1 - lowest) * _half_cosine(share / stage.warmup)
    else:
        factor = last + (1 - last) * _half_cosine((share - stage.warmup) / (1 - stage.warmup))
    return stage.learning_rate * factor


def _half_cosine(share: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * share))
