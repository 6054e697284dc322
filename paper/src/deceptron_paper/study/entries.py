"""Problems as a study knows them: one entry each, for the library's and for a user's own.

Entries stand in the order in which tables and figures show them. A study writes the entries that
it uses into its records, so that a report need not ask this module.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from numbers import Integral

from deceptron import ConfigError, problems
from deceptron.core import unknown_name

# Of Okabe and Ito's colours, told apart under every common form of colour blindness.
BLACK, GREY = "#000000", "#7F7F7F"
ORANGE, SKY, GREEN = "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"


@dataclass(frozen=True)
class ProblemEntry:
    """How a study treats and shows a problem.

    ``tolerance`` (RMS residual, normalised units) and ``iterations`` stop methods in the paper's
    settings; an answer succeeds by the rule ``rmse`` up to ``rmse_limit``. Without ``color`` and
    ``marker`` a report chooses them.
    """

    tolerance: float = 0.30
    iterations: int = 80
    rmse_limit: float = 0.10
    words: str = ""
    color: str = ""
    marker: str = ""


# Tolerances are published for heat-1d, heat-3d and allen-cahn-2d; the others are those of the
# nearest problem that has one. Of the limits the paper publishes only that of allen-cahn-2d.
ENTRIES: dict[str, ProblemEntry] = {
    "heat-1d": ProblemEntry(
        0.30, 120, 0.20, words="heat on a rod, backwards in time", color=VERMILION, marker="o"
    ),
    "heat-2d": ProblemEntry(
        0.38, words="heat on a plate, backwards in time", color=ORANGE, marker="s"
    ),
    "heat-3d": ProblemEntry(
        0.38, words="heat in a block, backwards in time", color=PURPLE, marker="^"
    ),
    "darcy-2d": ProblemEntry(words="permeability from pressure", color=BLACK, marker="D"),
    "advection-diffusion-2d": ProblemEntry(
        0.12, words="a plume, backwards in time", color=GREEN, marker="v"
    ),
    "allen-cahn-2d": ProblemEntry(0.12, words="phases, backwards in time", color=BLUE, marker="P"),
    "navier-stokes-2d": ProblemEntry(
        0.12, words="vorticity, backwards in time", color=SKY, marker="X"
    ),
}
PROBLEMS = tuple(ENTRIES)  # the library's own


def check_count(name: str, value: int, *, low: int = 1) -> None:
    """Refuse what is no integer of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise ConfigError(f"{name} must be an integer >= {low}; got {value!r}")


def declare_problem(name: str, entry: ProblemEntry) -> None:
    """Say how a study treats and shows a problem of one's own; one without an entry has defaults.

    ``problems.define`` comes first. Declaring a name again replaces its entry.
    """
    if name not in problems.names():
        raise unknown_name("problem", name, problems.names())
    for field in ("tolerance", "rmse_limit"):
        if not getattr(entry, field) > 0:
            raise ConfigError(f"{field} must be above 0; got {getattr(entry, field)}")
    check_count("iterations", entry.iterations)
    ENTRIES[name] = entry


def known_problems() -> tuple[str, ...]:
    """Declared ones in their order, then what else has been defined."""
    return tuple(dict.fromkeys([*ENTRIES, *problems.names()]))


def problem_entry(name: str) -> ProblemEntry:
    """The entry of this name; the defaults where nobody declared one."""
    return ENTRIES.get(name, ProblemEntry())


def shown_problem(name: str) -> dict[str, object]:
    """What a report needs to know of a problem, as JSON values."""
    return asdict(problem_entry(name))
