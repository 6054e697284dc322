"""Heat on a rod: recover the initial temperature from a late, mixed and bent reading of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from deceptron.core.checks import check_range
from deceptron.core.constants import constant
from deceptron.problems.heat import Heat, ModeFamily


@constant
def neighbour_mixing(
    n: int, weight: float, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "n n"]:
    """Tridiagonal: 1 on the diagonal, ``weight`` beside it, rows divided by their sum."""
    beside = torch.full((n - 1,), weight, dtype=torch.float64)
    matrix = torch.eye(n, dtype=torch.float64) + beside.diag(1) + beside.diag(-1)
    return (matrix / matrix.sum(1, keepdim=True)).to(dtype=dtype, device=device)


@dataclass(frozen=True, kw_only=True)
class Heat1D(Heat):
    """u_t = 0.18 u_xx on (0, 1), u = 0 at the ends; z = M u(0.08), y = z + 0.18 z^3 + 0.08 sin 3z.

    Behaviour: sine mode k is damped by exp(-0.18 (pi k)^2 0.08): mode 1 by 0.87, mode 3 by 0.28,
    mode 6 by 0.006, which is below the noise. About five directions can be recovered.

    Arguments: ``grid`` interior points (66 equispaced points without the ends), ``diffusivity``,
    ``time``, ``mixing`` (weight of each neighbour in the tridiagonal M), ``cubic``, ``sine``,
    ``frequency``, ``noise_std``, the split sizes, and three ``ModeFamily``: ``latents`` (10
    unit-norm sine modes, N(0,1)/k, the first plus 0.25 N(0,1), min-max to [0, 1]), ``shifted`` (16
    modes, 1/sqrt(k)) and ``extreme`` (24 modes of equal weight, noise x3).

    Pitfalls: latents are min-max scaled, so they do not vanish at the ends although their modes
    do; the constant this adds is seen through many modes. Observations are scaled per component.

    Good values: diffusivity * time between 0.002 (easy) and 0.03 (two directions left).
    """

    name: str = "heat-1d"
    equation: str = field(
        default="u_t = κ u_xx, u=0 at ends; y = z + 0.18 z³ + 0.08 sin 3z, z = M u(T)",
        repr=False,
    )
    paper: str = field(default="Heat-1D: all numbers published", repr=False)
    noise_std: float | Tensor = 0.01
    train_count: int = 4000
    val_count: int = 500
    test_count: int = 300
    dimension: int = field(default=1, init=False)
    grid: int = 64
    diffusivity: float = 0.18
    time: float = 0.08
    mixing: float = 0.10
    cubic: float = 0.18
    sine: float = 0.08
    frequency: float = 3.0
    latents: ModeFamily = ModeFamily(modes=10, extra_first=0.25)
    shifted: ModeFamily = ModeFamily(modes=16, decay=0.5, extra_first=0.25)
    extreme: ModeFamily = ModeFamily(modes=24, decay=0.0, noise_factor=3.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("mixing", self.mixing, low=0.0, high=float("inf"), open_high=True)

    def _mix(self, u: Tensor) -> Tensor:
        return u @ neighbour_mixing(self.grid, self.mixing, u.dtype, u.device).mT
