"""Parameters of different units side by side: what solvers, networks and error bars cannot take."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

# Errors and corrections are measured in x as it is; beyond this the small components drown.
LARGEST_RATIO = 1e3


def uneven_units(x: Float[Tensor, "N *x"]) -> str | None:
    """A sentence if components of a vector x vary by very different amounts; fields have one unit,
    whatever they do at a boundary.
    """
    if x.ndim != 2 or len(x) < 2:
        return None
    spread = x.double().std(0)
    spread = spread[spread > 0]
    if not len(spread) or float(spread.max()) <= LARGEST_RATIO * float(spread.min()):
        return None
    return (
        f"components of x must vary by about as much; they vary by {float(spread.min()):.2g} to "
        f"{float(spread.max()):.2g}, and little is learned about the small ones: let x be in "
        "units of that spread, and multiply by it inside simulate"
    )
