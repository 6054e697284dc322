"""How everything looks: one colour, line and marker per method, the same in every figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Widths in inches of one column and of the text block of a two-column page.
COLUMN = 3.3
PAGE = 6.9

# Of Okabe and Ito's colours, told apart under every common form of colour blindness.
BLACK, GREY = "#000000", "#7F7F7F"
ORANGE, SKY, GREEN = "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"

MISSING = "#E6E6E6"
RATES = "cividis"  # colour map of success rates, 0 to 1

RC: Any = {
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.4,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.2,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.constrained_layout.h_pad": 0.03,
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Series:
    """A method, on a pair trained with or without JCP, and how it looks."""

    label: str
    method: str
    color: str
    line: Any = "-"
    marker: str = "o"
    filled: bool = True
    jcp: bool = True
    width: float = 1.1

    def look(self, *, marker: bool = False) -> dict[str, Any]:
        """Keywords for ``Axes.plot``."""
        return {
            "label": self.label,
            "color": self.color,
            "linestyle": self.line,
            "linewidth": self.width,
            "marker": self.marker if marker else None,
            "zorder": 2 if self.line == "-" else 2.5,  # through its gaps what it covers is seen
            "markerfacecolor": self.color if self.filled else "white",
        }


DASHED, DOTTED, DASHDOT = (0, (4, 1.6)), (0, (1, 1.4)), (0, (5, 1.4, 1, 1.4))
DASHDOTDOT = (0, (5, 1.4, 1, 1.4, 1, 1.4))

# Hue says the algorithm; solid is the paper's setting, dashed is tuned, dash-dotted works on the
# true simulator, with two dots from the prior's mean. The order is that of ``study.names.METHODS``.
SERIES: tuple[Series, ...] = (
    Series("one-shot", "one-shot", BLACK, DASHED, "D"),
    Series("wiener", "wiener", GREY, DOTTED, "d"),
    Series("d-ipg", "d-ipg", BLUE, width=1.8),
    Series("d-ipg without JCP", "d-ipg", BLUE, DOTTED, filled=False, jcp=False, width=1.4),
    Series("d-ipg-free", "d-ipg-free", BLUE, "-", ">", width=0.7),
    Series("gd", "gd", SKY, marker="v"),
    Series("gn", "gn", ORANGE, marker="s"),
    Series("lm", "lm", GREEN, marker="^"),
    Series("l-bfgs", "l-bfgs", PURPLE, marker="p"),
    Series("d-ipg-tuned", "d-ipg-tuned", BLUE, DASHED, "<", filled=False),
    Series("gn-tuned", "gn-tuned", ORANGE, DASHED, "s", filled=False),
    Series("lm-tuned", "lm-tuned", GREEN, DASHED, "^", filled=False),
    Series("l-bfgs-tuned", "l-bfgs-tuned", PURPLE, DASHED, "p", filled=False),
    Series("guarded", "guarded", VERMILION, marker="*", width=1.6),
    Series("lm-true", "lm-true", GREEN, DASHDOT, "P"),
    Series("guarded-true", "guarded-true", VERMILION, DASHDOT, "*", filled=False),
    Series("gn-prior", "gn-prior", ORANGE, DASHDOT, "X"),
    Series("guarded-prior", "guarded-prior", VERMILION, DASHDOT, "X", width=0.7),
    Series("gn-cold", "gn-cold", ORANGE, DASHDOTDOT, "D"),
    Series("lm-cold", "lm-cold", GREEN, DASHDOTDOT, "D"),
    Series("l-bfgs-cold", "l-bfgs-cold", PURPLE, DASHDOTDOT, "D"),
)


def pick(*labels: str) -> tuple[Series, ...]:
    """Series by label, in display order."""
    return tuple(series for series in SERIES if series.label in labels)


# The methods of the paper and what it leaves out: the two direct answers.
PAPER = pick("one-shot", "wiener", "d-ipg", "d-ipg without JCP", "gd", "gn", "lm", "l-bfgs")
ONE_SHOT, WIENER, DIPG, PLAIN = PAPER[:4]
DIRECT = (ONE_SHOT, WIENER)

# Each problem with a colour and marker of its own.
PROBLEMS: dict[str, tuple[str, str]] = {
    "heat-1d": (VERMILION, "o"),
    "heat-2d": (ORANGE, "s"),
    "heat-3d": (PURPLE, "^"),
    "darcy-2d": (BLACK, "D"),
    "advection-diffusion-2d": (GREEN, "v"),
    "allen-cahn-2d": (BLUE, "P"),
    "navier-stokes-2d": (SKY, "X"),
}

# Models by what trained them; each has a partner that was trained without JCP.
FAMILIES = ("standard", "paper")


def short(problem: str) -> str:
    """The problem's name on two lines, for narrow columns."""
    name, _, dimension = problem.rpartition("-")
    return f"{name.replace('advection-diffusion', 'adv.-diff.')}\n{dimension}"
