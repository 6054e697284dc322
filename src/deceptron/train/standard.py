"""The default recipe: start both maps at the best linear estimate and train for minutes, not hours.

Each map is ``linear + scale * network``, the network starting at zero. The linear part is ridge
regression on principal components, or a gain per wavenumber on periodic grids; the network is a
U-Net for fields that share a grid and an MLP on principal components for anything else. g learns
from noisy pairs ``|g(y + eta) - x|^2``: a solve at step size 1 only ever shows it real data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from deceptron.maps import MLP, LinearStart, LowRank, Network, SpectralGain, UNet
from deceptron.maps.linear_part import LinearPart
from deceptron.problems import Dataset, Problem
from deceptron.train.recipe import Recipe, Stage, Weights

# Rows that set the units of the features.
_SCALE_ROWS = 512
# Grid points of one epoch of the largest of the seven problems; beyond it epochs become fewer.
_POINTS = 4000 * 32 * 32
# Points of a side, in the plane and in space, that the levels of a U-Net are stated for.
_SIDES = {2: 32, 3: 16}
# Rows of a batch at least, and one of how many of its rows the penalty is probed at.
_LEAST_BATCH, _PROBED = 4, 4


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What differs between problems.

    Args:
        periodic: the grid is a torus and the family is stationary on it.
        channels: of the U-Net at full resolution, or units of each of the MLP's hidden layers.
        levels: resolutions of the U-Net, or hidden layers of the MLP.
        gates: of the U-Net.
        rank: principal components of the linear part (not used when ``periodic``).
        forward_epochs, reverse_epochs, jcp_epochs: of the three stages.
        forward_rate, reverse_rate: peaks of their one-cycle schedules.
        batch_size: of all stages.
        forward_error, reverse_error: of the linear start; their squares are the units of the
            losses, so that each begins near one.
    """

    periodic: bool = False
    channels: int = 16
    levels: int = 3
    gates: bool = False
    rank: int = 64
    forward_epochs: int = 10
    reverse_epochs: int = 10
    jcp_epochs: int = 1
    forward_rate: float = 3e-3
    reverse_rate: float = 3e-3
    batch_size: int = 32
    forward_error: float = 0.03
    reverse_error: float = 0.03


TABLE: dict[str, Settings] = {
    "heat-1d": Settings(
        channels=256,
        forward_epochs=40,
        reverse_epochs=40,
        forward_rate=2e-3,
        reverse_rate=2e-3,
        batch_size=128,
        forward_error=0.01,
        reverse_error=0.13,
    ),
    "heat-2d": Settings(
        channels=8,
        forward_epochs=4,
        reverse_epochs=4,
        reverse_rate=1e-3,
        forward_error=0.006,
        reverse_error=0.0017,
    ),
    "heat-3d": Settings(
        channels=8,
        levels=2,
        rank=128,
        forward_epochs=4,
        reverse_epochs=4,
        reverse_rate=1e-3,
        forward_error=0.0035,
        reverse_error=0.0013,
    ),
    "darcy-2d": Settings(
        gates=True,
        forward_epochs=16,
        reverse_epochs=12,
        forward_error=0.26,
        reverse_error=0.16,
    ),
    "advection-diffusion-2d": Settings(
        periodic=True,
        channels=8,
        forward_epochs=6,
        reverse_epochs=8,
        forward_error=0.12,
        reverse_error=0.04,
    ),
    "allen-cahn-2d": Settings(
        periodic=True,
        levels=2,
        forward_epochs=8,
        reverse_epochs=8,
        forward_error=0.006,
        reverse_error=0.014,
    ),
    "navier-stokes-2d": Settings(
        periodic=True,
        forward_epochs=12,
        reverse_epochs=8,
        forward_error=0.43,
        reverse_error=0.11,
    ),
}

# Where f errs by more than the noise its Jacobian is a poor guide: a full weight cost darcy-2d 20%
# on noisy data. What is not known yet gets the careful weight too.
JCP_WEIGHTS = {**dict.fromkeys(TABLE, 1.0), "darcy-2d": 0.1}
CAREFUL_JCP = 0.1

# Where g was measured to lose nothing by learning all noise levels from a quarter to four times
# the problem's.
NOISE_RANGES = {"heat-1d": (0.25, 4.0)}


def recipe_for(problem: Problem) -> Recipe:
    """The standard recipe of one of the library's problems, or one that suits any other."""
    known = TABLE.get(problem.name)
    if known is None:
        settings = _within_reach(problem, _general(problem), most=4.0)
    else:
        settings = _within_reach(problem, known, most=1.0)

    def stage(name: str, epochs: int, rate: float) -> Stage:
        return Stage(
            name=name,
            epochs=epochs,
            learning_rate=rate,
            batch_size=settings.batch_size,
            schedule="one-cycle",
        )

    return Recipe(
        name="standard",
        build=partial(build, settings=settings),
        forward=stage("forward", settings.forward_epochs, settings.forward_rate),
        reverse=stage("reverse", settings.reverse_epochs, settings.reverse_rate),
        jcp=stage("jcp", settings.jcp_epochs, 0.1 * settings.reverse_rate),
        weights=Weights(
            task=settings.forward_error**-2,
            pairs=settings.reverse_error**-2,
            reconstruction=0.0,
            jcp=JCP_WEIGHTS.get(problem.name, CAREFUL_JCP),
        ),
        noisy_pairs=True,
        noise_range=NOISE_RANGES.get(problem.name),
        probe_law="prior",
        train_probes=1,
        train_probe_rows=min(8, settings.batch_size // _PROBED),
        val_probes=1,
        # At most 2% more error on noisy data for a better local inverse.
        guard=1.04,
        selection_rjcp=1.0,
    )


def build(
    problem: Problem,
    data: Dataset,
    generator: torch.Generator,
    *,
    settings: Settings,
    noise_range: tuple[float, float] | None = None,
) -> tuple[nn.Module, nn.Module]:
    """f and g, each at its linear start."""
    x, y = data.train.x, data.scaler.normalise(data.train.y)
    noise = torch.as_tensor(problem.noise_std).to(y) / data.scaler.scale.to(y)
    seen = data.scaler.normalise(problem.add_noise(data.train.y[:_SCALE_ROWS], generator=generator))
    forward = _start(x, y, 0.0, settings, generator).fit_scales(x[:_SCALE_ROWS], y[:_SCALE_ROWS])
    reverse = _start(y, x, noise, settings, generator, noise_range)
    return forward, reverse.fit_scales(seen, x[:_SCALE_ROWS])


def _start(
    a: Tensor,
    b: Tensor,
    noise: float | Tensor,
    settings: Settings,
    generator: torch.Generator,
    noise_range: tuple[float, float] | None = None,
) -> LinearStart:
    """A map from rows like ``a`` to rows like ``b``."""
    level = float(torch.as_tensor(noise).broadcast_to(a.shape[1:]).square().mean().sqrt())
    start, end = tuple(a.shape[1:]), tuple(b.shape[1:])
    on_grid = _on_one_grid(start, end)
    periodic, conditioned = on_grid and settings.periodic, noise_range is not None
    linear: LinearPart
    if periodic:
        linear = SpectralGain.fit(a, b, noise_std=noise)
    else:
        linear = LowRank.fit(a, b, noise_std=noise, rank=settings.rank)
    count = LinearStart.feature_count(linear, periodic=periodic, fields=on_grid) + conditioned
    body: Network
    if on_grid:
        body = UNet(
            (count, *start[1:]),
            end,
            channels=settings.channels,
            levels=settings.levels,
            padding="circular" if periodic else "zeros",
            gates=settings.gates,
            generator=generator,
        )
    else:
        hidden = (settings.channels,) * settings.levels
        body = MLP((count, *hidden, math.prod(end)), activation="silu", generator=generator)
        *_, last = body.layers
        nn.init.zeros_(last.get_parameter("weight"))
    return LinearStart(linear, body, periodic=periodic, noise_range=noise_range, noise_level=level)


def _general(problem: Problem) -> Settings:
    """For a problem nobody has tuned: an MLP of three layers, or a U-Net that assumes no torus."""
    low, high = (torch.as_tensor(side, dtype=torch.float64) for side in problem.bounds)
    # Errors are weighed in this unit. A box may be far wider than the family: of a width alone, the
    # loss would be too small to learn from.
    error = min(0.1 * float((high - low).mean()), _spread(problem))
    if _on_one_grid(problem.x_shape, problem.y_shape):
        return Settings(gates=True, forward_error=0.1, reverse_error=error)
    return Settings(
        channels=256,
        forward_epochs=30,
        reverse_epochs=20,
        forward_rate=2e-3,
        reverse_rate=2e-3,
        batch_size=128,
        forward_error=0.1,
        reverse_error=error,
    )


def _spread(problem: Problem) -> float:
    """Standard deviation of the family, all components together."""
    x = problem.sample(_SCALE_ROWS, generator=torch.Generator().manual_seed(0)).double()
    spread = float((x - x.mean(0)).square().mean().sqrt())
    return spread if 0 < spread < math.inf else 1.0


def _within_reach(problem: Problem, settings: Settings, most: float) -> Settings:
    """Settings for the grid and the amount of data: epochs become fewer as points become more.

    On finer grids a U-Net gets a level for every halving of the spacing, so that it sees as far,
    and smaller batches, so that as many steps are taken although epochs are fewer. The rates of
    gated networks fall with the root of the batch: at those of larger batches they diverged. Levels
    are fewer where the grid cannot be halved so often.
    """
    points = max(math.prod(problem.x_shape), math.prod(problem.y_shape))
    share = min(most, _POINTS / (problem.train_count * points))
    settings = replace(
        settings,
        forward_epochs=math.ceil(share * settings.forward_epochs),
        reverse_epochs=math.ceil(share * settings.reverse_epochs),
    )
    if not _on_one_grid(problem.x_shape, problem.y_shape):
        return settings
    grid = problem.x_shape[1:]
    finer = min(grid) / _SIDES[len(grid)]
    levels = settings.levels + max(0, math.floor(math.log2(finer)))
    while levels > 1 and any(n % 2 ** (levels - 1) for n in grid):
        levels -= 1
    coarse = _SIDES[len(grid)] ** len(grid)
    batch = min(settings.batch_size, settings.batch_size * coarse // math.prod(grid))
    batch = max(_LEAST_BATCH, batch)
    slower = (batch / settings.batch_size) ** 0.5 if settings.gates else 1.0
    return replace(
        settings,
        levels=levels,
        batch_size=batch,
        forward_rate=slower * settings.forward_rate,
        reverse_rate=slower * settings.reverse_rate,
    )


def _on_one_grid(start: tuple[int, ...], end: tuple[int, ...]) -> bool:
    """Whether both are fields ``(channels, *grid)`` in the plane or in space on the same grid."""
    return len(start) in (3, 4) and start[1:] == end[1:]
