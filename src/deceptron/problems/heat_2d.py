"""Heat on a plate: described by the paper in words, with numbers of our own."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from deceptron.problems.heat import BlurredHeat, ModeFamily


@dataclass(frozen=True, kw_only=True)
class Heat2D(BlurredHeat):
    """u_t = 0.1 Laplacian(u) on the unit square, u = 0 at its edge; y = z + 0.03 z^3 + 0.01 sin 2z.

    z = 0.97 u(0.012) + 0.03 blur(u(0.012)), the blur a five-point stencil (centre 6, neighbours 1).

    Behaviour: mode (i, j) is damped by exp(-0.0012 pi^2 (i^2 + j^2)); the prior's roughest mode
    (5, 5) by 0.55, so the prior is well seen and what is rougher than (20, 20) is lost.

    Arguments: ``grid`` points per axis, ``diffusivity``, ``time``, ``blur``, ``blur_centre``,
    ``cubic``, ``sine``, ``frequency``, ``noise_std``, split sizes, and three ``ModeFamily``:
    ``latents`` (5x5 unit-norm modes N(0,1)/(ij) plus one bump, min-max to [0, 1]), ``shifted``
    (8x8 modes, (ij)^-1/2, 2 bumps) and ``extreme`` (12x12 modes of equal weight, 4 bumps twice as
    high, noise x3).

    Pitfalls: as in one dimension, min-max scaling lifts the edge off zero.

    Good values: diffusivity * time between 0.0005 and 0.005; beyond that nothing rough survives.
    """

    name: str = "heat-2d"
    equation: str = field(
        default="u_t = κ Δu, u=0 on edge; y = z + 0.03 z³ + 0.01 sin 2z, z = blurred u(T)",
        repr=False,
    )
    paper: str = field(default="Heat-2D: described in words, numbers ours", repr=False)
    noise_std: float | Tensor = 0.002
    train_count: int = 4000
    val_count: int = 400
    test_count: int = 80
    dimension: int = field(default=2, init=False)
    grid: int = 32
    diffusivity: float = 0.10
    time: float = 0.012
    blur: float = 0.03
    blur_centre: float = 6.0
    cubic: float = 0.03
    sine: float = 0.01
    frequency: float = 2.0
    latents: ModeFamily = ModeFamily(modes=5, bumps=1)
    shifted: ModeFamily = ModeFamily(modes=8, decay=0.5, bumps=2)
    extreme: ModeFamily = ModeFamily(
        modes=12, decay=0.0, bumps=4, bump_amplitude=(0.04, 0.20), noise_factor=3.0
    )
