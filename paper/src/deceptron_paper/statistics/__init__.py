"""The numbers that tables and figures show, as functions of arrays and tidy records."""

from deceptron_paper.statistics.comparison import (
    Correlation,
    Paired,
    cohens_d,
    paired_difference,
    spearman,
)
from deceptron_paper.statistics.intervals import (
    Interval,
    mean_interval,
    rate_interval,
    ratio_interval,
)
from deceptron_paper.statistics.profiles import (
    break_even,
    cost_to_tolerance,
    data_profile,
    performance_profile,
)
from deceptron_paper.statistics.success import (
    GOOD_BASIN,
    ORACLE,
    RESIDUAL_LIMIT,
    STRICT_FACTOR,
    oracle_rmse,
    succeeded,
)
from deceptron_paper.statistics.trajectories import (
    at_step,
    basin_occupancy,
    bundle_width,
    coefficient_of_variation,
)

__all__ = [
    "GOOD_BASIN",
    "ORACLE",
    "RESIDUAL_LIMIT",
    "STRICT_FACTOR",
    "Correlation",
    "Interval",
    "Paired",
    "at_step",
    "basin_occupancy",
    "break_even",
    "bundle_width",
    "coefficient_of_variation",
    "cohens_d",
    "cost_to_tolerance",
    "data_profile",
    "mean_interval",
    "oracle_rmse",
    "paired_difference",
    "performance_profile",
    "rate_interval",
    "ratio_interval",
    "spearman",
    "succeeded",
]
