"""Heat in a block: a small grid where the sensor hides little and the noise is low."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from deceptron.problems.heat import BlurredHeat, ModeFamily


@dataclass(frozen=True, kw_only=True)
class Heat3D(BlurredHeat):
    """u_t = 0.10 Laplacian(u) on the unit cube, u = 0 on the edge; y = z + 0.02 z^3 + 0.008 sin 2z.

    z = 0.975 u(0.012) + 0.025 blur(u(0.012)), the blur a seven-point stencil (centre 8,
    neighbours 1, zero padding).

    Behaviour: mode (i, j, k) is damped by exp(-0.0012 pi^2 (i^2 + j^2 + k^2)); even (8, 8, 8)
    keeps a tenth, so on this grid nearly everything the prior holds can be recovered.

    Arguments: ``grid`` interior points per axis (10 equispaced points without the ends),
    ``diffusivity``, ``time``, ``blur``, ``blur_centre``, ``cubic``, ``sine``, ``frequency``,
    ``noise_std``, split sizes, and three ``ModeFamily``: ``latents`` (3x3x3 unit-norm modes
    N(0,1)/(ijk) plus one bump, min-max to [0, 1]), ``shifted`` (5x5x5 modes, (ijk)^-1/2, 2 bumps)
    and ``extreme`` (7x7x7 modes of equal weight, 3 bumps twice as high, noise x3).

    Pitfalls: memory grows with the cube of the grid: 64^3 latents are a megabyte each.

    Good values: diffusivity * time between 0.0005 and 0.005.
    """

    name: str = "heat-3d"
    equation: str = field(
        default="u_t = κ Δu, u=0 on faces; y = z + 0.02 z³ + 0.008 sin 2z, z = blurred u(T)",
        repr=False,
    )
    paper: str = field(default="Heat-3D: all numbers published", repr=False)
    noise_std: float | Tensor = 0.0015
    train_count: int = 4000
    val_count: int = 400
    test_count: int = 80
    dimension: int = field(default=3, init=False)
    grid: int = 8
    diffusivity: float = 0.10
    time: float = 0.012
    blur: float = 0.025
    blur_centre: float = 8.0
    cubic: float = 0.020
    sine: float = 0.008
    frequency: float = 2.0
    latents: ModeFamily = ModeFamily(modes=3, bumps=1)
    shifted: ModeFamily = ModeFamily(modes=5, decay=0.5, bumps=2)
    extreme: ModeFamily = ModeFamily(
        modes=7, decay=0.0, bumps=3, bump_amplitude=(0.04, 0.20), noise_factor=3.0
    )
