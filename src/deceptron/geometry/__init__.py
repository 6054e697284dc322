"""How close a pair's reverse map comes to the local inverse of its forward map."""

from deceptron.geometry.jcp import draw_probes, jcp, probe_defects, rjcp
from deceptron.geometry.local import LocalGeometry, first_order_remainder
from deceptron.geometry.noise_aware import (
    gain_distance,
    gain_errors,
    noise_aware_rjcp,
    optimal_gain,
)
from deceptron.geometry.posterior import Posterior, fit_interval_factor, fit_prior_share
from deceptron.geometry.trust import fit_trust, round_trips, trust

__all__ = [
    "LocalGeometry",
    "Posterior",
    "draw_probes",
    "first_order_remainder",
    "fit_interval_factor",
    "fit_prior_share",
    "fit_trust",
    "gain_distance",
    "gain_errors",
    "jcp",
    "noise_aware_rjcp",
    "optimal_gain",
    "probe_defects",
    "rjcp",
    "round_trips",
    "trust",
]
