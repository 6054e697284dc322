"""How close a pair's reverse map comes to the local inverse of its forward map."""

from deceptron.geometry.jcp import draw_probes, jcp, probe_defects, rjcp
from deceptron.geometry.local import LocalGeometry, first_order_remainder

__all__ = [
    "LocalGeometry",
    "draw_probes",
    "first_order_remainder",
    "jcp",
    "probe_defects",
    "rjcp",
]
